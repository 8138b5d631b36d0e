//! COCO's two files: what there is in pictures (annotations), and what was found (results).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// What is to be found, in which pictures.
#[derive(Debug, Deserialize)]
pub(super) struct Truth {
    /// By id, which is the order in which equal scores count.
    #[serde(rename = "images")]
    pub(super) pictures: Vec<Picture>,
    #[serde(rename = "annotations")]
    pub(super) objects: Vec<Object>,
    pub(super) categories: Vec<Category>,
    /// Objects that were left out since the file has no such picture, or no such category.
    #[serde(skip)]
    pub(super) strays: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Picture {
    pub(super) id: i64,
    pub(super) file_name: String,
    pub(super) width: Option<u32>,
    pub(super) height: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Object {
    pub(super) image_id: i64,
    pub(super) category_id: i64,
    /// x, y, width, height.
    pub(super) bbox: [f64; 4],
    /// Of its outline, which is smaller than its box; the box's own where the file does not say.
    area: Option<f64>,
    /// Not one object but a region with too many of them to tell apart.
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Category {
    pub(super) id: i64,
    pub(super) name: String,
}

/// One box that was found.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
pub(super) struct Found {
    pub(super) image_id: i64,
    pub(super) category_id: i64,
    /// x, y, width, height.
    pub(super) bbox: [f64; 4],
    pub(super) score: f64,
}

// === impl Truth ===

impl Truth {
    /// Reads a file of annotations; of its pictures no more than `limit`, the first of them.
    pub(super) fn read(path: &Path, limit: Option<usize>) -> anyhow::Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, limit)
            .with_context(|| format!("{} is no file of COCO's object annotations", path.display()))
    }

    fn parse(text: &[u8], limit: Option<usize>) -> anyhow::Result<Self> {
        let mut truth: Self = serde_json::from_slice(text)?;
        if truth.pictures.is_empty() {
            bail!("it lists no picture");
        }
        let pictures = unique("pictures", truth.pictures.iter().map(|picture| picture.id))?;
        let categories = unique(
            "categories",
            truth.categories.iter().map(|category| category.id),
        )?;
        unique(
            "categories",
            truth.categories.iter().map(|category| &category.name),
        )?;
        let all = truth.objects.len();
        truth.objects.retain(|object| {
            pictures.contains(&object.image_id) && categories.contains(&object.category_id)
        });
        truth.strays = all - truth.objects.len();
        if let Some(limit) = limit.filter(|limit| *limit < truth.pictures.len()) {
            truth.pictures.truncate(limit);
            let kept: BTreeSet<i64> = truth.pictures.iter().map(|picture| picture.id).collect();
            truth
                .objects
                .retain(|object| kept.contains(&object.image_id));
        }
        truth.pictures.sort_by_key(|picture| picture.id);
        Ok(truth)
    }

    /// How many objects there are of each category; a crowd is none.
    pub(super) fn counts(&self) -> BTreeMap<i64, usize> {
        let mut counts = BTreeMap::new();
        for object in self.objects.iter().filter(|object| !object.crowd()) {
            *counts.entry(object.category_id).or_default() += 1;
        }
        counts
    }
}

// === impl Object ===

impl Object {
    pub(super) fn area(&self) -> f64 {
        let [_, _, width, height] = self.bbox;
        self.area.unwrap_or(width * height)
    }

    pub(super) fn crowd(&self) -> bool {
        self.iscrowd != 0
    }
}

/// What tells them apart, which has to.
fn unique<T: Ord + std::fmt::Display>(
    what: &str,
    keys: impl Iterator<Item = T>,
) -> anyhow::Result<BTreeSet<T>> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if seen.contains(&key) {
            bail!("two {what} are {key}");
        }
        seen.insert(key);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file() -> Value {
        json!({
            "images": [
                {"id": 9, "file_name": "nine.jpg", "width": 64, "height": 48},
                {"id": 4, "file_name": "four.jpg"},
            ],
            "annotations": [
                {"image_id": 9, "category_id": 1, "bbox": [1, 2, 30, 40], "area": 900, "iscrowd": 0},
                {"image_id": 4, "category_id": 1, "bbox": [1, 2, 3, 4]},
                {"image_id": 4, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": 1},
            ],
            "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        })
    }

    fn parse(file: &Value, limit: Option<usize>) -> anyhow::Result<Truth> {
        Truth::parse(file.to_string().as_bytes(), limit)
    }

    fn complaint(file: &Value) -> String {
        parse(file, None).unwrap_err().to_string()
    }

    #[test]
    fn an_object_without_an_area_has_that_of_its_box() {
        let truth = parse(&file(), None).unwrap();
        let areas: Vec<f64> = truth.objects.iter().map(Object::area).collect();
        assert_eq!(areas, [900.0, 12.0, 12.0]);
        assert_eq!(truth.counts(), BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn a_limit_keeps_the_first_pictures_of_the_file_and_their_objects_alone() {
        let truth = parse(&file(), Some(1)).unwrap();
        assert_eq!(truth.pictures[0].file_name, "nine.jpg");
        assert_eq!((truth.pictures.len(), truth.objects.len()), (1, 1));
        assert_eq!(truth.strays, 0);
        let all = parse(&file(), Some(5)).unwrap();
        assert_eq!(all.pictures.len(), 2);
        assert_eq!(all.pictures[0].id, 4);
    }

    #[test]
    fn objects_of_no_picture_and_of_no_category_are_counted() {
        let mut file = file();
        file["annotations"][0]["image_id"] = json!(5);
        file["annotations"][1]["category_id"] = json!(3);
        let truth = parse(&file, None).unwrap();
        assert_eq!((truth.strays, truth.objects.len()), (2, 1));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let mut twice = file();
        twice["images"][0]["id"] = json!(4);
        assert_eq!(complaint(&twice), "two pictures are 4");
        let mut twice = file();
        twice["categories"][0]["name"] = json!("dog");
        assert_eq!(complaint(&twice), "two categories are dog");
        let mut none = file();
        none["images"] = json!([]);
        assert_eq!(complaint(&none), "it lists no picture");
    }
}
