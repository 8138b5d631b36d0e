//! Which boxes of one category in one picture are right: COCO's rules for who is whose.

use super::coco::{Found, Object};

/// So many boxes of a category count in a picture, the surest.
const MOST: usize = 100;

/// Objects of such a size are counted, both bounds included; others are neither to be found nor wrong to find.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// What a box that was found is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Wrong,
    /// It lies on what is not counted, or is itself of a size that is not.
    Void,
}

/// One category in one picture: what there is, and what was found, by falling score.
#[derive(Debug)]
pub(super) struct Sheet<'a> {
    objects: Vec<&'a Object>,
    found: Vec<&'a Found>,
    /// A row for each box that was found, with a number for each object.
    overlaps: Vec<f64>,
}

// === impl Area ===

impl Area {
    fn holds(self, area: f64) -> bool {
        (self.from..=self.to).contains(&area)
    }

    fn counts(self, object: &Object) -> bool {
        !object.crowd() && self.holds(object.area())
    }
}

// === impl Sheet ===

impl<'a> Sheet<'a> {
    pub(super) fn new(objects: Vec<&'a Object>, mut found: Vec<&'a Found>) -> Self {
        // Stable: of equal scores the earlier in the file comes first.
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(MOST);
        let overlaps = found
            .iter()
            .flat_map(|box_| objects.iter().map(|object| overlap(&box_.bbox, object)))
            .collect();
        Self {
            objects,
            found,
            overlaps,
        }
    }

    /// How many there are to find.
    pub(super) fn counted(&self, area: Area) -> usize {
        let counted = self.objects.iter().filter(|object| area.counts(object));
        counted.count()
    }

    /// Each box's score and verdict, by falling score, when a box has to overlap its object by `at_least`.
    pub(super) fn judge(&self, area: Area, at_least: f64) -> Vec<(f64, Verdict)> {
        let mut taken = vec![false; self.objects.len()];
        let judged = self.found.iter().enumerate().map(|(row, found)| {
            // What counts goes first, even if something else is overlapped more.
            let own = self
                .best(row, at_least, &taken, |object| area.counts(object))
                .or_else(|| self.best(row, at_least, &taken, |object| !area.counts(object)));
            let [_, _, width, height] = found.bbox;
            let verdict = match own {
                Some(own) => {
                    taken[own] = true;
                    match area.counts(self.objects[own]) {
                        true => Verdict::Right,
                        false => Verdict::Void,
                    }
                }
                None if area.holds(width * height) => Verdict::Wrong,
                None => Verdict::Void,
            };
            (found.score, verdict)
        });
        judged.collect()
    }

    /// The object that a box overlaps most, of those that are of the right sort and still to be had; of equals the last.
    fn best(
        &self,
        row: usize,
        at_least: f64,
        taken: &[bool],
        sort: impl Fn(&Object) -> bool,
    ) -> Option<usize> {
        let overlaps = &self.overlaps[row * self.objects.len()..];
        let candidates = self.objects.iter().zip(taken).zip(overlaps).enumerate();
        candidates
            // A crowd has room for any number.
            .filter(|(_, ((object, taken), _))| sort(object) && (object.crowd() || !**taken))
            .filter(|(_, (_, overlap))| **overlap >= at_least)
            .max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b))
            .map(|(index, _)| index)
    }
}

/// Intersection over union; over the box itself where the object is a crowd, of which it need be but a part.
fn overlap(found: &[f64; 4], object: &Object) -> f64 {
    let ([ax, ay, aw, ah], [bx, by, bw, bh]) = (*found, object.bbox);
    let width = (ax + aw).min(bx + bw) - ax.max(bx);
    let height = (ay + ah).min(by + bh) - ay.max(by);
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let shared = width * height;
    let all = match object.crowd() {
        true => aw * ah,
        false => aw * ah + bw * bh - shared,
    };
    shared / all
}
