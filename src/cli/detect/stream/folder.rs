//! Which files a stream's frames are.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// What is looked for in folders.
const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "bmp"];

/// The files, and what is in the folders in the order of their names, numbers by what they are.
pub(super) fn frames(given: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut frames = Vec::new();
    for path in given {
        if !path.is_dir() {
            frames.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut photos: Vec<PathBuf> = entries
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| is_photo(path))
            .collect();
        if photos.is_empty() {
            bail!("there is no photo in {}", path.display());
        }
        photos.sort_by(|a, b| by_number(&a.to_string_lossy(), &b.to_string_lossy()));
        frames.append(&mut photos);
    }
    Ok(frames)
}

fn is_photo(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    EXTENSIONS.contains(&extension.to_lowercase().as_str())
}

/// frame-2 before frame-10.
fn by_number(a: &str, b: &str) -> Ordering {
    let key = |text: &str| {
        let mut parts: Vec<(u64, String)> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            let end = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (digits, tail) = tail.split_at(end);
            parts.push((0, word.to_owned()));
            parts.push((digits.parse().unwrap_or(u64::MAX), digits.to_owned()));
            rest = tail;
        }
        parts
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_folder_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["f10.jpg", "f9.JPG", "f1.png", "notes.txt", "f010.jpg"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let found = frames(&[folder.path().to_owned(), PathBuf::from("last.txt")]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["f1.png", "f9.JPG", "f010.jpg", "f10.jpg", "last.txt"]
        );
        let empty = tempfile::tempdir().unwrap();
        assert!(frames(&[empty.path().to_owned()]).is_err());
    }
}
