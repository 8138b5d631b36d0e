//! [`BoxFilter`]: a Kalman filter over a box that moves and grows at a constant rate, but for noise.
//!
//! The state is the box's centre and sides, each with its rate of change a frame. As neither motion nor noise
//! couples the four, the filter of eight dimensions is four of two, which is the same to the last digit and
//! needs no matrices.

use crate::vision::BoundingBox;

/// How far off a measured edge or side is, as a part of the box's scale; and how far a frame can move one beyond
/// what its rate says.
const PLACE_NOISE: f64 = 1.0 / 20.0;
/// How much a rate changes in a frame, as a part of the box's scale. Twice the paper's: of a server's stream not every
/// frame is answered, and between those that are an object has more time to turn.
const RATE_NOISE: f64 = 1.0 / 80.0;
/// How fast an object may be when it is first seen, likewise.
const FIRST_RATE_NOISE: f64 = 1.0 / 16.0;
/// Beyond that many frames nothing of a motion is left, and the variances would outgrow their precision.
const FURTHEST: u32 = 1000;

/// What is believed of one box. In pixels and frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BoxFilter {
    center_x: Axis,
    center_y: Axis,
    width: Axis,
    height: Axis,
}

/// A number, its rate of change, and their covariance. Double precision: edges of any box that a float can hold,
/// squared, stay finite.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    value: f64,
    rate: f64,
    value_variance: f64,
    covariance: f64,
    rate_variance: f64,
}

// === impl BoxFilter ===

impl BoxFilter {
    /// Begins with one box, of which the motion is unknown.
    pub(super) fn new(bbox: &BoundingBox) -> Self {
        let [x, y, width, height] = measured(bbox);
        let scale = scale(width, height);
        let axis = |value| Axis {
            value,
            rate: 0.0,
            value_variance: square(2.0 * PLACE_NOISE * scale),
            covariance: 0.0,
            rate_variance: square(FIRST_RATE_NOISE * scale),
        };
        Self {
            center_x: axis(x),
            center_y: axis(y),
            width: axis(width),
            height: axis(height),
        }
    }

    /// Moves on by `frames`, all with the noise of the box as it is now.
    pub(super) fn predict(&mut self, frames: u32) {
        let frames = f64::from(frames.min(FURTHEST));
        let scale = scale(self.width.value, self.height.value);
        for axis in self.axes() {
            axis.predict(frames, scale);
        }
    }

    /// Takes in that the box was seen here.
    pub(super) fn correct(&mut self, seen: &BoundingBox) {
        let variance = square(PLACE_NOISE * scale(self.width.value, self.height.value));
        for (axis, value) in self.axes().into_iter().zip(measured(seen)) {
            axis.correct(value, variance);
        }
    }

    /// Lets the box keep its size from here on: a rate of growth seen once makes giants of what is not seen again.
    pub(super) fn hold_size(&mut self) {
        self.width.rate = 0.0;
        self.height.rate = 0.0;
    }

    /// Where the box is believed to be. Edges too far for a float are infinite and overlap nothing.
    pub(super) fn bbox(&self) -> BoundingBox {
        let (x, y) = (self.center_x.value, self.center_y.value);
        let half_width = self.width.value.max(0.0) / 2.0;
        let half_height = self.height.value.max(0.0) / 2.0;
        BoundingBox::new(
            (x - half_width) as f32,
            (y - half_height) as f32,
            (x + half_width) as f32,
            (y + half_height) as f32,
        )
    }

    fn axes(&mut self) -> [&mut Axis; 4] {
        [
            &mut self.center_x,
            &mut self.center_y,
            &mut self.width,
            &mut self.height,
        ]
    }
}

fn measured(bbox: &BoundingBox) -> [f64; 4] {
    let [x_min, y_min, x_max, y_max] =
        [bbox.x_min, bbox.y_min, bbox.x_max, bbox.y_max].map(f64::from);
    [
        f64::midpoint(x_min, x_max),
        f64::midpoint(y_min, y_max),
        x_max - x_min,
        y_max - y_min,
    ]
}

/// What noise is measured by: the side of the square of the same area, so that lying and standing objects are
/// alike. At least a pixel, below which no detector is right.
fn scale(width: f64, height: f64) -> f64 {
    (width.max(1.0) * height.max(1.0)).sqrt()
}

fn square(value: f64) -> f64 {
    value * value
}

// === impl Axis ===

impl Axis {
    /// `frames` single steps at once: the noise that a rate takes up in one of them moves the value in all later ones.
    fn predict(&mut self, frames: f64, scale: f64) {
        let value_noise = square(PLACE_NOISE * scale);
        let rate_noise = square(RATE_NOISE * scale);
        // 0 + 1 + ... + (frames - 1), and the same of their squares.
        let sum = frames * (frames - 1.0) / 2.0;
        let sum_of_squares = sum * (2.0 * frames - 1.0) / 3.0;

        self.value += frames * self.rate;
        self.value_variance += 2.0 * frames * self.covariance
            + square(frames) * self.rate_variance
            + frames * value_noise
            + sum_of_squares * rate_noise;
        self.covariance += frames * self.rate_variance + sum * rate_noise;
        self.rate_variance += frames * rate_noise;
    }

    fn correct(&mut self, seen: f64, variance: f64) {
        let total = self.value_variance + variance;
        let value_gain = self.value_variance / total;
        let rate_gain = self.covariance / total;
        let surprise = seen - self.value;

        self.value += value_gain * surprise;
        self.rate += rate_gain * surprise;
        self.rate_variance -= rate_gain * self.covariance;
        self.covariance *= 1.0 - value_gain;
        self.value_variance *= 1.0 - value_gain;
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A step of `tests/golden/make_tracking.py`: the state by its own matrices.
    #[derive(Deserialize)]
    struct Step {
        frames: u32,
        seen: Option<[f32; 4]>,
        /// Centre, sides, and the rates of these.
        state: [f64; 8],
        /// Of the centre's x: value, value with rate, rate.
        covariance_x: [f64; 3],
        /// Of the height likewise.
        covariance_height: [f64; 3],
    }

    fn near(got: f64, expected: f64) -> bool {
        (got - expected).abs() <= 1e-4 * expected.abs().max(1.0)
    }

    #[test]
    fn a_sequence_is_that_of_the_whole_matrices() {
        let text = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/golden/tracking.json"
        ));
        let sequences: Vec<Vec<Step>> = serde_json::from_str(text).unwrap();
        for steps in sequences {
            let mut filter: Option<BoxFilter> = None;
            for (number, step) in steps.iter().enumerate() {
                let seen = step.seen.map(|[x_min, y_min, x_max, y_max]| {
                    BoundingBox::new(x_min, y_min, x_max, y_max)
                });
                match &mut filter {
                    None => filter = Some(BoxFilter::new(&seen.unwrap())),
                    Some(filter) => {
                        filter.predict(step.frames);
                        if let Some(seen) = seen {
                            filter.correct(&seen);
                        }
                    }
                }
                let filter = &mut filter.unwrap();
                let covariance =
                    |axis: &Axis| [axis.value_variance, axis.covariance, axis.rate_variance];
                let got = [
                    filter.axes().map(|axis| axis.value).to_vec(),
                    filter.axes().map(|axis| axis.rate).to_vec(),
                    covariance(&filter.center_x).to_vec(),
                    covariance(&filter.height).to_vec(),
                ]
                .concat();
                let expected =
                    [&step.state[..], &step.covariance_x, &step.covariance_height].concat();
                for (index, (got, expected)) in got.into_iter().zip(expected).enumerate() {
                    assert!(
                        near(got, expected),
                        "step {number}, {index}: {got} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_box_that_moves_steadily_is_expected_where_it_will_be() {
        let at = |frame: f32| {
            BoundingBox::new(
                5.0 * frame,
                3.0 * frame,
                5.0 * frame + 40.0,
                3.0 * frame + 80.0,
            )
        };
        let mut filter = BoxFilter::new(&at(0.0));
        for frame in 1..60 {
            filter.predict(1);
            filter.correct(&at(frame as f32));
        }
        filter.predict(20);
        assert!(filter.bbox().iou(&at(79.0)) > 0.95);
    }

    #[test]
    fn frames_at_once_are_as_good_as_one_by_one() {
        let mut one_by_one = BoxFilter::new(&BoundingBox::new(0.0, 0.0, 50.0, 50.0));
        one_by_one.predict(1);
        // No growth, so that the noise of each frame is the same.
        one_by_one.correct(&BoundingBox::new(4.0, 2.0, 54.0, 52.0));
        let mut at_once = one_by_one;
        at_once.predict(7);
        (0..7).for_each(|_| one_by_one.predict(1));
        for (a, b) in one_by_one.axes().into_iter().zip(at_once.axes()) {
            assert!(near(a.value, b.value) && near(a.value_variance, b.value_variance));
            assert!(near(a.covariance, b.covariance) && near(a.rate_variance, b.rate_variance));
        }
    }

    #[test]
    fn what_shrinks_away_has_no_area_but_numbers() {
        let mut filter = BoxFilter::new(&BoundingBox::new(0.0, 0.0, 100.0, 100.0));
        for side in [50.0, 5.0, 0.5] {
            filter.predict(1);
            filter.correct(&BoundingBox::new(0.0, 0.0, side, side));
        }
        filter.predict(u32::MAX);
        assert_eq!(filter.bbox().area(), 0.0);
        filter.correct(&BoundingBox::new(0.0, 0.0, 10.0, 10.0));
        assert!(filter.axes().iter().all(|axis| axis.value.is_finite()));
    }
}
