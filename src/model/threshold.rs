//! Thresholds.

use serde::Deserialize;

use super::ModelError;

/// A score or an IoU to compare with: finite, from 0 to 1, both included.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f32")]
pub struct Threshold(f32);

// === impl Threshold ===

impl Threshold {
    /// Takes a number as a threshold.
    ///
    /// # Errors
    /// [`ModelError::Value`] when it is NaN or not within 0 and 1.
    pub fn new(value: f32) -> Result<Self, ModelError> {
        if (0.0..=1.0).contains(&value) {
            return Ok(Self(value));
        }
        Err(ModelError::Value(format!(
            "a threshold lies from 0 to 1, not at {value}"
        )))
    }

    /// The number.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Threshold {
    type Error = ModelError;

    fn try_from(value: f32) -> Result<Self, ModelError> {
        Self::new(value)
    }
}

impl From<Threshold> for f32 {
    fn from(threshold: Threshold) -> Self {
        threshold.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_from_zero_to_one_are_thresholds() {
        for good in [0.0, -0.0, f32::MIN_POSITIVE, 0.65, 1.0] {
            assert_eq!(Threshold::new(good).unwrap().get(), good);
        }
        for bad in [
            -f32::MIN_POSITIVE,
            1.0 + f32::EPSILON,
            f32::NAN,
            f32::INFINITY,
        ] {
            assert!(Threshold::new(bad).is_err(), "{bad}");
        }
    }
}
