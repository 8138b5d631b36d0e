//! [`Associator`]: matches boxes with the places at which objects are expected.

use super::assignment::{Edge, Matcher};
use crate::vision::{BoundingBox, ClassId};

/// A box, or where an object is expected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number of the box or object among its like.
    pub(super) index: usize,
    pub(super) class: ClassId,
    pub(super) bbox: BoundingBox,
    /// How much of an overlap with it counts, in `[0, 1]`.
    pub(super) worth: f32,
}

/// Matches boxes with objects of their class so that the overlap, in sum, is the largest.
#[derive(Debug, Default)]
pub(super) struct Associator {
    matcher: Matcher,
    graph: OverlapGraph,
}

/// For each box the objects that it overlaps enough.
#[derive(Debug, Default)]
struct OverlapGraph {
    edges: Vec<Edge>,
    /// Where in `edges` a box's begin; one more than there are boxes.
    starts: Vec<usize>,
    /// Those of the box at hand.
    row: Vec<Edge>,
}

// === impl Associator ===

impl Associator {
    /// Matches `boxes` with `objects` where they overlap by `least` or more; what was matched leaves both.
    ///
    /// What counts of an overlap is how far it is above `least`: two matches that just pass do not outweigh a good
    /// one. `objects` are put into another order.
    pub(super) fn associate(
        &mut self,
        boxes: &mut Vec<Place>,
        objects: &mut Vec<Place>,
        least: f32,
        mut matched: impl FnMut(&Place, &Place),
    ) {
        self.graph.connect(boxes, objects, least);
        let graph = &self.graph;
        let object_of = self
            .matcher
            .solve(boxes.len(), objects.len(), |row| graph.of(row));

        let mut left = Vec::with_capacity(boxes.len());
        let mut taken = vec![false; objects.len()];
        for (seen, object) in boxes.iter().zip(object_of) {
            match *object {
                Some(object) => {
                    taken[object] = true;
                    matched(seen, &objects[object]);
                }
                None => left.push(*seen),
            }
        }
        *boxes = left;
        let mut taken = taken.into_iter();
        objects.retain(|_| taken.next() == Some(false));
    }
}

// === impl OverlapGraph ===

impl OverlapGraph {
    /// How many objects a box may choose among, those that it overlaps most. Boxes of a class hardly overlap after
    /// suppression, so few can overlap one; where they were not suppressed, this bounds the work.
    const CHOICES: usize = 32;

    /// Sorts `objects`, whose order is that of the columns from then on.
    fn connect(&mut self, boxes: &[Place], objects: &mut [Place], least: f32) {
        let least = least.max(0.0);
        // By class, then from left to right: of a class only those that begin left of a box's end can touch it.
        objects.sort_unstable_by(|a, b| {
            a.class
                .cmp(&b.class)
                .then(a.bbox.x_min.total_cmp(&b.bbox.x_min))
                .then(a.index.cmp(&b.index))
        });
        self.edges.clear();
        self.starts.clear();
        self.starts.push(0);
        for seen in boxes {
            let begin = objects.partition_point(|object| object.class < seen.class);
            self.row.clear();
            for (column, object) in objects.iter().enumerate().skip(begin) {
                if object.class != seen.class || object.bbox.x_min >= seen.bbox.x_max {
                    break;
                }
                self.row.extend(edge(column, object, seen, least));
            }
            if self.row.len() > Self::CHOICES {
                self.row.select_nth_unstable_by(Self::CHOICES, |a, b| {
                    b.weight.cmp(&a.weight).then(a.column.cmp(&b.column))
                });
                self.row.truncate(Self::CHOICES);
                self.row.sort_unstable_by_key(|edge| edge.column);
            }
            self.edges.append(&mut self.row);
            self.starts.push(self.edges.len());
        }
    }

    fn of(&self, row: usize) -> &[Edge] {
        &self.edges[self.starts[row]..self.starts[row + 1]]
    }
}

fn edge(column: usize, object: &Place, seen: &Place, least: f32) -> Option<Edge> {
    let (a, b) = (&object.bbox, &seen.bbox);
    let apart = a.x_max <= b.x_min || a.y_max <= b.y_min || b.y_max <= a.y_min;
    if apart {
        return None;
    }
    let overlap = a.iou(b);
    (overlap > 0.0 && overlap >= least).then(|| {
        // Overlaps are told apart to a billionth; one that just passes is worth something too.
        const ONE: f32 = (1u32 << 30) as f32;
        let weight = (object.worth * (overlap - least) * ONE) as i64 + 1;
        Edge { weight, column }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: usize, class: u32, x: f32) -> Place {
        Place {
            index,
            class: ClassId(class),
            bbox: BoundingBox::new(x, 0.0, x + 10.0, 10.0),
            worth: 1.0,
        }
    }

    fn pairs(boxes: &mut Vec<Place>, objects: &mut Vec<Place>, least: f32) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let mut associator = Associator::default();
        associator.associate(boxes, objects, least, |seen, object| {
            pairs.push((seen.index, object.index));
        });
        pairs
    }

    #[test]
    fn each_box_goes_to_the_object_that_it_covers_and_the_rest_is_left() {
        let mut boxes = vec![place(0, 1, 101.0), place(1, 1, 50.0), place(2, 1, 1.0)];
        let mut objects = vec![place(0, 1, 0.0), place(1, 1, 100.0), place(2, 1, 200.0)];
        assert_eq!(pairs(&mut boxes, &mut objects, 0.2), [(0, 1), (2, 0)]);
        let left = |places: &[Place]| places.iter().map(|place| place.index).collect::<Vec<_>>();
        assert_eq!((left(&boxes), left(&objects)), (vec![1], vec![2]));
    }

    #[test]
    fn other_classes_are_not_matched() {
        let mut boxes = vec![place(0, 1, 0.0), place(1, 3, 0.0)];
        let mut objects = vec![place(0, 2, 0.0), place(1, 3, 1.0)];
        assert_eq!(pairs(&mut boxes, &mut objects, 0.2), [(1, 1)]);
    }

    #[test]
    fn of_two_objects_that_it_covers_alike_a_box_shows_the_one_worth_more() {
        let worth = |worth, at| Place {
            worth,
            ..place(at, 1, 0.0)
        };
        let mut objects = vec![worth(0.9, 0), worth(1.0, 1), worth(0.9, 2)];
        let found = pairs(&mut vec![place(0, 1, 1.0)], &mut objects, 0.2);
        assert_eq!(found, [(0, 1)]);
    }

    #[test]
    fn an_overlap_of_just_the_least_is_enough() {
        // A third.
        for (least, matches) in [(0.3333, 1), (0.3334, 0)] {
            let found = pairs(
                &mut vec![place(0, 1, 5.0)],
                &mut vec![place(0, 1, 0.0)],
                least,
            );
            assert_eq!(found.len(), matches);
        }
        // Touching is not overlapping, whatever is asked for.
        for least in [0.0, -1.0] {
            let found = pairs(
                &mut vec![place(0, 1, 10.0)],
                &mut vec![place(0, 1, 0.0)],
                least,
            );
            assert_eq!(found, []);
        }
    }

    #[test]
    fn all_pairs_are_found_however_the_places_lie() {
        let boxes: Vec<_> = (0..40)
            .map(|n| place(n, 0, ((n * 17) % 40) as f32))
            .collect();
        let mut objects: Vec<_> = (0..40)
            .map(|n| place(n, 0, ((n * 23) % 40) as f32))
            .collect();
        let mut graph = OverlapGraph::default();
        graph.connect(&boxes, &mut objects, 0.1);
        for (row, seen) in boxes.iter().enumerate() {
            let columns: Vec<_> = graph.of(row).iter().map(|edge| edge.column).collect();
            let near = |object: &&Place| object.bbox.iou(&seen.bbox) >= 0.1;
            let expected = objects.iter().filter(near).count();
            assert_eq!(columns.len(), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_box_chooses_among_those_that_it_overlaps_most() {
        let boxes = [place(0, 0, 0.0)];
        let mut objects: Vec<_> = (0..100).map(|n| place(n, 0, n as f32 / 20.0)).collect();
        let mut graph = OverlapGraph::default();
        graph.connect(&boxes, &mut objects, 0.1);
        let columns: Vec<_> = graph.of(0).iter().map(|edge| edge.column).collect();
        assert_eq!(columns, (0..OverlapGraph::CHOICES).collect::<Vec<_>>());
    }
}
