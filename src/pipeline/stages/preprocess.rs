//! A CPU worker's job: a request that waits becomes an input of its network, or several.

use std::sync::Arc;
use std::time::Instant;

use super::{Asker, Context, Prepared, Sent, Waiting, contain};
use crate::device::Picture;
use crate::pipeline::error::DetectError;
use crate::pipeline::metrics::Metrics;
use crate::pipeline::mosaic::{Mosaic, Piece, Pixels};
use crate::scheduling::{Outcome, RequestId};
use crate::vision::tiling::View;
use crate::vision::{BoundingBox, DecodeError, DecodeLimits, ImageSize, PixelRect, Tiling};

/// Makes the network's input, on a CPU worker. `None` when the request has been answered.
pub(super) fn prepare(
    id: RequestId,
    waiting: Waiting,
    limits: &DecodeLimits,
    metrics: &Metrics,
) -> Option<Prepared> {
    match waiting {
        Waiting::Picture(sent) => prepare_picture(id, *sent, limits, metrics),
        Waiting::Piece(piece) => prepare_piece(id, piece, metrics),
    }
}

/// Decodes a picture and makes an input of it, or of the first of its pieces.
fn prepare_picture(
    id: RequestId,
    sent: Sent,
    limits: &DecodeLimits,
    metrics: &Metrics,
) -> Option<Prepared> {
    let Sent {
        mut call,
        claim,
        image,
        received,
        mut permit,
    } = sent;
    if call.is_abandoned() || !claim.take() {
        metrics.let_go(Outcome::Abandoned);
        return None;
    }
    metrics.prepared.inc();
    let began = Instant::now();
    let outcome = call.span.in_scope(|| {
        contain("preprocess", metrics, || {
            let picture = image.decode(limits)?;
            let region = clipped(call.options.region, picture.size())?;
            let part = region.map_or(PixelRect::whole(picture.size()), |region| region.pixels());
            let views = views(call.options.tiling, part)?;
            let (tensor, transform) = call.model.preprocess(&picture, part);
            Ok((tensor, transform, picture, region, views))
        })
    });
    drop(image);
    let (tensor, transform, picture, region, views) = match outcome {
        Ok(prepared) => prepared,
        Err(error) => {
            if matches!(error, DetectError::Picture(DecodeError::DecoderPanicked)) {
                metrics.panics.inc();
            }
            call.answer(Err(error));
            return None;
        }
    };
    call.options.region = region;
    let image_size = picture.size();
    let preprocessed = received.preprocessed(began);
    let (asker, pieces) = if views.len() > 1 {
        // Nothing is left of what was sent, but the picture holds its place until its last piece is prepared.
        let shrunk = permit.resize(0);
        debug_assert!(shrunk.is_ok(), "less is always there");
        let count = views.len();
        let mosaic = Arc::new(Mosaic::new(call, image_size, views));
        let pixels = Arc::new(Pixels {
            picture,
            _permit: permit,
        });
        let piece = |view| {
            Waiting::Piece(Piece {
                mosaic: mosaic.clone(),
                pixels: pixels.clone(),
                view,
                made: preprocessed,
            })
        };
        let pieces = (1..count).map(piece).collect();
        (Asker::Piece(mosaic, 0), pieces)
    } else {
        (Asker::Call(call), Vec::new())
    };
    let context = Context {
        id,
        asker,
        transform,
        image_size,
        preprocessed,
    };
    Some(Prepared {
        picture: Picture {
            tensor: Arc::new(tensor),
            context,
        },
        pieces,
    })
}

/// Makes an input of a piece of a decoded picture.
fn prepare_piece(id: RequestId, piece: Piece, metrics: &Metrics) -> Option<Prepared> {
    let Piece {
        mosaic,
        pixels,
        view,
        made,
    } = piece;
    if mosaic.is_abandoned() {
        if mosaic.end(None) {
            metrics.let_go(Outcome::Abandoned);
        }
        return None;
    }
    let began = Instant::now();
    let part = mosaic.views[view].part;
    let outcome = mosaic.span.in_scope(|| {
        contain("preprocess", metrics, || {
            Ok(mosaic.model.preprocess(&pixels.picture, part))
        })
    });
    drop(pixels);
    let (tensor, transform) = match outcome {
        Ok(prepared) => prepared,
        Err(error) => {
            mosaic.end(Some(error));
            return None;
        }
    };
    let image_size = mosaic.image_size;
    Some(Prepared {
        picture: Picture {
            tensor: Arc::new(tensor),
            context: Context {
                id,
                asker: Asker::Piece(mosaic, view),
                transform,
                image_size,
                preprocessed: made.again(began),
            },
        },
        pieces: Vec::new(),
    })
}

/// How a part of a picture is looked at: all at once, first, and in tiles.
fn views(tiling: Option<Tiling>, part: PixelRect) -> Result<Vec<View>, DetectError> {
    let Some(tiling) = tiling else {
        return Ok(Vec::new());
    };
    tiling
        .views(part)
        .map_err(|error| DetectError::InvalidOption {
            field: "tiling.tile_size",
            detail: error.to_string(),
        })
}

/// The part of a caller's region that lies in the picture.
fn clipped(
    region: Option<BoundingBox>,
    size: ImageSize,
) -> Result<Option<BoundingBox>, DetectError> {
    let Some(region) = region else {
        return Ok(None);
    };
    let inside = region
        .clip(size)
        .ok_or_else(|| DetectError::InvalidOption {
            field: "region",
            detail: format!("nothing of it lies in the picture of {size}"),
        })?;
    Ok(Some(inside))
}
