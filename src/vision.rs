//! placeholder
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ImageSize {
    pub width: u32,
    pub height: u32,
}
