//! Flights: the batches that an instance was given and has not answered.
//!
//! A run may never return, and a thread inside of one cannot be stopped; what it was given has to be had back all the
//! same. So the pictures do not travel with their batch. The batch takes their tensors along, which a run only
//! reads, and the pictures themselves lie in the instance's [`Hands`]. Whoever takes a picture from there owns its
//! answer: the instance's thread when its run is done, or whoever gives the instance up. There is no third.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;

use super::assembler::Picture;
use crate::tensor::Tensor;

/// What an instance has in hand, shared by its thread and its owner.
#[derive(Debug)]
pub(super) struct Hands<C> {
    state: Mutex<State<C>>,
    /// Threads that were given up and have not ended.
    left_behind: Gauge,
}

#[derive(Debug)]
struct State<C> {
    /// At most one that runs and one that comes after it.
    flights: VecDeque<Flight<C>>,
    next: FlightNumber,
    given_up: bool,
    ended: bool,
}

/// Names a batch of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlightNumber(u64);

#[derive(Debug)]
struct Flight<C> {
    number: FlightNumber,
    /// In the order of the rows; what was taken is `None`.
    pictures: Vec<Option<Picture<C>>>,
}

/// What goes to the thread: a batch without its pictures.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) number: FlightNumber,
    /// Rows to run, padding included.
    pub(super) bucket: usize,
    /// The pictures' tensors, in order.
    pub(super) tensors: Vec<Arc<Tensor>>,
}

// === impl Hands ===

impl<C> Hands<C> {
    pub(super) fn new(left_behind: Gauge) -> Self {
        Self {
            state: Mutex::new(State {
                flights: VecDeque::new(),
                next: FlightNumber(0),
                given_up: false,
                ended: false,
            }),
            left_behind,
        }
    }

    /// Puts a batch into its hands, and returns what is to be sent to the thread.
    pub(super) fn give(&self, bucket: usize, pictures: Vec<Picture<C>>) -> Order {
        let mut state = self.lock();
        let number = state.next;
        state.next = FlightNumber(number.0 + 1);
        let tensors = pictures.iter().map(|picture| picture.tensor.clone());
        let tensors = tensors.collect();
        state.flights.push_back(Flight {
            number,
            pictures: pictures.into_iter().map(Some).collect(),
        });
        Order {
            number,
            bucket,
            tensors,
        }
    }

    /// Takes those pictures of a batch whose rows these are; what was taken before is left out. `None` when
    /// the instance was given up: then they are not the thread's to answer any more.
    pub(super) fn take(&self, number: FlightNumber, rows: Range<usize>) -> Option<Vec<Picture<C>>> {
        let mut state = self.lock();
        if state.given_up {
            return None;
        }
        let flights = &mut state.flights;
        let Some(at) = flights.iter().position(|flight| flight.number == number) else {
            return Some(Vec::new()); // all of it was taken before
        };
        let pictures = flights[at].pictures[rows].iter_mut();
        let taken = pictures.filter_map(Option::take).collect();
        if flights[at].pictures.iter().all(Option::is_none) {
            flights.remove(at);
        }
        Some(taken)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// Takes everything, from a thread that may be inside of a run. It is counted as left behind until it ends.
    pub(super) fn give_up(&self) -> Vec<Picture<C>> {
        let mut state = self.lock();
        if !state.ended && !state.given_up {
            self.left_behind.inc();
        }
        state.given_up = true;
        let flights = std::mem::take(&mut state.flights);
        let pictures = flights.into_iter().flat_map(|flight| flight.pictures);
        pictures.flatten().collect()
    }

    /// The thread ends. Returns whether it had been given up before.
    pub(super) fn end(&self) -> bool {
        let mut state = self.lock();
        state.ended = true;
        if state.given_up {
            self.left_behind.dec();
        }
        state.given_up
    }

    /// The state is whole at every instant, so a panic elsewhere while it was held does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pictures(contexts: Range<usize>) -> Vec<Picture<usize>> {
        let picture = |context: usize| Picture {
            tensor: Arc::new(Tensor::from_slice(&[1], &[context as f32]).unwrap()),
            context,
        };
        contexts.map(picture).collect()
    }

    fn contexts(pictures: Vec<Picture<usize>>) -> Vec<usize> {
        pictures
            .into_iter()
            .map(|picture| picture.context)
            .collect()
    }

    #[test]
    fn a_picture_is_taken_once_and_what_is_left_comes_back() {
        let hands = Hands::new(Gauge::default());
        let first = hands.give(4, pictures(0..4));
        let second = hands.give(4, pictures(4..6));
        assert_eq!(contexts(hands.take(first.number, 1..3).unwrap()), [1, 2]);
        assert_eq!(contexts(hands.take(first.number, 0..4).unwrap()), [0, 3]);
        assert!(hands.take(first.number, 0..4).unwrap().is_empty());
        assert_eq!(contexts(hands.take(second.number, 0..1).unwrap()), [4]);
        assert_eq!(contexts(hands.give_up()), [5]);
        assert!(hands.take(second.number, 0..2).is_none());
    }

    #[test]
    fn a_thread_is_left_behind_from_when_it_is_given_up_until_it_ends() {
        let left_behind = Gauge::default();
        let hands = Hands::<usize>::new(left_behind.clone());
        assert!(hands.give_up().is_empty());
        assert_eq!(left_behind.get(), 1);
        assert!(hands.end());
        assert_eq!(left_behind.get(), 0);
        // One that ended by itself is not left behind by whoever clears up after it.
        let hands = Hands::<usize>::new(left_behind.clone());
        assert!(!hands.end());
        hands.give_up();
        assert_eq!(left_behind.get(), 0);
    }
}
