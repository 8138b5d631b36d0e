//! A folder of models.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{FileName, LabelMap, ModelError, ModelName, ModelSpec, ModelVersion, npy};
use crate::heads::{AnchorTable, MAX_ANCHORS};

/// The card's file in a model's folder.
const CARD: &str = "model.toml";

/// The network's file in a version's folder.
const NETWORK: &str = "model.onnx";

/// Largest card or labels file, in bytes. They are a few kilobytes; this keeps a misplaced file of weights
/// out of memory.
const MAX_TEXT_LEN: u64 = 4 << 20;

/// Largest file of anchors, in bytes: as many as a head may have, and the file's header.
const MAX_ANCHORS_LEN: u64 = 16 * MAX_ANCHORS as u64 + 1024;

/// The models found in a folder, as they were when it was opened.
#[derive(Debug)]
pub struct ModelRepository {
    folder: PathBuf,
    entries: Vec<ModelEntry>,
    strays: Vec<String>,
}

/// One model's folder.
#[derive(Debug)]
pub struct ModelEntry {
    /// The model's name, which is its folder's.
    pub name: ModelName,
    /// Its folder.
    pub folder: PathBuf,
    /// The versions whose network is there, oldest first.
    pub versions: Vec<ModelVersion>,
    /// The card, or what is wrong with it: a bad card hides no other model.
    pub spec: Result<ModelSpec, ModelError>,
}

// === impl ModelRepository ===

impl ModelRepository {
    /// Lists the models in a folder and reads their cards.
    ///
    /// Hidden folders and plain files are left aside. Symbolic links count as what they point to.
    ///
    /// # Errors
    /// [`ModelError::Read`] when the folder cannot be listed. What is wrong with one model is said in its
    /// entry.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, ModelError> {
        let folder = folder.into();
        let mut entries = Vec::new();
        let mut strays = Vec::new();
        for (name, path) in subfolders(&folder)? {
            match name.parse() {
                Ok(name) => entries.push(ModelEntry::open(name, path, &mut strays)),
                Err(error) => strays.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(Self {
            folder,
            entries,
            strays,
        })
    }

    /// The repository's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The models, by name.
    pub fn entries(&self) -> &[ModelEntry] {
        &self.entries
    }

    /// The model of that name.
    pub fn entry(&self, name: &str) -> Option<&ModelEntry> {
        self.entries
            .iter()
            .find(|entry| entry.name.as_str() == name)
    }

    /// Folders that are no model or no version, a line each, for the log.
    pub fn strays(&self) -> &[String] {
        &self.strays
    }
}

// === impl ModelEntry ===

impl ModelEntry {
    fn open(name: ModelName, folder: PathBuf, strays: &mut Vec<String>) -> Self {
        let (versions, spec) = match list_versions(&folder, strays) {
            Ok(versions) => (versions, read_card(&folder)),
            Err(error) => (Vec::new(), Err(error)),
        };
        Self {
            name,
            folder,
            versions,
            spec,
        }
    }

    /// The newest version.
    ///
    /// # Errors
    /// [`ModelError::NoNetwork`], which says what to do, when no version's network is there.
    pub fn newest(&self) -> Result<ModelVersion, ModelError> {
        let newest = self.versions.last().copied();
        newest.ok_or_else(|| {
            let source = self
                .spec
                .as_ref()
                .ok()
                .and_then(|spec| spec.source.as_ref());
            let version = source.map_or(ModelVersion::FIRST, |source| source.version);
            self.no_network(version)
        })
    }

    /// The file of a version's network.
    ///
    /// # Errors
    /// [`ModelError::NoNetwork`], which says what to do, when it was not there.
    pub fn network(&self, version: ModelVersion) -> Result<PathBuf, ModelError> {
        let path = self.network_path(version);
        match self.versions.contains(&version) {
            true => Ok(path),
            false => Err(self.no_network(version)),
        }
    }

    /// Reads the labels that the model's card names.
    ///
    /// # Errors
    /// [`ModelError::Read`] or [`ModelError::In`], both naming the file.
    pub fn labels(&self, spec: &ModelSpec) -> Result<LabelMap, ModelError> {
        let path = self.folder.join(spec.labels_file.as_str());
        let text = read_text(&path)?;
        LabelMap::parse(&text).map_err(|error| error.within(path))
    }

    /// Whether no network is there, and nobody has to have one: a card that waits for the network of whoever needs it.
    pub fn is_only_a_card(&self) -> bool {
        let optional = self.spec.as_ref().is_ok_and(|spec| !spec.required);
        self.versions.is_empty() && optional
    }

    fn no_network(&self, version: ModelVersion) -> ModelError {
        let spec = self.spec.as_ref();
        ModelError::NoNetwork {
            is_fetched: spec.is_ok_and(|spec| spec.source.is_some()),
            path: self.network_path(version),
        }
    }

    fn network_path(&self, version: ModelVersion) -> PathBuf {
        self.folder.join(version.to_string()).join(NETWORK)
    }
}

/// The versions whose network is there, oldest first.
fn list_versions(folder: &Path, strays: &mut Vec<String>) -> Result<Vec<ModelVersion>, ModelError> {
    let mut versions = Vec::new();
    for (name, path) in subfolders(folder)? {
        match name.parse() {
            Ok(_) if !path.join(NETWORK).is_file() => {
                strays.push(format!("{} holds no {NETWORK}", path.display()));
            }
            Ok(version) => versions.push(version),
            Err(error) => strays.push(format!("{}: {error}", path.display())),
        }
    }
    versions.sort_unstable();
    Ok(versions)
}

fn read_card(folder: &Path) -> Result<ModelSpec, ModelError> {
    let path = folder.join(CARD);
    if !path.exists() {
        return Err(ModelError::NoCard {
            folder: folder.to_owned(),
        });
    }
    let text = read_text(&path)?;
    let anchors = |file: &FileName| read_anchors(&folder.join(file.as_str()));
    ModelSpec::parse(&text, anchors).map_err(|error| error.within(path))
}

fn read_anchors(path: &Path) -> Result<AnchorTable, ModelError> {
    let bytes = read_bytes(path, MAX_ANCHORS_LEN)?;
    let anchors = npy::rows(&bytes).and_then(|rows| {
        AnchorTable::new(rows).map_err(|error| ModelError::Anchors(error.to_string()))
    });
    anchors.map_err(|error| error.within(path))
}

/// The folders in a folder that are not hidden, by name.
fn subfolders(folder: &Path) -> Result<Vec<(String, PathBuf)>, ModelError> {
    let unreadable = |source| ModelError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().is_dir() {
            found.push((name, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn read_text(path: &Path) -> Result<String, ModelError> {
    String::from_utf8(read_bytes(path, MAX_TEXT_LEN)?).map_err(|_| ModelError::Read {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"),
    })
}

fn read_bytes(path: &Path, max_len: u64) -> Result<Vec<u8>, ModelError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(max_len + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max_len {
            return Err(io::Error::other(format!("it is over {max_len} bytes")));
        }
        Ok(bytes)
    };
    read().map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
