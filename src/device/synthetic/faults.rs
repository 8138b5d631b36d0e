//! How synthetic engines are made to misbehave while they run.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::model::Device;

/// What an engine does wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A run with a picture of this mark in it fails.
    Poison(f32),
    /// Every run fails.
    Fails,
    /// A run does not return until the fault is lifted.
    Hangs,
    /// Every run takes so many times as long.
    SlowedDown(f64),
    /// Outputs have shapes that the signature does not allow.
    WrongShapes,
    /// Floats are NaN.
    NotNumbers,
    /// Every run says that the device is lost.
    DeviceLost,
}

/// Which engines a fault is of. A fault of one engine hides one of its device, and that one of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Every engine of the source.
    All,
    /// Those on a device.
    Device(Device),
    /// One engine: they count from zero in the order in which they are built, so one that is built in place of
    /// another has a number of its own.
    Engine(usize),
}

/// The control over the engines of one source. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    all: Option<Fault>,
    devices: BTreeMap<Device, Fault>,
    engines: BTreeMap<usize, Fault>,
    /// Runs that hang now.
    hung: usize,
}

// === impl Faults ===

impl Faults {
    /// From their next run on the engines do this. Replaces what was set for the same target.
    pub fn set(&self, target: Target, fault: Fault) {
        self.change(target, Some(fault));
    }

    /// Takes back what was set for this target. Runs that hung because of it go on.
    pub fn lift(&self, target: Target) {
        self.change(target, None);
    }

    /// Returns once so many runs hang at the same time.
    pub fn wait_until_hung(&self, runs: usize) {
        let mut state = self.lock();
        while state.hung < runs {
            state = self.wait(state);
        }
    }

    /// The fault of an engine's run, once it does not hang any more.
    pub(super) fn of(&self, engine: usize, device: Device) -> Option<Fault> {
        let mut state = self.lock();
        if state.fault(engine, device) == Some(Fault::Hangs) {
            state.hung += 1;
            self.shared.changed.notify_all();
            while state.fault(engine, device) == Some(Fault::Hangs) {
                state = self.wait(state);
            }
            state.hung -= 1;
        }
        state.fault(engine, device)
    }

    fn change(&self, target: Target, fault: Option<Fault>) {
        let mut state = self.lock();
        match (target, fault) {
            (Target::All, fault) => state.all = fault,
            (Target::Device(device), Some(fault)) => {
                state.devices.insert(device, fault);
            }
            (Target::Device(device), None) => {
                state.devices.remove(&device);
            }
            (Target::Engine(engine), Some(fault)) => {
                state.engines.insert(engine, fault);
            }
            (Target::Engine(engine), None) => {
                state.engines.remove(&engine);
            }
        }
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let state = self.shared.changed.wait(state);
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn fault(&self, engine: usize, device: Device) -> Option<Fault> {
        let engine = self.engines.get(&engine);
        let device = self.devices.get(&device);
        engine.or(device).copied().or(self.all)
    }
}

/// Whether a mark is the one meant: marks come out of eight bits, a 255th apart.
pub(super) fn same_mark(mark: f32, meant: f32) -> bool {
    (mark - meant).abs() < 1e-3
}
