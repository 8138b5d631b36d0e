//! What came out: as text, as JSON.

use std::time::Duration;

use serde_json::json;

use super::ask::Answers;
use super::categories::{Categories, Rule};
use super::coco::Truth;
use super::metric::Scores;
use crate::grpc::pb;

/// So many names in a line of text; all of them are in the JSON.
const NAMES: usize = 8;

/// A model's marks, and what they rest on.
pub(super) struct Report<'a> {
    pub(super) model: &'a pb::ModelRef,
    pub(super) truth: &'a Truth,
    pub(super) categories: &'a Categories<'a>,
    pub(super) answers: &'a Answers,
    pub(super) scores: Scores,
    pub(super) took: Duration,
}

// === impl Report ===

impl Report<'_> {
    pub(super) fn as_text(&self) -> Vec<String> {
        let (asked, failed) = (self.truth.pictures.len(), self.answers.failed);
        let mut lines = vec![format!(
            "{} {}  {} of {asked} pictures  {} objects  {} boxes  {:.1} s",
            self.model.name,
            self.model.version,
            asked - failed,
            self.objects(),
            self.answers.found.len(),
            self.took.as_secs_f64()
        )];
        let rule = match self.categories.rule {
            Rule::Name => "by name",
            Rule::Id => "by id, for no name is the same",
        };
        let (known, count) = (self.categories.known(), self.categories.count());
        lines.push(format!("  {known} of {count} categories matched {rule}"));
        lines.extend(self.remarks().iter().map(|line| format!("  {line}")));
        let scores = &self.scores;
        for (name, score, what) in [
            ("AP", scores.ap, "overlaps 0.50 to 0.95"),
            ("AP50", scores.ap50, ""),
            ("AP75", scores.ap75, ""),
            ("AP small", scores.ap_small, "below 32 x 32 pixels"),
            ("AP medium", scores.ap_medium, ""),
            ("AP large", scores.ap_large, "above 96 x 96 pixels"),
            ("AR@100", scores.ar100, "overlaps 0.50 to 0.95"),
        ] {
            // None is not zero: there was nothing to find.
            let score = score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"));
            lines.push(
                format!("{name:<10}  {score:<5}  {what}")
                    .trim_end()
                    .to_owned(),
            );
        }
        lines
    }

    pub(super) fn as_json(&self) -> serde_json::Value {
        let unknown = self.categories.unknown_categories();
        let unknown: Vec<&str> = unknown.iter().map(|one| one.name.as_str()).collect();
        json!({
            "model": {"name": self.model.name, "version": self.model.version},
            "pictures": self.truth.pictures.len(),
            "pictures_failed": self.answers.failed,
            "objects": self.objects(),
            "boxes": self.answers.found.len(),
            "categories": {
                "matched_by": self.categories.rule,
                "matched": self.categories.known(),
                "without_label": unknown,
                "labels_without_category": self.categories.unknown_labels(),
            },
            "scores": self.scores,
            "remarks": self.remarks(),
            "seconds": self.took.as_secs_f64(),
        })
    }

    fn objects(&self) -> usize {
        self.truth.counts().values().sum()
    }

    /// What the marks do not tell by themselves.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match self.answers.failed {
            0 => {}
            failed => remarks.push(format!(
                "pictures not looked at: {failed}; what is in them counts as not found"
            )),
        }
        let unknown = self.categories.unknown_categories();
        if !unknown.is_empty() {
            let counts = self.truth.counts();
            let objects: usize = unknown.iter().filter_map(|one| counts.get(&one.id)).sum();
            let names: Vec<&str> = unknown.iter().map(|one| one.name.as_str()).collect();
            remarks.push(format!(
                "categories that are no label: {}; objects of them, which count as not found: {objects}",
                some(&names)
            ));
        }
        let labels = self.categories.unknown_labels();
        if !labels.is_empty() {
            let names = some(&labels);
            remarks.push(format!(
                "labels that are no category, and were not asked for: {names}"
            ));
        }
        let resized = &self.answers.resized;
        if let Some(first) = resized.first() {
            let count = resized.len();
            remarks.push(format!(
                "pictures of another size than the file says: {count}, such as {first}"
            ));
        }
        match self.truth.strays {
            0 => {}
            strays => remarks.push(format!(
                "objects of no picture or category of the file, left out: {strays}"
            )),
        }
        remarks
    }
}

/// The first names, and how many there are more.
fn some(names: &[&str]) -> String {
    let rest = names.len().saturating_sub(NAMES);
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("{}{more}", names[..names.len() - rest].join(", "))
}
