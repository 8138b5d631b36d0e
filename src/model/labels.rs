//! The names of a model's classes.

use std::collections::HashMap;

use super::ModelError;
use crate::vision::ClassId;

/// Most labels that a model may have: they all travel in one `ListModels` reply and in every card check.
pub const MAX_LABELS: usize = 10_000;

/// Longest label in bytes; it travels with every detection.
const MAX_LABEL_LEN: usize = 256;

/// The name of a class that a network has but never was trained on. It alone may stand more than once, and
/// cannot be looked up.
pub const UNUSED_LABEL: &str = "???";

/// Class indices and their labels, both ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelMap {
    labels: Vec<String>,
    classes: HashMap<String, ClassId>,
}

// === impl LabelMap ===

impl LabelMap {
    /// Reads labels from text, one a line: the first line is class 0.
    ///
    /// Spaces around a label, Windows line ends, a byte order mark and blank lines *at the end* mean nothing.
    ///
    /// # Errors
    /// [`ModelError::Labels`] when there is no label or too many, when a line between labels is blank (every
    /// class behind it would be off by one), or when a label is too long or stands twice.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let text = text.trim_start_matches('\u{feff}').trim_end();
        if text.is_empty() {
            return Err(ModelError::Labels("there is no label".to_owned()));
        }
        let labels: Vec<_> = text.lines().map(|line| line.trim().to_owned()).collect();
        if labels.len() > MAX_LABELS {
            return Err(ModelError::Labels(format!(
                "there are {} labels; at most {MAX_LABELS} are allowed",
                labels.len()
            )));
        }

        let mut classes = HashMap::new();
        for (index, label) in labels.iter().enumerate() {
            let line = index + 1;
            if label.is_empty() {
                return Err(ModelError::Labels(format!(
                    "line {line} is blank; a class without a name is called {UNUSED_LABEL}"
                )));
            }
            if label.len() > MAX_LABEL_LEN {
                return Err(ModelError::Labels(format!(
                    "the label in line {line} is longer than {MAX_LABEL_LEN} bytes"
                )));
            }
            if label == UNUSED_LABEL {
                continue;
            }
            let class = ClassId(index as u32);
            if let Some(first) = classes.insert(label.clone(), class) {
                return Err(ModelError::Labels(format!(
                    "`{label}` stands in line {} and again in line {line}",
                    first.0 + 1
                )));
            }
        }
        Ok(Self { labels, classes })
    }

    /// The number of classes, unused ones included. Never zero.
    #[expect(clippy::len_without_is_empty, reason = "there always is a label")]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// A class's label, or `None` when there is no such class.
    pub fn label(&self, class: ClassId) -> Option<&str> {
        let index = usize::try_from(class.0).ok()?;
        self.labels.get(index).map(String::as_str)
    }

    /// The class of a label, or `None` when no class is called that.
    pub fn class(&self, label: &str) -> Option<ClassId> {
        self.classes.get(label).copied()
    }

    /// All labels, in the order of their classes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.labels.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_and_its_class_find_each_other() {
        let labels =
            LabelMap::parse("\u{feff}person\r\n traffic light \r\n???\r\n???\r\ncar\r\n\r\n \n")
                .unwrap();
        assert_eq!(
            labels.iter().collect::<Vec<_>>(),
            ["person", "traffic light", "???", "???", "car"]
        );
        assert_eq!(labels.len(), 5);
        assert_eq!(labels.label(ClassId(4)), Some("car"));
        assert_eq!(labels.class("car"), Some(ClassId(4)));
        assert_eq!(labels.label(ClassId(5)), None);
        assert_eq!(labels.label(ClassId(u32::MAX)), None);
        assert_eq!(labels.class("???"), None);
        assert_eq!(labels.class("Car"), None);
    }

    #[test]
    fn lines_that_would_shift_or_confuse_classes_are_refused_by_number() {
        for (text, reason) in [
            ("", "no label"),
            (" \n\n", "no label"),
            ("a\n\nb", "line 2 is blank"),
            ("\na", "line 1 is blank"),
            ("a\nb\na", "`a` stands in line 1 and again in line 3"),
            (&"x".repeat(257), "line 1 is longer than 256"),
        ] {
            let error = LabelMap::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let many: String = (0..=MAX_LABELS).map(|n| format!("{n}\n")).collect();
        let error = LabelMap::parse(&many).unwrap_err().to_string();
        assert!(error.contains("10001 labels"), "{error}");
    }
}
