//! Placeholder.

use serde::Deserialize;

use super::ImageSize;

/// What a network wants its pictures to be.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct InputSpec {
    pub size: ImageSize,
    pub resize: Resize,
    pub color: ColorOrder,
    #[serde(default)]
    pub layout: Layout,
    #[serde(default = "one")]
    pub scale: f32,
    #[serde(default)]
    pub mean: [f32; 3],
    #[serde(default = "ones")]
    pub std: [f32; 3],
}

/// How a picture is made to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum Resize {
    Letterbox { anchor: Anchor, pad: [u8; 3] },
    Stretch,
}

/// Where a letterboxed picture lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Anchor {
    Center,
    TopLeft,
}

/// The order of a pixel's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ColorOrder {
    Rgb,
    Bgr,
}

/// The order of a tensor's dimensions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Layout {
    #[default]
    Nchw,
    Nhwc,
}

impl InputSpec {
    /// Checks the numbers.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn validate(&self) -> Result<(), String> {
        if self.size.width == 0 || self.size.height == 0 {
            return Err("size must not be zero".into());
        }
        Ok(())
    }
}

fn one() -> f32 {
    1.0
}

fn ones() -> [f32; 3] {
    [1.0; 3]
}
