//! A network's outputs: finding one by name, checking it, reading one picture's row of it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::HeadError;
use super::classes::whole;
use crate::tensor::{DType, Tensor, TensorSignature, show_shape};

/// The element types that an output may have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// f32 or f16.
    Float,
    /// Whole numbers: i64 or i32, or f32 or f16 that hold them.
    Label,
}

/// One output that a head reads: where it stands and what a row of it looks like.
#[derive(Debug)]
pub(super) struct BoundOutput {
    name: String,
    position: usize,
    kind: Kind,
    /// Dimensions behind the batch's.
    row: Vec<Option<usize>>,
}

// === impl Kind ===

impl Kind {
    fn holds(self, dtype: DType) -> bool {
        match self {
            Kind::Float => matches!(dtype, DType::F32 | DType::F16),
            Kind::Label => Kind::Float.holds(dtype) || matches!(dtype, DType::I64 | DType::I32),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Float => "f32 or f16",
            Kind::Label => "i64, i32, f32 or f16",
        })
    }
}

// === impl BoundOutput ===

impl BoundOutput {
    /// Finds the output called `name`, or the only one where there is no name, and checks that it is
    /// `[N, row...]` of numbers of that kind. A `None` in either shape fits anything.
    pub(super) fn find(
        outputs: &[TensorSignature],
        name: Option<&str>,
        kind: Kind,
        row: &[Option<usize>],
    ) -> Result<Self, HeadError> {
        let position = match name {
            Some(name) => outputs
                .iter()
                .position(|output| output.name == name)
                .ok_or_else(|| HeadError::MissingOutput {
                    name: name.to_owned(),
                    found: list(outputs),
                })?,
            None if outputs.len() == 1 => 0,
            None => {
                return Err(HeadError::UnnamedOutput {
                    found: list(outputs),
                });
            }
        };
        let output = &outputs[position];
        let bound = Self {
            name: output.name.clone(),
            position,
            kind,
            row: row.to_vec(),
        };
        bound.check(output.dtype, &output.shape)?;
        Ok(bound)
    }

    /// One picture's floats.
    pub(super) fn floats<'a>(
        &self,
        outputs: &'a [Tensor],
        index: usize,
    ) -> Result<Cow<'a, [f32]>, HeadError> {
        let tensor = self.tensor(outputs)?;
        widened(tensor, |len| row_range(tensor, len, index))
    }

    /// The floats of the whole batch, for an output whose rows are not the pictures'.
    pub(super) fn all_floats<'a>(
        &self,
        outputs: &'a [Tensor],
    ) -> Result<Cow<'a, [f32]>, HeadError> {
        widened(self.tensor(outputs)?, |len| Ok(0..len))
    }

    /// One picture's whole numbers. A float that holds none becomes a label that no model has.
    pub(super) fn labels<'a>(
        &self,
        outputs: &'a [Tensor],
        index: usize,
    ) -> Result<Cow<'a, [i64]>, HeadError> {
        let tensor = self.tensor(outputs)?;
        if let Some(values) = tensor.as_slice::<i64>() {
            let row = row_range(tensor, values.len(), index)?;
            return Ok(Cow::Borrowed(&values[row]));
        }
        if let Some(values) = tensor.as_slice::<i32>() {
            let row = row_range(tensor, values.len(), index)?;
            return Ok(values[row].iter().map(|&value| i64::from(value)).collect());
        }
        let values = widened(tensor, |len| row_range(tensor, len, index))?;
        Ok(values.iter().map(|&value| whole(value)).collect())
    }

    /// The tensor of this output, checked again: a dimension left open at the start is known only now.
    fn tensor<'a>(&self, outputs: &'a [Tensor]) -> Result<&'a Tensor, HeadError> {
        let Some(tensor) = outputs.get(self.position) else {
            return Err(HeadError::MissingOutput {
                name: self.name.clone(),
                found: format!("{} outputs", outputs.len()),
            });
        };
        let shape: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
        self.check(tensor.dtype(), &shape)?;
        Ok(tensor)
    }

    fn check(&self, dtype: DType, shape: &[Option<usize>]) -> Result<(), HeadError> {
        let fits = |(found, expected): (&Option<usize>, &Option<usize>)| {
            found.is_none() || expected.is_none() || found == expected
        };
        if self.kind.holds(dtype)
            && shape.len() == self.row.len() + 1
            && shape[1..].iter().zip(&self.row).all(fits)
        {
            return Ok(());
        }
        let mut expected = vec![None];
        expected.extend(&self.row);
        Err(HeadError::Mismatch {
            name: self.name.clone(),
            expected: format!("{} {}", self.kind, show_shape(&expected)),
            found: format!("{dtype} {}", show_shape(shape)),
        })
    }
}

/// Part of a tensor of floats or halves, as floats; `part` is told how many there are.
fn widened(
    tensor: &Tensor,
    part: impl Fn(usize) -> Result<Range<usize>, HeadError>,
) -> Result<Cow<'_, [f32]>, HeadError> {
    if let Some(values) = tensor.as_slice::<f32>() {
        return Ok(Cow::Borrowed(&values[part(values.len())?]));
    }
    let values = tensor.as_slice::<half::f16>().unwrap_or_default();
    let values = &values[part(values.len())?];
    let mut floats = vec![0.0; values.len()];
    values.convert_to_f32_slice(&mut floats);
    Ok(Cow::Owned(floats))
}

/// Where row `index` of a tensor of `len` elements lies.
fn row_range(tensor: &Tensor, len: usize, index: usize) -> Result<Range<usize>, HeadError> {
    let rows = tensor.shape()[0];
    if index >= rows {
        return Err(HeadError::Row { index, rows });
    }
    let len = len / rows;
    Ok(index * len..(index + 1) * len)
}

fn list(outputs: &[TensorSignature]) -> String {
    if outputs.is_empty() {
        return "no outputs".to_owned();
    }
    let outputs: Vec<_> = outputs.iter().map(TensorSignature::to_string).collect();
    outputs.join(", ")
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn signature(name: &str, dtype: DType, shape: &[Option<usize>]) -> TensorSignature {
        TensorSignature {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn bound(kind: Kind, row: &[Option<usize>], dtype: DType) -> BoundOutput {
        let mut shape = vec![None];
        shape.extend(row);
        BoundOutput::find(&[signature("o", dtype, &shape)], None, kind, row).unwrap()
    }

    #[test]
    fn a_missing_output_is_named_with_those_found() {
        let outputs = [
            signature("boxes", DType::F32, &[None, Some(300), Some(4)]),
            signature("scores", DType::F16, &[Some(1), Some(300)]),
        ];
        let error = BoundOutput::find(&outputs, Some("labels"), Kind::Label, &[None]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "the network has no output `labels`; it has `boxes` f32 [?, 300, 4], `scores` f16 [1, 300]"
        );
        let error = BoundOutput::find(&outputs, None, Kind::Float, &[None]).unwrap_err();
        assert!(matches!(error, HeadError::UnnamedOutput { .. }));
        let error = BoundOutput::find(&[], None, Kind::Float, &[None]).unwrap_err();
        assert!(error.to_string().ends_with("the network has no outputs"));
    }

    #[test]
    fn an_output_of_another_type_rank_or_length_is_refused() {
        for (dtype, shape) in [
            (DType::I64, &[None, Some(4)][..]),
            (DType::F32, &[Some(4)]),
            (DType::F32, &[None, Some(4), Some(1)]),
            (DType::F32, &[None, Some(5)]),
            (DType::F32, &[]),
        ] {
            let outputs = [signature("o", dtype, shape)];
            let error = BoundOutput::find(&outputs, Some("o"), Kind::Float, &[Some(4)]);
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with("means f32 or f16 [?, 4]"), "{error}");
        }
    }

    #[test]
    fn rows_of_halves_and_of_short_integers_are_widened() {
        let halves = [1.0, 2.5, -0.5, 65504.0].map(f16::from_f32);
        let tensor = [Tensor::from_slice(&[2, 2], &halves).unwrap()];
        let row = bound(Kind::Float, &[Some(2)], DType::F16).floats(&tensor, 1);
        assert_eq!(row.unwrap().as_ref(), [-0.5, 65504.0]);

        let tensor = [Tensor::from_slice(&[2, 2], &[1i32, -2, i32::MIN, 4]).unwrap()];
        let row = bound(Kind::Label, &[Some(2)], DType::I32).labels(&tensor, 1);
        assert_eq!(row.unwrap().as_ref(), [i64::from(i32::MIN), 4]);
    }

    #[test]
    fn a_float_is_a_label_where_it_is_a_whole_number() {
        let values = [3.0, -2.0, 0.5, f32::NAN, f32::INFINITY, 1e30];
        let tensor = [Tensor::from_slice(&[1, 6], &values).unwrap()];
        let row = bound(Kind::Label, &[None], DType::F32).labels(&tensor, 0);
        let none = i64::MIN;
        assert_eq!(row.unwrap().as_ref(), [3, -2, none, none, none, i64::MAX]);
    }

    #[test]
    fn what_a_run_gives_is_checked_again() {
        let output = bound(Kind::Float, &[Some(2)], DType::F32);
        let wrong = [Tensor::zeros(DType::F32, &[1, 3])];
        let error = output.floats(&wrong, 0).unwrap_err();
        assert!(matches!(error, HeadError::Mismatch { .. }));
        let error = output.floats(&[], 0).unwrap_err();
        assert!(matches!(error, HeadError::MissingOutput { .. }));
        for rows in [0, 1] {
            let batch = [Tensor::zeros(DType::F32, &[rows, 2])];
            let error = output.floats(&batch, 1).unwrap_err();
            assert_eq!(error, HeadError::Row { index: 1, rows });
        }
    }
}
