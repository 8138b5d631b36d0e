//! The boxes that an SSD's boxes count from.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess};
use serde::{Deserialize, Deserializer};

use super::priors::PriorMaps;
use super::{BoxCoding, SsdSpec};
use crate::heads::HeadError;
use crate::heads::boxes::centered;
use crate::vision::{BoundingBox, ImageSize};

/// Most anchors that a network may have: some ten times those of the largest inputs in use.
pub const MAX_ANCHORS: usize = 1 << 20;

/// How a card gives anchors: `anchors = "anchors.npy"`, or a table `[head.anchors]` from which they are computed.
#[derive(Debug, Clone, PartialEq)]
pub enum AnchorSpec<F = AnchorTable> {
    /// By their numbers.
    Table(F),
    /// By the maps that they lie in.
    Maps(PriorMaps),
}

/// Anchors by their numbers: four each, in the order of the head's coding, from 0 to 1 over the network's input.
#[derive(Debug, Clone, PartialEq)]
pub struct AnchorTable(Arc<[[f32; 4]]>);

/// Anchors in pixels of the network's input, and how boxes count from them.
#[derive(Debug)]
pub(in crate::heads) struct Anchors {
    /// Centre (x, y), width, height.
    anchors: Vec<[f32; 4]>,
    variances: [f32; 2],
    coding: BoxCoding,
}

// === impl AnchorTable ===

impl AnchorTable {
    /// Takes numbers for anchors.
    ///
    /// # Errors
    /// [`HeadError::Anchors`] when there are none or too many, or when one is not finite or has no area.
    pub fn new(anchors: Vec<[f32; 4]>) -> Result<Self, HeadError> {
        let wrong = |what: String| Err(HeadError::Anchors(what));
        if anchors.is_empty() || anchors.len() > MAX_ANCHORS {
            return wrong(format!(
                "there are {}; from 1 to {MAX_ANCHORS} are allowed",
                anchors.len()
            ));
        }
        let sound = |anchor: &[f32; 4]| {
            let finite = anchor.iter().all(|number| number.is_finite());
            finite && anchor[2] > 0.0 && anchor[3] > 0.0
        };
        match anchors.iter().position(|anchor| !sound(anchor)) {
            None => Ok(Self(anchors.into())),
            Some(at) => wrong(format!("number {at}, {:?}, is no box", anchors[at])),
        }
    }

    /// The numbers.
    pub fn anchors(&self) -> &[[f32; 4]] {
        &self.0
    }
}

// === impl AnchorSpec ===

impl<F> AnchorSpec<F> {
    pub(super) fn resolve<E>(
        self,
        read: impl FnOnce(F) -> Result<AnchorTable, E>,
    ) -> Result<AnchorSpec, E> {
        Ok(match self {
            Self::Table(file) => AnchorSpec::Table(read(file)?),
            Self::Maps(maps) => AnchorSpec::Maps(maps),
        })
    }
}

/// A text names a file, a table describes maps.
impl<'de, F: Deserialize<'de>> Deserialize<'de> for AnchorSpec<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<F>(PhantomData<F>);
        impl<'de, F: Deserialize<'de>> de::Visitor<'de> for Visitor<F> {
            type Value = AnchorSpec<F>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a file with anchors, or a table of their maps")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                F::deserialize(name.into_deserializer()).map(AnchorSpec::Table)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                PriorMaps::deserialize(MapAccessDeserializer::new(map)).map(AnchorSpec::Maps)
            }
        }
        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

// === impl Anchors ===

impl Anchors {
    pub(super) fn new(spec: &SsdSpec, input: ImageSize) -> Result<Self, HeadError> {
        let (width, height) = (input.width as f32, input.height as f32);
        let in_pixels = |[x, y, w, h]: [f32; 4]| [x * width, y * height, w * width, h * height];
        let anchors = match &spec.anchors {
            AnchorSpec::Maps(maps) => maps.priors(input)?.into_iter().map(in_pixels).collect(),
            AnchorSpec::Table(table) => {
                let anchors = table.0.iter();
                anchors
                    .map(|&anchor| in_pixels(spec.coding.x_first(anchor)))
                    .collect()
            }
        };
        Ok(Self {
            anchors,
            variances: spec.variances.map(|variance| variance.get() as f32),
            coding: spec.coding,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.anchors.len()
    }

    /// The box that counts from anchor `index`. The numbers may be anything, and so may it.
    pub(in crate::heads) fn bbox(&self, index: usize, numbers: [f32; 4]) -> BoundingBox {
        let [x, y, width, height] = self.anchors[index];
        let [dx, dy, dw, dh] = self.coding.x_first(numbers);
        let [center, size] = self.variances;
        centered(
            x + dx * center * width,
            y + dy * center * height,
            width * (dw * size).exp(),
            height * (dh * size).exp(),
        )
    }
}
