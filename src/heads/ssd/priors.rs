//! Anchors that are computed: boxes of a few sizes and shapes about the centre of every cell of a few maps.

use serde::Deserialize;

use super::MAX_ANCHORS;
use crate::heads::HeadError;
use crate::vision::ImageSize;

/// The maps, in the order of the network's anchors.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorMaps {
    /// The maps.
    pub maps: Vec<PriorMap>,
    /// Whether an anchor's centre and size are cut to 0 and 1.
    #[serde(default)]
    pub clip: bool,
}

/// One map: a grid of cells, row by row, each with the same boxes about its centre.
///
/// For each of `min_sizes`: the square of that side; the square between it and its `max_sizes`, if there are; and for
/// each of `aspect_ratios` the box of the first one's area that is so many times as wide as it is high, and the one
/// that is so many times as high.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorMap {
    /// Cells across and down.
    pub cells: [u32; 2],
    /// From a cell to the next, in pixels of the network's input; unset = so that the cells fill it.
    pub step: Option<Positive>,
    /// Sides in pixels of the network's input.
    pub min_sizes: Vec<Positive>,
    /// As many, or none.
    #[serde(default)]
    pub max_sizes: Vec<Positive>,
    /// Width to height.
    #[serde(default)]
    pub aspect_ratios: Vec<Positive>,
}

/// A number above zero.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Positive(f64);

// === impl Positive ===

impl Positive {
    pub(super) const TENTH: Self = Self(0.1);
    pub(super) const FIFTH: Self = Self(0.2);

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Positive {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number > 0.0 && number.is_finite() {
            true => Ok(Self(number)),
            false => Err(format!("{number} is not above zero")),
        }
    }
}

// === impl PriorMaps ===

impl PriorMaps {
    /// All anchors, as centre (x, y), width and height from 0 to 1 over the network's input.
    ///
    /// # Errors
    /// [`HeadError::Anchors`] when there are none or too many, or `max_sizes` are not as many as `min_sizes`.
    pub(super) fn priors(&self, input: ImageSize) -> Result<Vec<[f32; 4]>, HeadError> {
        let wrong = |what: String| Err(HeadError::Anchors(what));
        if let Some(map) = self
            .maps
            .iter()
            .find(|map| !map.max_sizes.is_empty() && map.max_sizes.len() != map.min_sizes.len())
        {
            return wrong(format!(
                "a map has {} `min_sizes` and {} `max_sizes`",
                map.min_sizes.len(),
                map.max_sizes.len()
            ));
        }
        let counts = self.maps.iter().map(PriorMap::len);
        let count = counts.fold(0, u64::saturating_add);
        if count == 0 || count > MAX_ANCHORS as u64 {
            return wrong(format!(
                "the maps give {count}; from 1 to {MAX_ANCHORS} are allowed"
            ));
        }
        let mut priors = Vec::with_capacity(count as usize);
        for map in &self.maps {
            map.push_priors(input, &mut priors);
        }
        if self.clip {
            let numbers = priors.as_flattened_mut().iter_mut();
            numbers.for_each(|number| *number = number.clamp(0.0, 1.0));
        }
        Ok(priors)
    }
}

// === impl PriorMap ===

impl PriorMap {
    fn len(&self) -> u64 {
        let of_one =
            1 + u64::from(!self.max_sizes.is_empty()) + 2 * self.aspect_ratios.len() as u64;
        let boxes = of_one.saturating_mul(self.min_sizes.len() as u64);
        let cells = u64::from(self.cells[0]) * u64::from(self.cells[1]);
        cells.saturating_mul(boxes)
    }

    fn push_priors(&self, input: ImageSize, priors: &mut Vec<[f32; 4]>) {
        let (width, height) = (f64::from(input.width), f64::from(input.height));
        let sizes = self.sizes();
        let step = |side: f64, cells: u32| self.step.map_or(side / f64::from(cells), Positive::get);
        let [across, down] = self.cells;
        let (step_x, step_y) = (step(width, across), step(height, down));
        for row in 0..down {
            let y = (f64::from(row) + 0.5) * step_y / height;
            for column in 0..across {
                let x = (f64::from(column) + 0.5) * step_x / width;
                let prior = |[w, h]: &[f64; 2]| [x, y, w / width, h / height].map(|n| n as f32);
                priors.extend(sizes.iter().map(prior));
            }
        }
    }

    /// Width and height of a cell's boxes in pixels.
    fn sizes(&self) -> Vec<[f64; 2]> {
        let mut sizes = Vec::new();
        for (index, min) in self.min_sizes.iter().enumerate() {
            let min = min.get();
            sizes.push([min; 2]);
            if let Some(max) = self.max_sizes.get(index) {
                sizes.push([(min * max.get()).sqrt(); 2]);
            }
            for ratio in &self.aspect_ratios {
                let root = ratio.get().sqrt();
                sizes.push([min * root, min / root]);
                sizes.push([min / root, min * root]);
            }
        }
        sizes
    }
}
