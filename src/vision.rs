//! Placeholder for the pictures' room.

pub mod bbox;
pub mod image_size;
pub mod preprocess;

pub use bbox::{BoundingBox, ClassId, ScoredBox};
pub use image_size::ImageSize;
