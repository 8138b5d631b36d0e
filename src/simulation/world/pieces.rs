//! Pictures in tiles: a picture that is cut becomes several pieces, each prepared and run by itself, and is answered
//! with the last of them. The first piece, the look at all of it, is the request itself.

use std::time::Duration;

use super::World;
use super::requests::Request;
use crate::scheduling::Event;
use crate::simulation::agenda::{Nanoseconds, seconds};

// === impl World ===

impl World<'_> {
    /// The request that a piece is of; any other is its own.
    pub(super) fn picture(&self, place: usize) -> usize {
        self.requests[place].picture.unwrap_or(place)
    }

    /// A worker has made an input of a request, and pieces of what is left of its picture.
    pub(super) fn prepared(&mut self, place: usize, took: Nanoseconds) {
        let picture = self.picture(place);
        self.requests[place].ready = self.now;
        self.requests[picture].cost += seconds(took);
        let mut pieces = Vec::new();
        if picture == place {
            let tiles = self.callers[self.requests[place].caller].source.tiles;
            self.requests[place].parts = tiles;
            self.requests[place].unprepared = tiles;
            for _ in 1..tiles {
                let piece = Request {
                    id: self.next_id(),
                    permit: false,
                    picture: Some(picture),
                    ..self.requests[place].clone()
                };
                let id = piece.id;
                pieces.push((id, self.keep(piece)));
            }
            self.ledger.line(pieces.len() as i64, self.now);
        }
        self.part_prepared(picture);
        self.inbox.push_back(Event::Prepared {
            id: self.requests[place].id,
            payload: place,
            pieces,
            took: Duration::from_nanos(took),
        });
    }

    /// A part of a picture is prepared, or will not be. With the last its place in admission is free: its pixels are
    /// gone.
    pub(super) fn part_prepared(&mut self, picture: usize) {
        let request = &mut self.requests[picture];
        request.unprepared -= 1;
        if request.unprepared == 0 {
            self.give_back_permit(picture);
        }
    }

    /// The server has done with a part of a picture.
    pub(super) fn part_gone(&mut self, place: usize) {
        let picture = self.picture(place);
        if picture != place {
            self.vacant.push(place);
        }
        self.requests[picture].parts -= 1;
        if self.requests[picture].parts == 0 {
            self.vacant.push(picture);
        }
    }
}
