//! The assembler: puts ready tensors together into a batch.

use std::collections::HashMap;
use std::sync::Arc;

use crate::tensor::{Tensor, TensorPool};

/// One picture ready to run, with what its sender wants back.
#[derive(Debug)]
pub struct Picture<C> {
    /// The network's input for this picture, without the batch dimension. A run only reads it, so a picture whose
    /// run never ends can run elsewhere meanwhile; its memory goes back to its pool with the last of them.
    pub tensor: Arc<Tensor>,
    /// Handed back untouched.
    pub context: C,
}

/// A batch ready to run.
#[derive(Debug)]
pub(super) struct Batch {
    /// Rows to run, padding included.
    pub(super) bucket: usize,
    pub(super) input: BatchInput,
    /// The pictures', in the order of the rows.
    pub(super) tensors: Vec<Arc<Tensor>>,
}

/// Where the rows lie.
#[derive(Debug)]
pub(super) enum BatchInput {
    /// In the only picture's own tensor.
    Single,
    /// Copied into a batch buffer.
    Copied(Tensor),
}

/// Owns an instance's batch buffers. There are as many as are in use: one that is filled while another runs.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    buffers: HashMap<usize, TensorPool>,
}

// === impl Batch ===

impl Batch {
    pub(super) fn input(&self) -> Option<&Tensor> {
        match &self.input {
            BatchInput::Single => self.tensors.first().map(|tensor| &**tensor),
            BatchInput::Copied(tensor) => Some(tensor),
        }
    }
}

// === impl Assembler ===

impl Assembler {
    /// Puts `tensors` into a batch of `bucket` rows. A batch of one passes without a copy; the rows behind
    /// the last picture are zero.
    pub(super) fn assemble(&mut self, bucket: usize, tensors: Vec<Arc<Tensor>>) -> Batch {
        let input = match tensors.first() {
            Some(first) if bucket > 1 => {
                let buffers = self.buffers.entry(bucket).or_insert_with(|| {
                    let mut shape = vec![bucket];
                    shape.extend_from_slice(first.shape());
                    // One is filled while the other runs.
                    TensorPool::new(first.dtype(), &shape, 2)
                });
                let mut buffer = buffers.take();
                buffer.fill_rows(tensors.iter().map(|tensor| &**tensor));
                BatchInput::Copied(buffer)
            }
            _ => BatchInput::Single,
        };
        Batch {
            bucket,
            input,
            tensors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(value: f32) -> Arc<Tensor> {
        Arc::new(Tensor::from_slice(&[2], &[value, value]).unwrap())
    }

    #[test]
    fn a_batch_of_one_is_not_copied() {
        let batch = Assembler::default().assemble(1, vec![picture(3.0)]);
        assert!(matches!(batch.input, BatchInput::Single));
        assert_eq!(
            batch.input().unwrap().as_slice::<f32>(),
            Some(&[3.0, 3.0][..])
        );
    }

    #[test]
    fn a_partial_batch_fills_the_leading_rows() {
        let batch =
            Assembler::default().assemble(4, vec![picture(1.0), picture(2.0), picture(3.0)]);
        let input = batch.input().unwrap();
        assert_eq!(input.shape(), [4, 2]);
        assert_eq!(
            input.as_slice::<f32>().unwrap()[..6],
            [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
        );
    }

    #[test]
    fn a_buffer_in_use_is_not_filled_again() {
        let mut assembler = Assembler::default();
        let first = assembler.assemble(2, vec![picture(1.0), picture(2.0)]);
        let second = assembler.assemble(2, vec![picture(3.0), picture(4.0)]);
        assert_eq!(
            first.input().unwrap().as_slice::<f32>(),
            Some(&[1.0, 1.0, 2.0, 2.0][..])
        );
        assert_eq!(
            second.input().unwrap().as_slice::<f32>(),
            Some(&[3.0, 3.0, 4.0, 4.0][..])
        );
    }
}
