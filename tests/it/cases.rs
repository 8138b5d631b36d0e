//! Pictures of every class that people send and what each must become: our own set, which
//! `tests/golden/make_cases.py` makes, and one from the field beside the checkout.

use std::path::{Path, PathBuf};

use detectd::vision::{ImageSize, Picture};

/// How far a mean colour may be from another decoder's: chroma upsampling differs.
pub(crate) const LEVELS: f64 = 3.0;

/// A file and its expected outcome.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether it may become a picture.
    pub(crate) decodes: bool,
    /// For which reasons it may be refused: none, the one, or any where it says nothing else.
    pub(crate) refusal: Refusal,
    /// Of the upright picture.
    pub(crate) size: Option<ImageSize>,
    /// Whole, then upper left, upper right, lower left, lower right.
    pub(crate) means: Vec<Option<[f64; 3]>>,
    /// What only raw frames have: words like `stride=512`.
    pub(crate) note: String,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    Never,
    For(String),
    Any,
}

// === impl Case ===

impl Case {
    /// The number behind `key=` in a raw frame's note.
    pub(crate) fn noted(&self, key: &str) -> u32 {
        let value = self.note.split(' ').find_map(|word| word.strip_prefix(key));
        value.unwrap().trim_end_matches(';').parse().unwrap()
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.note.starts_with("format=")
    }

    /// Compares with a reason for which it was refused.
    pub(crate) fn check_refusal(&self, reason: &str, message: &str) {
        match &self.refusal {
            Refusal::Never => panic!("{} was refused: {message}", self.name),
            Refusal::For(expected) => assert_eq!(reason, expected, "{}: {message}", self.name),
            Refusal::Any => {}
        }
    }

    /// Compares with the size of the picture that it became.
    pub(crate) fn check_size(&self, size: ImageSize) {
        assert!(self.decodes, "{} became a picture of {size}", self.name);
        if let Some(expected) = self.size {
            assert_eq!(size, expected, "{}", self.name);
        }
    }

    /// Compares with the picture that it became.
    pub(crate) fn check_picture(&self, picture: &Picture) {
        self.check_size(picture.size());
        let expected = self.means.iter();
        for (found, expected) in means(picture).iter().zip(expected) {
            let Some(expected) = expected else { continue };
            let near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= LEVELS;
            assert!(
                found.iter().zip(expected).all(near),
                "{}: {found:?}, expected {expected:?}",
                self.name
            );
        }
    }
}

/// Our own set.
pub(crate) fn own() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cases");
    read(&folder, "cases.tsv")
}

/// The set from the field, or `None` with a line that says so.
pub(crate) fn from_the_field() -> Option<Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/cases/images");
    if !folder.is_dir() {
        println!("skipped: pictures from the field (../shared is absent)");
        return None;
    }
    Some(read(&folder, "manifest.tsv"))
}

fn read(folder: &Path, table: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder.join(table)).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let titles: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let case = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |title: &str| {
            let column = titles.iter().position(|known| *known == title);
            column.map_or("", |column| cells[column])
        };
        let path: PathBuf = folder.join(cell("file"));
        let expected = cell("expected");
        let color = |text: &str| {
            let numbers: Vec<f64> = text.split(',').filter_map(|n| n.parse().ok()).collect();
            numbers.try_into().ok()
        };
        let quadrants = cell("quadrant_mean_rgb(TL;TR;BL;BR)").split(';').map(color);
        let side = |title| cell(title).parse().ok();
        let size = side("upright_width").zip(side("upright_height"));
        Case {
            name: cell("file").to_owned(),
            bytes: std::fs::read(path).unwrap(),
            decodes: expected.starts_with("OK"),
            refusal: match expected.split_once("INVALID_ARGUMENT") {
                None => Refusal::Never,
                Some((_, "")) => Refusal::Any,
                Some((_, rest)) => Refusal::For(rest.trim_start_matches(" reason=").to_owned()),
            },
            size: size.map(|(width, height)| ImageSize::new(width, height)),
            means: [color(cell("mean_rgb"))]
                .into_iter()
                .chain(quadrants)
                .collect(),
            note: cell("note").to_owned(),
        }
    };
    lines.map(case).collect()
}

/// The mean colours of the whole picture and of its quarters.
fn means(picture: &Picture) -> Vec<[f64; 3]> {
    let (width, height) = (
        picture.size().width as usize,
        picture.size().height as usize,
    );
    let mut areas = vec![(0..width, 0..height)];
    for rows in [0..height / 2, height / 2..height] {
        for columns in [0..width / 2, width / 2..width] {
            areas.push((columns, rows.clone()));
        }
    }
    let mean = |(columns, rows): (std::ops::Range<usize>, std::ops::Range<usize>)| {
        let count = (columns.len() * rows.len()) as f64;
        let mut sums = [0.0; 3];
        for y in rows {
            for pixel in
                picture.pixels()[y * width * 3..][columns.start * 3..columns.end * 3].chunks(3)
            {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += f64::from(*value);
                }
            }
        }
        sums.map(|sum| sum / count)
    };
    areas.into_iter().map(mean).collect()
}
