//! [`Score`]: how well identities given agree with those that are known.

use std::collections::HashMap;

use crate::tracking::TrackId;
use crate::tracking::assignment::{Edge, Matcher};

/// Which object a shown box shows, and which identity it was given. None: none, of either.
pub(super) type Labelled = (Option<usize>, Option<TrackId>);

/// What is to be said of one or more streams.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Score {
    /// Boxes whose identity is that of their object.
    right: usize,
    /// Boxes that show an object.
    true_boxes: usize,
    /// Boxes that were given an identity.
    named_boxes: usize,
    /// How often the identity of an object was another than in its last box with one.
    pub(super) switches: usize,
}

// === impl Score ===

impl Score {
    /// Scores a stream, of which `frames` are the shown boxes.
    pub(super) fn of(frames: &[Vec<Labelled>]) -> Self {
        let boxes = || frames.iter().flatten();
        let mut together: HashMap<(usize, TrackId), i64> = HashMap::new();
        let mut last: HashMap<usize, TrackId> = HashMap::new();
        let mut switches = 0;
        for &labelled in boxes() {
            if let (Some(object), Some(track)) = labelled {
                *together.entry((object, track)).or_default() += 1;
                let before = last.insert(object, track);
                switches += usize::from(before.is_some_and(|before| before != track));
            }
        }
        Self {
            right: most_right(&together),
            true_boxes: boxes().filter(|(object, _)| object.is_some()).count(),
            named_boxes: boxes().filter(|(_, track)| track.is_some()).count(),
            switches,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.right += other.right;
        self.true_boxes += other.true_boxes;
        self.named_boxes += other.named_boxes;
        self.switches += other.switches;
    }

    /// IDF1 (Ristani et al., 2016) over the boxes that were there: a box that the detector missed is not held
    /// against a tracker, which names boxes and makes none.
    pub(super) fn idf1(&self) -> f64 {
        2.0 * self.right as f64 / (self.true_boxes + self.named_boxes) as f64
    }
}

/// Gives each object one identity so that most boxes have theirs right, and counts these.
fn most_right(together: &HashMap<(usize, TrackId), i64>) -> usize {
    let objects = together.keys().map(|(object, _)| object + 1).max();
    let tracks = together.keys().map(|(_, track)| track.get() as usize + 1);
    let tracks = tracks.max().unwrap_or(0);
    let mut graph = vec![Vec::new(); objects.unwrap_or(0)];
    for (&(object, track), &weight) in together {
        let column = track.get() as usize;
        graph[object].push(Edge { weight, column });
    }
    let mut matcher = Matcher::default();
    let matching = matcher.solve(graph.len(), tracks, |object| &graph[object]);
    let right = |(edges, column): (&Vec<Edge>, &Option<usize>)| {
        let edge = edges.iter().find(|edge| Some(edge.column) == *column);
        edge.map_or(0, |edge| edge.weight as usize)
    };
    graph.iter().zip(matching).map(right).sum()
}

#[test]
fn a_score_is_what_is_worked_out_by_hand() {
    let id = |number| {
        let mut id = TrackId::FIRST;
        (1..number).for_each(|_| id = id.next());
        Some(id)
    };
    // Object 0 is named 1, 1, 2; object 1 is 2, 2, none; one box of nothing is named 3.
    let frames = [
        vec![(Some(0), id(1)), (Some(1), id(2))],
        vec![(Some(0), id(1)), (Some(1), id(2)), (None, id(3))],
        vec![(Some(0), id(2)), (Some(1), None), (None, None)],
    ];
    let score = Score::of(&frames);
    // Six boxes of objects, six named ones, four rightly.
    assert_eq!(score.idf1(), 2.0 * 4.0 / (6.0 + 6.0));
    assert_eq!(score.switches, 1);
}
