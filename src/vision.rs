//! Pictures: from a client's bytes to a network's input, and from raw boxes back to the picture.
//!
//! | module | what it does |
//! |---|---|
//! | [`decode`] | encoded bytes to an upright [`Picture`], refusing what is broken or too large |
//! | [`raw`] | raw frames to an upright [`Picture`] |
//! | [`orient`] | turns and mirrors a picture into its upright position |
//! | [`preprocess`] | picture to a normalised tensor of a network's input size |
//! | [`letterbox`] | the map between picture pixels and input pixels, and its inverse |
//! | [`bbox`] | boxes and their arithmetic |
//! | [`nms`] | keeps one box of those that show the same object |
//! | [`tiling`] | large pictures in overlapping tiles, and what was found in them put together |
//! | [`draw`] | boxes and labels on a copy of the picture |
//!
//! Everything here is plain computation on the caller's thread: nothing waits, spawns, logs or reads
//! settings. Two frames of coordinates occur: *picture* coordinates (pixels of the upright picture,
//! origin at the top left corner of the top left pixel, y down) and *input* coordinates (the same for
//! the network's input). Both are continuous: the pixel `(i, j)` covers `[i, i + 1) x [j, j + 1)`.

pub mod bbox;
pub mod decode;
pub mod draw;
pub mod image_size;
pub mod letterbox;
pub mod nms;
pub mod orient;
pub mod picture;
pub mod preprocess;
pub mod raw;
pub mod tiling;

pub use bbox::{BoundingBox, ClassId, ScoredBox};
pub use decode::{DecodeError, DecodeLimits, decode};
pub use image_size::{ImageSize, PixelRect};
pub use letterbox::LetterboxTransform;
pub use nms::NonMaxSuppression;
pub use picture::Picture;
pub use preprocess::{InputSpec, Preprocessor};
pub use raw::{ColorSpace, PixelFormat, RawFrame, RawLayout, Rotation};
pub use tiling::{TileBox, Tiling};
