//! The card's `[source]` table: where the network's file comes from.
//!
//! The server reads it only to find slips in it; `models/fetch.py` acts on it.

use std::fmt;

use serde::Deserialize;

use super::{ModelError, ModelVersion};

/// Where a model's network comes from, and how to know the right file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SourceTable")]
pub struct ModelSource {
    /// The version that the file is; it goes to `<version>/model.onnx`.
    pub version: ModelVersion,
    /// What the file is called in a folder of models at hand.
    pub file: FileName,
    /// The hash of the file that the server loads.
    pub sha256: Sha256,
    /// Where to get it otherwise.
    pub origin: Origin,
}

/// How to get a network's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is downloaded from this address as it is.
    Url(String),
    /// It is made from another file.
    DerivedFrom(DerivedFrom),
}

/// A file from which a network's file is made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedFrom {
    /// What it is called in a folder of models at hand.
    pub file: FileName,
    /// Its hash.
    pub sha256: Sha256,
    /// The address that it is downloaded from.
    pub url: String,
    /// The script in the model's folder that makes the network's file: `script IN OUT`.
    pub script: FileName,
}

/// A SHA-256 in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Sha256(String);

/// The name of a file in a known folder: no path, not hidden.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FileName(String);

/// `[source]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceTable {
    #[serde(default)]
    version: ModelVersion,
    file: FileName,
    sha256: Sha256,
    url: Option<String>,
    derived_from: Option<DerivedFrom>,
}

// === impl ModelSource ===

impl TryFrom<SourceTable> for ModelSource {
    type Error = ModelError;

    fn try_from(table: SourceTable) -> Result<Self, ModelError> {
        let origin = match (table.url, table.derived_from) {
            (Some(url), None) => Origin::Url(url),
            (None, Some(derived_from)) => Origin::DerivedFrom(derived_from),
            _ => {
                return Err(ModelError::Value(
                    "`[source]` needs either `url` or `derived_from`".to_owned(),
                ));
            }
        };
        Ok(Self {
            version: table.version,
            file: table.file,
            sha256: table.sha256,
            origin,
        })
    }
}

// === impl Sha256 ===

impl TryFrom<String> for Sha256 {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(digit) {
            return Ok(Self(text));
        }
        Err(ModelError::Value(format!(
            "{text:?} is no SHA-256 in 64 lower-case hexadecimal digits"
        )))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl FileName ===

impl FileName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FileName {
    type Error = ModelError;

    fn try_from(name: String) -> Result<Self, ModelError> {
        let outside = name.contains(['/', '\\', '\0']) || name.starts_with('.');
        if !name.is_empty() && !outside {
            return Ok(Self(name));
        }
        Err(ModelError::Value(format!(
            "{name:?} is no plain file name: no folders, and no . at the front"
        )))
    }
}
