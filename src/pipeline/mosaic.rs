//! A picture that is looked at in pieces: its pixels while they are needed, its one answer, and what was found so far.
//!
//! Each piece is a request of its own to the scheduler and is prepared, run and read like any picture. All of them
//! share one [`Mosaic`], which answers once: with an error as soon as one of them has one, or with what all of them
//! found, merged, when the last is in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tracing::Span;

use super::admission::AdmissionPermit;
use super::error::DetectError;
use super::request::EffectiveOptions;
use super::served::{MAX_CANDIDATES, ServedModel};
use super::stages::{Answer, Call};
use super::timings::{Preprocessed, Timings};
use crate::vision::tiling::{View, keep_surest};
use crate::vision::{BoundingBox, ImageSize, Picture, ScoredBox, TileBox};

/// A piece that waits to be prepared.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) mosaic: Arc<Mosaic>,
    pub(super) pixels: Arc<Pixels>,
    /// Which of the mosaic's views it is.
    pub(super) view: usize,
    /// How far its picture was when the piece was made.
    pub(super) made: Preprocessed,
}

/// A decoded picture. It is gone when the last of its pieces is prepared, and with it its place in admission: until
/// then something of it waits.
#[derive(Debug)]
pub(super) struct Pixels {
    pub(super) picture: Picture,
    pub(super) _permit: AdmissionPermit,
}

/// What the pieces of a picture share.
#[derive(Debug)]
pub(super) struct Mosaic {
    pub(super) has_deadline: bool,
    pub(super) model: Arc<ServedModel>,
    pub(super) options: EffectiveOptions,
    pub(super) image_size: ImageSize,
    pub(super) views: Vec<View>,
    pub(super) span: Span,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` when the call was answered, or let go of.
    answer: Option<oneshot::Sender<Answer>>,
    /// Views that are not in yet.
    missing: usize,
    boxes: Vec<TileBox>,
    largest_batch: usize,
}

/// What all views of a picture showed.
#[derive(Debug)]
pub(super) struct Complete {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) boxes: Vec<TileBox>,
    /// Pictures and pieces in the largest batch that one of the views ran in.
    pub(super) largest_batch: usize,
}

// === impl Mosaic ===

impl Mosaic {
    /// For the call of a picture of this size that is looked at in these views.
    pub(super) fn new(call: Call, image_size: ImageSize, views: Vec<View>) -> Self {
        let Call {
            has_deadline,
            model,
            options,
            answer,
            span,
        } = call;
        let state = State {
            answer: Some(answer),
            missing: views.len(),
            boxes: Vec::new(),
            largest_batch: 0,
        };
        Self {
            has_deadline,
            model,
            options,
            image_size,
            views,
            span,
            state: Mutex::new(state),
        }
    }

    /// Whether nobody waits for what its pieces will show.
    pub(super) fn is_abandoned(&self) -> bool {
        let state = self.lock();
        let answer = state.answer.as_ref();
        answer.is_none_or(oneshot::Sender::is_closed)
    }

    /// What of the picture a view's boxes may lie in.
    pub(super) fn bounds(&self, view: usize) -> BoundingBox {
        let part = BoundingBox::of(self.views[view].part);
        // Every view has a pixel of the region.
        let region = self.options.region.as_ref();
        let inside = region.and_then(|region| part.clip_to(region));
        inside.unwrap_or(part)
    }

    /// Ends the call: with an error, or without a word to a caller who left. Returns whether it was still open.
    pub(super) fn end(&self, error: Option<DetectError>) -> bool {
        let mut state = self.lock();
        state.boxes = Vec::new();
        let Some(answer) = state.answer.take() else {
            return false;
        };
        if let Some(error) = error {
            // A caller that has gone in the meantime is a normal event.
            drop(answer.send(Err(error)));
        }
        true
    }

    /// Takes in what was found in a view, in the picture's pixels. Returns everything with the last one, unless the
    /// call has ended.
    pub(super) fn put(&self, view: usize, found: Vec<ScoredBox>, batch: usize) -> Option<Complete> {
        let seen_in = &self.views[view];
        let number = u32::try_from(view).unwrap_or(u32::MAX);
        let boxes = found.into_iter().map(|found| TileBox {
            found,
            sight: seen_in.sight(&found.bbox),
            view: number,
        });
        let mut state = self.lock();
        state.answer.as_ref()?;
        state.boxes.extend(boxes);
        if state.boxes.len() > 2 * MAX_CANDIDATES {
            keep_surest(&mut state.boxes, MAX_CANDIDATES);
        }
        state.largest_batch = state.largest_batch.max(batch);
        state.missing = state.missing.saturating_sub(1);
        if state.missing > 0 {
            return None;
        }
        Some(Complete {
            answer: state.answer.take()?,
            boxes: std::mem::take(&mut state.boxes),
            largest_batch: state.largest_batch,
        })
    }

    /// The timings of the reply: those of the piece that came last, which is the one that the answer waited for.
    pub(super) fn timings(&self, last: Timings, largest_batch: usize) -> Timings {
        Timings {
            batch_size: largest_batch,
            tiles: self.views.len(),
            ..last
        }
    }

    /// Nothing that is done under the lock panics half way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
