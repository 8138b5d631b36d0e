//! What a model is called: its name and its version.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::Deserialize;

use super::ModelError;

/// Longest name of a model, in bytes. Names become label values of metrics and names of health services.
const MAX_NAME_LEN: usize = 64;

/// A model's name, which is its folder's: `a-z`, `0-9`, `.`, `_` and `-`, and no `.` at the front.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ModelName(String);

/// A model's version, which is a folder's name: a positive integer. Of two, the higher is the newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct ModelVersion(NonZeroU32);

// === impl ModelName ===

impl ModelName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ModelName {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        let fits = (1..=MAX_NAME_LEN).contains(&name.len());
        if fits && !name.starts_with('.') && name.bytes().all(allowed) {
            return Ok(Self(name.to_owned()));
        }
        Err(ModelError::Value(format!(
            "{name:?} is no name for a model: up to {MAX_NAME_LEN} of a-z 0-9 . _ - and no . at the front"
        )))
    }
}

impl TryFrom<String> for ModelName {
    type Error = ModelError;

    fn try_from(name: String) -> Result<Self, ModelError> {
        name.parse()
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lets a map keyed by names be asked with any text.
impl std::borrow::Borrow<str> for ModelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

// === impl ModelVersion ===

impl ModelVersion {
    /// The first version.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl Default for ModelVersion {
    fn default() -> Self {
        Self::FIRST
    }
}

impl FromStr for ModelVersion {
    type Err = ModelError;

    /// Reads a version as it is written: decimal, without sign or leading zeros.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        text.parse()
            .ok()
            .filter(|version: &NonZeroU32| version.to_string() == text)
            .map(Self)
            .ok_or_else(|| {
                ModelError::Value(format!(
                    "{text:?} is no version: versions are positive integers in decimal"
                ))
            })
    }
}

impl fmt::Display for ModelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_folder_names() {
        for good in ["a", "yolox-nano", "v8.1_n", &"x".repeat(64)] {
            assert_eq!(good.parse::<ModelName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".hidden",
            "..",
            "a/b",
            "Yolox",
            "a b",
            "é",
            &"x".repeat(65),
        ] {
            assert!(bad.parse::<ModelName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_are_positive_integers_written_plainly_and_ordered_as_numbers() {
        let version = |text: &str| text.parse::<ModelVersion>();
        assert!(version("9").unwrap() < version("10").unwrap());
        assert_eq!(version("4294967295").unwrap().to_string(), "4294967295");
        for bad in ["", "0", "01", "+1", "-1", "1.0", "v1", " 1", "4294967296"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
