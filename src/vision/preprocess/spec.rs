//! What a model wants its input to be, as its card says it.

use serde::Deserialize;

use super::super::image_size::ImageSize;
use super::super::letterbox::Anchor;
use super::super::picture::MAX_SIDE;
use crate::tensor::DType;

/// How a picture becomes a model's input.
///
/// In a model card:
///
/// ```toml
/// size = [416, 416]                 # width, height
/// resize = { mode = "letterbox", anchor = "top_left", pad = [114, 114, 114] }
/// color = "bgr"
/// layout = "nchw"
/// scale = 1.0
/// mean = [0.0, 0.0, 0.0]
/// std = [1.0, 1.0, 1.0]
/// ```
///
/// Each element is `(pixel * scale - mean) / std` with `pixel` in 0..=255.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// The input's width and height in pixels.
    pub size: ImageSize,
    /// How a picture of another size is fitted.
    pub resize: Resize,
    /// The order of the channels.
    pub color: ColorOrder,
    /// The order of the dimensions.
    #[serde(default)]
    pub layout: Layout,
    /// Multiplies each pixel before the mean is taken off. Default 1.
    #[serde(default = "one")]
    pub scale: f32,
    /// Taken off each channel after scaling, **in the order of `color`**. Default 0.
    #[serde(default)]
    pub mean: [f32; 3],
    /// Divides each channel at last, **in the order of `color`**. Default 1.
    #[serde(default = "ones")]
    pub std: [f32; 3],
}

/// How a picture is fitted into the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ResizeTable")]
pub enum Resize {
    /// Proportions kept, the rest filled.
    Letterbox {
        /// Where the picture lies.
        anchor: Anchor,
        /// The filling as a colour: **R, G, B, whatever `color` says**. It is normalised as a pixel is.
        pad: [u8; 3],
    },
    /// Filled by the picture, proportions given up.
    Stretch,
}

/// The order of the channels in the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColorOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// The order of the dimensions in the tensor (of a batch: N is the batch's).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One plane for each channel. The default.
    #[default]
    Nchw,
    /// The channels of a pixel side by side.
    Nhwc,
}

/// Why a model's input cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A side is zero, or longer than any picture's.
    #[error("size is {size}, but sides are from 1 to {MAX_SIDE} pixels")]
    Size {
        /// The size given.
        size: ImageSize,
    },
    /// A number is infinite or none.
    #[error("{key} is {value}, not a finite number")]
    NotFinite {
        /// The card's key.
        key: &'static str,
        /// The value given.
        value: f32,
    },
    /// A divisor is zero.
    #[error("std has a zero, and it divides")]
    ZeroStd,
    /// No picture is written in this type.
    #[error("a picture cannot be written as {dtype}: only f32, f16 and u8 are known")]
    DType {
        /// The type asked for.
        dtype: DType,
    },
    /// Normalised values are fractions; bytes would lose them.
    #[error("an input of u8 takes pixels as they are: scale, mean and std must be 1, 0 and 1")]
    NormalisedBytes,
    /// Some pixel value leads to a number that the type cannot hold.
    #[error("scale, mean and std lead to numbers beyond the range of {dtype}")]
    OutOfRange {
        /// The type asked for.
        dtype: DType,
    },
}

/// The keys of `resize` as they stand in the card. Flat, so that unknown keys can be found.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResizeTable {
    mode: Mode,
    anchor: Option<Anchor>,
    pad: Option<[u8; 3]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Letterbox,
    Stretch,
}

fn one() -> f32 {
    1.0
}

fn ones() -> [f32; 3] {
    [1.0; 3]
}

// === impl InputSpec ===

impl InputSpec {
    /// The shape of one picture's tensor: `[3, H, W]` or `[H, W, 3]`.
    pub fn tensor_shape(&self) -> Vec<usize> {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        match self.layout {
            Layout::Nchw => vec![3, height, width],
            Layout::Nhwc => vec![height, width, 3],
        }
    }

    /// Checks that inputs can be made of it at all.
    ///
    /// # Errors
    /// [`SpecError`] naming the first key that is wrong.
    pub fn validate(&self) -> Result<(), SpecError> {
        let size = self.size;
        if size.is_empty() || size.width > MAX_SIDE || size.height > MAX_SIDE {
            return Err(SpecError::Size { size });
        }
        let numbers = [
            ("scale", &[self.scale][..]),
            ("mean", &self.mean),
            ("std", &self.std),
        ];
        for (key, values) in numbers {
            if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
                return Err(SpecError::NotFinite { key, value });
            }
        }
        if self.std.contains(&0.0) {
            return Err(SpecError::ZeroStd);
        }
        Ok(())
    }
}

// === impl Resize ===

impl Resize {
    /// The gray that letterboxed models are trained with when nothing else is said.
    pub const DEFAULT_PAD: [u8; 3] = [114; 3];
}

impl TryFrom<ResizeTable> for Resize {
    type Error = &'static str;

    fn try_from(table: ResizeTable) -> Result<Self, Self::Error> {
        match (table.mode, table.anchor, table.pad) {
            (Mode::Letterbox, Some(anchor), pad) => Ok(Self::Letterbox {
                anchor,
                pad: pad.unwrap_or(Self::DEFAULT_PAD),
            }),
            // Models of either kind exist, and the wrong one shifts every box.
            (Mode::Letterbox, None, _) => {
                Err("letterbox needs an anchor: \"center\" or \"top_left\"")
            }
            (Mode::Stretch, None, None) => Ok(Self::Stretch),
            (Mode::Stretch, _, _) => Err("stretch has no anchor and no pad"),
        }
    }
}

// === impl ColorOrder ===

impl ColorOrder {
    /// For each channel of the tensor, which of R, G, B it is.
    pub(super) fn sources(self) -> [usize; 3] {
        match self {
            Self::Rgb => [0, 1, 2],
            Self::Bgr => [2, 1, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = r#"
        size = [416, 320]
        resize = { mode = "letterbox", anchor = "top_left", pad = [1, 2, 3] }
        color = "bgr"
        layout = "nhwc"
    "#;

    #[test]
    fn a_card_reads_with_its_defaults() {
        let spec: InputSpec = toml::from_str(CARD).unwrap();
        let expected = InputSpec {
            size: ImageSize::new(416, 320),
            resize: Resize::Letterbox {
                anchor: Anchor::TopLeft,
                pad: [1, 2, 3],
            },
            color: ColorOrder::Bgr,
            layout: Layout::Nhwc,
            scale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        };
        assert_eq!(spec, expected);
        assert_eq!(spec.validate(), Ok(()));
    }

    #[test]
    fn resize_says_all_that_it_needs_and_nothing_else() {
        let read = |resize: &str| {
            let line = CARD.lines().nth(2).unwrap();
            toml::from_str::<InputSpec>(&CARD.replace(line, &format!("resize = {resize}")))
                .map(|spec| spec.resize)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(r#"{ mode = "stretch" }"#), Ok(Resize::Stretch));
        assert_eq!(
            read(r#"{ mode = "letterbox", anchor = "center" }"#),
            Ok(Resize::Letterbox {
                anchor: Anchor::Center,
                pad: [114; 3],
            })
        );
        let no_anchor = read(r#"{ mode = "letterbox" }"#).unwrap_err();
        assert!(no_anchor.contains("needs an anchor"), "{no_anchor}");
        let padded = read(r#"{ mode = "stretch", pad = [0, 0, 0] }"#).unwrap_err();
        assert!(padded.contains("no pad"), "{padded}");
    }

    #[test]
    fn an_unknown_key_is_refused_at_every_depth() {
        for (known, typo) in [("color =", "colour ="), ("pad =", "padding =")] {
            let error = toml::from_str::<InputSpec>(&CARD.replace(known, typo))
                .unwrap_err()
                .to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn numbers_that_make_no_input_are_refused() {
        let good: InputSpec = toml::from_str(CARD).unwrap();
        let with = |change: fn(&mut InputSpec)| {
            let mut spec = good.clone();
            change(&mut spec);
            spec.validate().unwrap_err().to_string()
        };
        assert!(with(|spec| spec.size.width = 0).contains("size is 0x320"));
        assert!(with(|spec| spec.size.height = 70_000).contains("size is 416x70000"));
        assert!(with(|spec| spec.scale = f32::NAN).contains("scale is NaN"));
        assert!(with(|spec| spec.mean[1] = f32::INFINITY).contains("mean is inf"));
        assert!(with(|spec| spec.std[2] = 0.0).contains("std has a zero"));
    }
}
