//! The actor, under a time that stands still until the test lets it pass.

use std::sync::Mutex;

use super::super::bucket::BatchBucket;
use super::super::deadline::Deadline;
use super::super::event::{Kind, ModelKey, Priority, Share};
use super::*;

type Payload = &'static str;

/// Writes down what it is told to do.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Stages<Payload, Payload> for Notes {
    fn prepare(&mut self, id: RequestId, payload: Payload, waited: Duration) {
        self.note(format!("prepare {payload} ({}) after {waited:?}", id.0));
    }
    fn run(&mut self, instance: InstanceKey, bucket: usize, batch: Vec<(RequestId, Payload)>) {
        let batch: Vec<Payload> = batch.into_iter().map(|(_, payload)| payload).collect();
        self.note(format!("run {batch:?} in {bucket} on {}", instance.0));
    }
    fn eject(&mut self, instance: InstanceKey) {
        self.note(format!("eject {}", instance.0));
    }
    fn drop_waiting(&mut self, payload: Payload, outcome: Outcome) {
        self.note(format!("drop waiting {payload}: {outcome:?}"));
    }
    fn drop_ready(&mut self, payload: Payload, outcome: Outcome) {
        self.note(format!("drop ready {payload}: {outcome:?}"));
    }
}

struct Bench {
    batcher: Batcher<Payload>,
    completions: Completions<Payload, Payload>,
    notes: Notes,
    worker: tokio::task::JoinHandle<()>,
}

const MODEL: ModelKey = ModelKey(0);

fn arrival(deadline: Deadline, payload: Payload) -> impl FnOnce(RequestId) -> Arrival<Payload> {
    move |id| Arrival {
        id,
        model: MODEL,
        share: Share::default(),
        priority: Priority::Interactive,
        kind: Kind::Call,
        deadline,
        pieces: None,
        payload,
    }
}

/// Of an instance that runs one picture at a time.
fn placement() -> Placement {
    Placement {
        model: MODEL,
        buckets: vec![BatchBucket {
            size: 1,
            cost: Duration::from_millis(10),
        }],
        max_queue_delay: Duration::ZERO,
        pipelined: false,
        watchdog: Duration::from_secs(10),
    }
}

/// An actor with one CPU worker and one instance that runs one picture at a time.
async fn start(max_waiting: usize) -> Bench {
    let config = Config {
        max_waiting,
        policy: Policy {
            workers: 1,
            max_wait: Duration::from_secs(10),
        },
        max_instances: 1,
    };
    let (completions, receiver) = completions(&config);
    let notes = Notes::default();
    let (batcher, worker) = Batcher::new(&config, receiver, notes.clone());
    let worker = tokio::spawn(worker.run());
    completions.instance_up(InstanceKey(0), placement()).await;
    Bench {
        batcher,
        completions,
        notes,
        worker,
    }
}

/// Lets the actor take in what it has been sent. Time stands still, so it then sleeps.
async fn settle() {
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_through_all_stages() {
    let bench = start(4).await;
    let ticket = bench.batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap();
    settle().await;
    assert_eq!(bench.notes.take(), ["prepare a (0) after 0ns"]);
    bench
        .completions
        .prepared(RequestId(0), "A", Vec::new(), Duration::ZERO);
    settle().await;
    assert_eq!(bench.notes.take(), ["run [\"A\"] in 1 on 0"]);
    ticket.answered();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_ticket_takes_its_request_out_of_the_line() {
    let bench = start(4).await;
    let _first = bench.batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap();
    let second = bench.batcher.arrive(arrival(Deadline::NEVER, "b")).unwrap();
    settle().await;
    bench.notes.take();
    drop(second);
    settle().await;
    assert_eq!(bench.notes.take(), ["drop waiting b: Abandoned"]);
}

#[tokio::test(start_paused = true)]
async fn an_answered_ticket_tells_the_actor_nothing() {
    let bench = start(4).await;
    let ticket = bench.batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap();
    settle().await;
    bench
        .completions
        .prepare_failed(RequestId(0), Duration::ZERO);
    ticket.answered();
    settle().await;
    assert_eq!(bench.notes.take(), ["prepare a (0) after 0ns"]);
}

#[tokio::test(start_paused = true)]
async fn the_actor_wakes_by_itself_when_a_deadline_passes() {
    let bench = start(4).await;
    let _first = bench.batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap();
    let deadline = Deadline::after(now(), Duration::from_millis(30));
    let _second = bench.batcher.arrive(arrival(deadline, "b")).unwrap();
    tokio::time::sleep(Duration::from_millis(29)).await;
    assert_eq!(bench.notes.take().len(), 1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(bench.notes.take(), ["drop waiting b: Expired"]);
}

#[tokio::test(start_paused = true)]
async fn more_than_the_mailbox_holds_is_given_back() {
    let bench = start(1).await;
    // Without an await in between the actor gets no turn, and the mailbox holds two.
    let tickets: Vec<_> = (0..2)
        .map(|_| bench.batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap())
        .collect();
    let Err(Full(payload)) = bench.batcher.arrive(arrival(Deadline::NEVER, "b")) else {
        panic!("there was room");
    };
    assert_eq!(payload, "b");
    drop(tickets);
}

#[tokio::test(start_paused = true)]
async fn the_actor_hands_on_what_it_has_and_stops_when_the_doors_are_gone() {
    let Bench {
        batcher,
        completions,
        notes,
        worker,
    } = start(4).await;
    for name in ["a", "b"] {
        batcher
            .arrive(arrival(Deadline::NEVER, name))
            .unwrap()
            .answered();
    }
    settle().await;
    drop(batcher);
    settle().await;
    assert!(!worker.is_finished(), "a request is still in the line");
    completions.prepared(RequestId(0), "A", Vec::new(), Duration::ZERO);
    settle().await;
    completions.batch_finished(InstanceKey(0), None);
    completions.prepared(RequestId(1), "B", Vec::new(), Duration::ZERO);
    settle().await;
    assert!(!worker.is_finished(), "a request is with a device");
    completions.batch_finished(InstanceKey(0), None);
    worker.await.unwrap();
    let told = notes.take();
    assert!(
        told.contains(&"run [\"B\"] in 1 on 0".to_owned()),
        "{told:?}"
    );
}

/// Instance 0 is gone before anybody has told the machine.
#[derive(Debug, Default)]
struct Gone {
    notes: Notes,
    stranded: Vec<(RequestId, Payload)>,
}

impl Stages<Payload, Payload> for Gone {
    fn prepare(&mut self, id: RequestId, payload: Payload, waited: Duration) {
        self.notes.prepare(id, payload, waited);
    }
    fn run(&mut self, instance: InstanceKey, bucket: usize, batch: Vec<(RequestId, Payload)>) {
        match instance {
            InstanceKey(0) => self.stranded.extend(batch),
            _ => self.notes.run(instance, bucket, batch),
        }
    }
    fn stranded(&mut self, _: InstanceKey) -> Vec<(RequestId, Payload)> {
        std::mem::take(&mut self.stranded)
    }
    fn eject(&mut self, _: InstanceKey) {}
    fn drop_waiting(&mut self, payload: Payload, outcome: Outcome) {
        self.notes.drop_waiting(payload, outcome);
    }
    fn drop_ready(&mut self, payload: Payload, outcome: Outcome) {
        self.notes.drop_ready(payload, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_to_an_instance_that_had_gone_runs_on_another() {
    let config = Config {
        max_waiting: 4,
        policy: Policy {
            workers: 1,
            max_wait: Duration::from_secs(10),
        },
        max_instances: 2,
    };
    let (completions, receiver) = completions(&config);
    let notes = Notes::default();
    let stages = Gone {
        notes: notes.clone(),
        ..Gone::default()
    };
    let (batcher, worker) = Batcher::new(&config, receiver, stages);
    let worker = tokio::spawn(worker.run());
    for key in 0..2 {
        completions.instance_up(InstanceKey(key), placement()).await;
    }
    let _ticket = batcher.arrive(arrival(Deadline::NEVER, "a")).unwrap();
    settle().await;
    completions.prepared(RequestId(0), "a ready", Vec::new(), Duration::ZERO);
    settle().await;
    assert_eq!(notes.take(), ["prepare a (0) after 0ns"]);
    completions.instance_down(InstanceKey(0), Vec::new());
    settle().await;
    assert_eq!(notes.take(), [r#"run ["a ready"] in 1 on 1"#]);
    worker.abort();
}
