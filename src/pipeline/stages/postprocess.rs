//! A result on its way back: what a network put out for a picture, or a piece of one, becomes boxes, and these an
//! answer.

use std::sync::Arc;

use super::{Asker, Call, Context, contain};
use crate::device::Inferred;
use crate::pipeline::error::DetectError;
use crate::pipeline::metrics::Metrics;
use crate::pipeline::mosaic::{Complete, Mosaic};
use crate::pipeline::request::{Detections, EffectiveOptions};
use crate::pipeline::served::{Read, ServedModel};
use crate::pipeline::timings;
use crate::tensor::Tensor;
use crate::vision::{BoundingBox, ImageSize, LetterboxTransform, PixelRect, ScoredBox};

/// A picture, or a piece of one, that ran.
pub(super) struct Ran {
    asker: Asker,
    row: Row,
    timings: timings::Ran,
}

/// What the network put out for it, and where it was seen.
struct Row {
    outputs: Arc<[Tensor]>,
    index: usize,
    transform: LetterboxTransform,
    image_size: ImageSize,
}

// === impl Ran ===

impl Ran {
    /// It is back from its device now.
    pub(super) fn of(inferred: Inferred<Context>) -> Self {
        let Inferred {
            outputs,
            row,
            context,
            run,
        } = inferred;
        let Context {
            id: _,
            asker,
            transform,
            image_size,
            preprocessed,
        } = context;
        Self {
            asker,
            row: Row {
                outputs,
                index: row,
                transform,
                image_size,
            },
            timings: preprocessed.ran(run),
        }
    }

    /// Reads it and answers, or keeps what was found until the other pieces are in.
    pub(super) fn finish(self, metrics: &Metrics) {
        let Self {
            asker,
            row,
            timings,
        } = self;
        if asker.is_abandoned() {
            return;
        }
        let span = asker.span().clone();
        span.in_scope(|| match asker {
            Asker::Call(call) => finish_picture(call, row, timings, metrics),
            Asker::Piece(mosaic, view) => finish_piece(&mosaic, view, row, timings, metrics),
        });
    }
}

fn finish_picture(call: Call, row: Row, ran: timings::Ran, metrics: &Metrics) {
    let image_size = row.image_size;
    let bounds = call.options.region;
    let bounds = bounds.unwrap_or(BoundingBox::of(PixelRect::whole(image_size)));
    let outcome = contain("postprocess", metrics, || {
        let boxes = row.read(&call.model, &bounds, &call.options, metrics)?;
        let (detections, total) = call.model.name(&boxes, &call.options);
        Ok((detections, total))
    });
    let answer = outcome.map(|(detections, total)| Detections {
        detections,
        total,
        image_size,
        model: call.model.reference.clone(),
        options: call.options.clone(),
        timings: ran.replied(),
    });
    call.answer(answer);
}

fn finish_piece(mosaic: &Mosaic, view: usize, row: Row, ran: timings::Ran, metrics: &Metrics) {
    let bounds = mosaic.bounds(view);
    let outcome = contain("postprocess", metrics, || {
        let boxes = row.read(&mosaic.model, &bounds, &mosaic.options, metrics)?;
        Ok(mosaic.put(view, boxes, ran.batch_size()))
    });
    match outcome {
        Ok(None) => {}
        Ok(Some(complete)) => finish_mosaic(mosaic, complete, ran, metrics),
        Err(error) => {
            mosaic.end(Some(error));
        }
    }
}

/// All pieces are in.
fn finish_mosaic(mosaic: &Mosaic, complete: Complete, ran: timings::Ran, metrics: &Metrics) {
    let Complete {
        answer,
        boxes,
        largest_batch,
    } = complete;
    let (model, options) = (&mosaic.model, &mosaic.options);
    let outcome = contain("merge", metrics, || {
        let merged = ServedModel::merge(boxes, options);
        Ok(model.name(&merged, options))
    });
    // A caller that has gone in the meantime is a normal event.
    drop(answer.send(outcome.map(|(detections, total)| Detections {
        detections,
        total,
        image_size: mosaic.image_size,
        model: model.reference.clone(),
        options: options.clone(),
        timings: mosaic.timings(ran.replied(), largest_batch),
    })));
}

// === impl Row ===

impl Row {
    /// The boxes in it. The outputs go back to the runtime before the caller is told.
    fn read(
        self,
        model: &ServedModel,
        bounds: &BoundingBox,
        options: &EffectiveOptions,
        metrics: &Metrics,
    ) -> Result<Vec<ScoredBox>, DetectError> {
        let Read { boxes, dropped } =
            model.read(&self.outputs, self.index, &self.transform, bounds, options)?;
        metrics.dropped_candidates.inc_by(dropped as u64);
        Ok(boxes)
    }
}
