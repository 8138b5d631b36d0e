//! COCO's average precision and recall: arithmetic, and nothing else.

use std::collections::BTreeMap;

use serde::Serialize;

use super::coco::{Found, Object, Truth};
use super::matching::{Area, Sheet, Verdict};

/// Overlaps from 0.50 to 0.95 in steps of 0.05.
const OVERLAPS: usize = 10;

/// Recalls from 0 to 1 in steps of 0.01, at which the precision is read.
const RECALLS: usize = 101;

/// Sides of 32 and 96 pixels are COCO's bounds.
const ALL: Area = area(0.0, 1e5);
const SMALL: Area = area(0.0, 32.0);
const MEDIUM: Area = area(32.0, 96.0);
const LARGE: Area = area(96.0, 1e5);

/// What there is and what was found, of one category in one picture.
type Cell<'a> = (Vec<&'a Object>, Vec<&'a Found>);

/// A model's marks, 0 to 1; none where there is nothing to find.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Scores {
    /// Average precision over all overlaps.
    pub(super) ap: Option<f64>,
    /// At an overlap of 0.50.
    pub(super) ap50: Option<f64>,
    /// At an overlap of 0.75.
    pub(super) ap75: Option<f64>,
    /// Of objects of less than 32 x 32 pixels.
    pub(super) ap_small: Option<f64>,
    /// Of objects between.
    pub(super) ap_medium: Option<f64>,
    /// Of objects of more than 96 x 96 pixels.
    pub(super) ap_large: Option<f64>,
    /// Average recall with 100 boxes a picture.
    pub(super) ar100: Option<f64>,
}

/// One category at one overlap: the mean precision over all recalls, and the recall in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    precision: f64,
    recall: f64,
}

// === impl Scores ===

impl Scores {
    /// Compares what was found with what there is.
    pub(super) fn new(truth: &Truth, found: &[Found]) -> Self {
        let categories = sheets(truth, found);
        let curves = |area| -> Vec<[Curve; OVERLAPS]> {
            let curves = categories
                .values()
                .filter_map(|sheets| curves(sheets, area));
            curves.collect()
        };
        let all = curves(ALL);
        let precision = |curves: &[[Curve; OVERLAPS]]| {
            mean(curves.iter().flatten().map(|curve| curve.precision))
        };
        // The sixth of the overlaps is 0.75.
        let at = |overlap: usize| mean(all.iter().map(|curves| curves[overlap].precision));
        Self {
            ap: precision(&all),
            ap50: at(0),
            ap75: at(5),
            ap_small: precision(&curves(SMALL)),
            ap_medium: precision(&curves(MEDIUM)),
            ap_large: precision(&curves(LARGE)),
            ar100: mean(all.iter().flatten().map(|curve| curve.recall)),
        }
    }
}

const fn area(from_side: f64, to_side: f64) -> Area {
    Area {
        from: from_side * from_side,
        to: to_side * to_side,
    }
}

/// By category; in each the pictures that have something to compare, by id.
fn sheets<'a>(truth: &'a Truth, found: &'a [Found]) -> BTreeMap<i64, Vec<Sheet<'a>>> {
    let mut cells: BTreeMap<(i64, i64), Cell<'_>> = BTreeMap::new();
    for object in &truth.objects {
        let cell = cells.entry((object.category_id, object.image_id));
        cell.or_default().0.push(object);
    }
    for one in found {
        let cell = cells.entry((one.category_id, one.image_id));
        cell.or_default().1.push(one);
    }
    let mut categories: BTreeMap<i64, Vec<Sheet<'_>>> = BTreeMap::new();
    for ((category, _), (objects, found)) in cells {
        let sheets = categories.entry(category).or_default();
        sheets.push(Sheet::new(objects, found));
    }
    categories
}

/// Each overlap's, or none where there is nothing to find.
fn curves(sheets: &[Sheet<'_>], area: Area) -> Option<[Curve; OVERLAPS]> {
    let objects: usize = sheets.iter().map(|sheet| sheet.counted(area)).sum();
    (objects > 0).then(|| {
        std::array::from_fn(|step| {
            let at_least = (0.95 - 0.5) / (OVERLAPS - 1) as f64 * step as f64 + 0.5;
            let judged = sheets.iter().flat_map(|sheet| sheet.judge(area, at_least));
            curve(judged.collect(), objects)
        })
    })
}

/// How precision falls while recall rises, from the surest box to the least sure.
fn curve(mut judged: Vec<(f64, Verdict)>, objects: usize) -> Curve {
    judged.retain(|(_, verdict)| *verdict != Verdict::Void);
    // Stable: of equal scores the one in the earlier picture comes first.
    judged.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut right = 0.0;
    let mut points: Vec<Curve> = Vec::with_capacity(judged.len());
    for (place, (_, verdict)) in (1..).zip(&judged) {
        right += f64::from(u8::from(*verdict == Verdict::Right));
        points.push(Curve {
            precision: right / f64::from(place),
            recall: right / objects as f64,
        });
    }
    // Precision at a recall is the best at that recall or beyond.
    let mut best = 0.0;
    for point in points.iter_mut().rev() {
        best = point.precision.max(best);
        point.precision = best;
    }
    let read = (0..RECALLS).map(|step| {
        let recall = step as f64 * (1.0 / (RECALLS - 1) as f64);
        let reached = points.partition_point(|point| point.recall < recall);
        points.get(reached).map_or(0.0, |point| point.precision)
    });
    Curve {
        precision: read.sum::<f64>() / RECALLS as f64,
        recall: points.last().map_or(0.0, |point| point.recall),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
