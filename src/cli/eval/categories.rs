//! Which label of the model is which category of the file.

use serde::Serialize;

use super::coco::Category;

/// What makes a label a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rule {
    /// The category has the label's name.
    Name,
    /// The category's id is the label's row, because not one of the names is the same.
    Id,
}

/// Each label's category. One rule holds for all: COCO's own ids, 1 to 90, are no rows, and a label that its name does
/// not match would become the wrong category.
#[derive(Debug)]
pub(super) struct Categories<'a> {
    pub(super) rule: Rule,
    /// In the order of the labels.
    ids: Vec<Option<i64>>,
    labels: &'a [String],
    all: &'a [Category],
}

// === impl Categories ===

impl<'a> Categories<'a> {
    /// None when neither rule finds a single one.
    pub(super) fn new(all: &'a [Category], labels: &'a [String]) -> Option<Self> {
        let by_rule = |rule| {
            let same = |row: usize, label: &str, category: &Category| match rule {
                Rule::Name => category.name == label,
                Rule::Id => i64::try_from(row).is_ok_and(|row| category.id == row),
            };
            let rows = labels.iter().enumerate();
            let ids: Vec<Option<i64>> = rows
                .map(|(row, label)| Some(all.iter().find(|one| same(row, label, one))?.id))
                .collect();
            ids.iter().any(Option::is_some).then_some(Self {
                rule,
                ids,
                labels,
                all,
            })
        };
        by_rule(Rule::Name).or_else(|| by_rule(Rule::Id))
    }

    /// The category of a class of the model.
    pub(super) fn of(&self, class: u32) -> Option<i64> {
        *self.ids.get(usize::try_from(class).ok()?)?
    }

    /// Labels to ask for; none at all where all of them are wanted. What no category is, is not asked for: it would take
    /// the places of what is.
    pub(super) fn wanted(&self) -> Vec<String> {
        match self.ids.iter().all(Option::is_some) {
            true => Vec::new(),
            false => self.labels_that(|id| id.is_some()).cloned().collect(),
        }
    }

    /// Labels that are no category.
    pub(super) fn unknown_labels(&self) -> Vec<&'a str> {
        let labels = self.labels_that(|id| id.is_none());
        labels.map(String::as_str).collect()
    }

    /// Categories that are no label.
    pub(super) fn unknown_categories(&self) -> Vec<&'a Category> {
        let all = self.all.iter();
        all.filter(|one| !self.ids.contains(&Some(one.id)))
            .collect()
    }

    /// How many categories are a label.
    pub(super) fn known(&self) -> usize {
        self.all.len() - self.unknown_categories().len()
    }

    /// How many the file has.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    fn labels_that(&self, keep: impl Fn(Option<i64>) -> bool) -> impl Iterator<Item = &'a String> {
        let labels = self.labels.iter().zip(&self.ids);
        labels
            .filter(move |(_, id)| keep(**id))
            .map(|(label, _)| label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn categories(all: &[(i64, &str)]) -> Vec<Category> {
        all.iter()
            .map(|(id, name)| Category {
                id: *id,
                name: (*name).to_owned(),
            })
            .collect()
    }

    fn labels(all: &[&str]) -> Vec<String> {
        all.iter().map(|label| (*label).to_owned()).collect()
    }

    #[test]
    fn names_go_before_ids_and_what_has_no_name_in_common_is_told_not_guessed() {
        // By id "tv" would be a "cat".
        let all = categories(&[(1, "cat"), (17, "dog"), (2, "cup")]);
        let labels = labels(&["dog", "tv", "cup"]);
        let matched = Categories::new(&all, &labels).unwrap();
        assert_eq!(matched.rule, Rule::Name);
        let ids: Vec<_> = (0..4).map(|class| matched.of(class)).collect();
        assert_eq!(ids, [Some(17), None, Some(2), None]);
        assert_eq!(matched.wanted(), ["dog", "cup"]);
        assert_eq!(matched.unknown_labels(), ["tv"]);
        assert_eq!(matched.unknown_categories()[0].name, "cat");
        assert_eq!((matched.known(), matched.count()), (2, 3));
    }

    #[test]
    fn without_a_name_in_common_an_id_is_a_row() {
        let all = categories(&[(0, "Katze"), (1, "Hund")]);
        let labels = labels(&["cat", "dog"]);
        let matched = Categories::new(&all, &labels).unwrap();
        assert_eq!(matched.rule, Rule::Id);
        assert_eq!((matched.of(0), matched.of(1)), (Some(0), Some(1)));
        // All are wanted, and the request need not name them.
        assert!(matched.wanted().is_empty());
    }

    #[test]
    fn where_nothing_matches_there_is_nothing_to_measure() {
        assert!(Categories::new(&categories(&[(5, "Katze")]), &labels(&["cat"])).is_none());
    }
}
