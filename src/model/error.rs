//! The errors of this room. Each is one line that says what to mend.

use std::io;
use std::path::PathBuf;

/// What is wrong with a model's files.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A card is not TOML, lacks a key, has one too many, or holds a value that is out of range.
    #[error("{0}")]
    Card(String),
    /// A labels file has a line that cannot be a label, or too few or too many of them.
    #[error("{0}")]
    Labels(String),
    /// A file of anchors holds something else.
    #[error("{0}")]
    Anchors(String),
    /// A value is not one that its type can hold.
    #[error("{0}")]
    Value(String),
    /// Something is wrong inside a file.
    #[error("{}: {source}", path.display())]
    In {
        /// The file.
        path: PathBuf,
        /// What is wrong there.
        source: Box<ModelError>,
    },
    /// A file or folder cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A model's folder has no card.
    #[error("{} has no model.toml", folder.display())]
    NoCard {
        /// The model's folder.
        folder: PathBuf,
    },
    /// A network's file is not there.
    #[error("{} is absent; {}put the network there", path.display(), if *is_fetched { "run `make models`, or " } else { "" })]
    NoNetwork {
        /// Whether the card says where it comes from.
        is_fetched: bool,
        /// Where the network should be.
        path: PathBuf,
    },
}

// === impl ModelError ===

impl ModelError {
    /// Says in which file this happened.
    pub(super) fn within(self, path: impl Into<PathBuf>) -> Self {
        Self::In {
            path: path.into(),
            source: Box::new(self),
        }
    }
}
