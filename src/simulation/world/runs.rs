//! Runs of devices, and what goes wrong with them.

use std::time::Duration;

use super::{Happening, Job, World};
use crate::scheduling::{Event, InstanceKey};
use crate::simulation::agenda::{nanoseconds, seconds};
use crate::simulation::device::Change;
use crate::simulation::pool::Task;
use crate::simulation::scenario::Distribution;

// === impl World ===

impl World<'_> {
    pub(super) fn begin_run(&mut self, device: usize) {
        let Some((run, takes)) = self.devices[device].begin(self.now) else {
            return;
        };
        for place in self.devices[device].running() {
            self.requests[*place].ran_from = self.now;
        }
        match self.devices[device].spec.shares_cores {
            true => self.cores.start(takes, Job::Runs { device, run }, self.now),
            false => {
                let at = self.now.saturating_add(nanoseconds(takes));
                self.agenda.put(at, Happening::Ends { device, run });
            }
        }
    }

    pub(super) fn end_run(&mut self, device: usize, run: u64) {
        let Some(ran) = self.devices[device].end(run) else {
            return;
        };
        self.ledger.ran(device, &ran, self.now);
        if let Some(instance) = self.devices[device].key {
            let took = Some(Duration::from_nanos(self.now - ran.started));
            self.inbox
                .push_back(Event::BatchFinished { instance, took });
        }
        self.begin_run(device);
        let each = seconds(self.now - ran.started) / ran.flight.requests.len() as f64;
        let model = &self.scenario.model[self.devices[device].model];
        let nothing_to_finish = model.postprocess == Distribution::NOTHING;
        for place in ran.flight.requests {
            self.requests[place].ran_to = self.now;
            let picture = self.picture(place);
            self.requests[picture].cost += each;
            match nothing_to_finish {
                true => self.answer(place),
                false => self.pool.put(Task::Finish(place)),
            }
        }
    }

    pub(super) fn change(&mut self, device: usize, change: Change) {
        match change {
            Change::Hangs => self.devices[device].hangs = true,
            Change::Goes => {
                if let Some(instance) = self.devices[device].key {
                    let places = self.devices[device].go();
                    let named = |place: usize| (self.requests[place].id, place);
                    let returned = places.into_iter().map(named).collect();
                    self.inbox
                        .push_back(Event::InstanceDown { instance, returned });
                }
            }
            Change::ComesBack => {
                self.change(device, Change::Goes);
                let key = InstanceKey(self.instances.len() as u32);
                self.instances.push(device);
                let placement = self.devices[device].come_up(key, self.scenario);
                self.inbox.push_back(Event::InstanceUp(key, placement));
            }
        }
    }
}
