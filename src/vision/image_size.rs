//! Placeholder.

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(from = "[u32; 2]")]
#[allow(missing_docs)]
pub struct ImageSize {
    pub width: u32,
    pub height: u32,
}

impl From<[u32; 2]> for ImageSize {
    fn from([width, height]: [u32; 2]) -> Self {
        Self { width, height }
    }
}
