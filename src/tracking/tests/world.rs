//! [`World`]: objects that move, and a detector that sees them as detectors do.
//!
//! Objects have a depth: what a nearer one hides is seen with a lower score, and what it hides for the most part is
//! not seen at all, as suppression would have it. A detector's boxes tremble, its scores too; it misses some
//! and makes some up.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::vision::{BoundingBox, ClassId, ScoredBox};

pub(super) const WIDTH: f64 = 1920.0;
pub(super) const HEIGHT: f64 = 1080.0;

/// Numbers from a seed.
#[derive(Debug)]
pub(super) struct Random(Pcg64);

/// An object as it is.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) class: u32,
    /// Its centre and how far that moves in a frame.
    pub(super) at: [f64; 2],
    pub(super) velocity: [f64; 2],
    pub(super) size: [f64; 2],
    /// By what part a frame makes it larger.
    pub(super) growth: f64,
    /// How sure a detector is of it when nothing hides it.
    pub(super) score: f64,
}

/// How a detector errs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detector {
    /// The deviation of an edge, as a part of the box's side.
    pub(super) tremble: f64,
    /// The part of boxes that it misses.
    pub(super) misses: f64,
    /// Boxes a frame, on average, that show nothing.
    pub(super) clutter: f64,
}

/// A box, and the object that it shows.
pub(super) type Sighting = (Option<usize>, ScoredBox);

/// A frame: how far after the last one, and what is detected in it.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) steps: u32,
    pub(super) boxes: Vec<Sighting>,
}

// === impl Random ===

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x7261_636b))
    }

    /// From `low` up to `high`.
    pub(super) fn within(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        low + unit * (high - low)
    }

    pub(super) fn chance(&mut self, of: f64) -> bool {
        self.within(0.0, 1.0) < of
    }

    /// With mean 0 and deviation 1.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.within(0.0, 1.0)).ln()).sqrt();
        radius * self.within(0.0, std::f64::consts::TAU).cos()
    }
}

// === impl Object ===

impl Object {
    /// A person of this height walks here.
    pub(super) fn person(at: [f64; 2], velocity: [f64; 2], height: f64) -> Self {
        Self {
            class: 0,
            at,
            velocity,
            size: [0.4 * height, height],
            growth: 0.0,
            score: 0.85,
        }
    }

    /// A car of this height drives here.
    pub(super) fn car(at: [f64; 2], velocity: [f64; 2], height: f64) -> Self {
        Self {
            class: 2,
            size: [2.2 * height, height],
            ..Self::person(at, velocity, height)
        }
    }

    pub(super) fn step(&mut self) {
        for axis in 0..2 {
            self.at[axis] += self.velocity[axis];
            self.size[axis] *= 1.0 + self.growth;
        }
    }

    /// Its velocity changes by this part of its height.
    pub(super) fn wander(&mut self, part: f64, random: &mut Random) {
        for axis in 0..2 {
            self.velocity[axis] += part * self.size[1] * random.normal();
        }
    }

    /// It turns where the picture ends.
    pub(super) fn stay_inside(&mut self) {
        for (axis, side) in [WIDTH, HEIGHT].into_iter().enumerate() {
            let margin = self.size[axis] / 2.0;
            let outside = self.at[axis] < margin || self.at[axis] > side - margin;
            if outside && (self.at[axis] - side / 2.0) * self.velocity[axis] > 0.0 {
                self.velocity[axis] = -self.velocity[axis];
            }
        }
    }

    pub(super) fn bbox(&self) -> BoundingBox {
        let [x, y] = self.at;
        let [width, height] = self.size;
        let edges = [
            x - width / 2.0,
            y - height / 2.0,
            x + width / 2.0,
            y + height / 2.0,
        ];
        let [x_min, y_min, x_max, y_max] = edges.map(|edge| edge as f32);
        BoundingBox::new(x_min, y_min, x_max, y_max)
    }
}

// === impl Detector ===

impl Detector {
    pub(super) const GOOD: Self = Self {
        tremble: 0.015,
        misses: 0.0,
        clutter: 0.0,
    };

    /// Below this part in sight an object is not seen.
    const LEAST_VISIBLE: f64 = 0.35;
    /// Below this its score falls.
    const ALL_BUT_VISIBLE: f64 = 0.8;

    /// What is seen of `objects`, the nearest last, where `hidden` does not say that something in front hides one.
    pub(super) fn look(
        &self,
        objects: &[Object],
        hidden: impl Fn(usize) -> bool,
        random: &mut Random,
    ) -> Vec<Sighting> {
        let mut seen = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            let bbox = object.bbox();
            let visible = objects[index + 1..]
                .iter()
                .map(|nearer| 1.0 - covered(&bbox, &nearer.bbox()))
                .fold(1.0, f64::min);
            // The same numbers are drawn whether it is seen or not, so that one change leaves all else as it was.
            let bbox = self.trembling(&bbox, random);
            let fuzz = 0.04 * random.normal();
            let missed = random.chance(self.misses);
            if missed || hidden(index) || visible < Self::LEAST_VISIBLE {
                continue;
            }
            let faded = ((visible - 0.1) / (Self::ALL_BUT_VISIBLE - 0.1)).min(1.0);
            let score = (object.score * faded + fuzz).clamp(0.02, 0.99) as f32;
            let class = ClassId(object.class);
            seen.push((Some(index), ScoredBox { bbox, score, class }));
        }
        self.make_up(&mut seen, random);
        seen
    }

    fn trembling(&self, bbox: &BoundingBox, random: &mut Random) -> BoundingBox {
        let (width, height) = (f64::from(bbox.width()), f64::from(bbox.height()));
        let mut off = |edge: f32, side: f64| edge + (self.tremble * side * random.normal()) as f32;
        BoundingBox {
            x_min: off(bbox.x_min, width),
            y_min: off(bbox.y_min, height),
            x_max: off(bbox.x_max, width),
            y_max: off(bbox.y_max, height),
        }
    }

    /// Boxes that show nothing: anywhere, of any size, hardly ever sure.
    fn make_up(&self, seen: &mut Vec<Sighting>, random: &mut Random) {
        let count = (self.clutter + random.within(0.0, 1.0)) as usize;
        for _ in 0..count {
            let at = [random.within(0.0, WIDTH), random.within(0.0, HEIGHT)];
            let height = random.within(30.0, 200.0);
            let mut nothing = match random.chance(0.7) {
                true => Object::person(at, [0.0; 2], height),
                false => Object::car(at, [0.0; 2], height),
            };
            // A third of them is shown at 0.4.
            nothing.score = 0.1 + 0.6 * random.within(0.0, 1.0) * random.within(0.0, 1.0).sqrt();
            let made_up = ScoredBox {
                bbox: nothing.bbox(),
                score: nothing.score as f32,
                class: ClassId(nothing.class),
            };
            let suppressed = seen.iter().any(|(_, other)| {
                other.class == made_up.class && other.bbox.iou(&made_up.bbox) > 0.6
            });
            if !suppressed {
                seen.push((None, made_up));
            }
        }
    }
}

/// The part of `bbox` that lies behind `nearer`.
fn covered(bbox: &BoundingBox, nearer: &BoundingBox) -> f64 {
    let shared = bbox.clip_to(nearer).map_or(0.0, |shared| shared.area());
    f64::from(shared / bbox.area())
}
