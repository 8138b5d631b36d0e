//! Placeholder.

/// A box in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct BoundingBox {
    pub x_min: f32,
    pub y_min: f32,
    pub x_max: f32,
    pub y_max: f32,
}

/// The index of a class in a model's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// A box before suppression.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct ScoredBox {
    pub bbox: BoundingBox,
    pub score: f32,
    pub class: ClassId,
}
