//! Tensors: the one type that `vision`, `scheduling` and `device` all know.
//!
//! A [`Tensor`] is a dense, row-major block of numbers with a shape and an element type. It is either
//! *owned* (writable; preprocessing fills it), or *shared* (read-only; a network's output that several
//! requests read without a copy). A [`TensorPool`] hands out owned tensors of one shape and takes their
//! memory back when they are dropped, so a steady load allocates nothing.
//!
//! This module knows nothing of pictures, networks or requests.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float (IEEE half).
    F16,
    /// Unsigned byte.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::F16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
        })
    }
}

/// A Rust type that a tensor's elements can be viewed as.
pub trait Element: bytemuck::Pod {
    /// The matching element type.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for half::f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// What is known of a network's input or output before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSignature {
    /// Its name in the network's file.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The length of each dimension, outermost first; `None` where it varies.
    pub shape: Vec<Option<usize>>,
}

impl std::fmt::Display for TensorSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` {} {}",
            self.name,
            self.dtype,
            show_shape(&self.shape)
        )
    }
}

/// Writes a shape for people, like `[?, 3, 416, 416]`.
pub fn show_shape(shape: &[Option<usize>]) -> String {
    let lengths = shape
        .iter()
        .map(|length| length.map_or_else(|| "?".to_owned(), |length| length.to_string()));
    format!("[{}]", lengths.collect::<Vec<_>>().join(", "))
}

/// Why a tensor could not be made from given bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{got} bytes do not hold a {dtype} tensor of shape {shape:?} ({expected} bytes)")]
pub struct SizeMismatch {
    dtype: DType,
    shape: Vec<usize>,
    expected: usize,
    got: usize,
}

/// A dense row-major tensor.
///
/// Dropping one that came from a [`TensorPool`] gives its memory back to the pool.
#[derive(Debug)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    /// Words rather than bytes, so that a view as any [`Element`] is aligned.
    Owned {
        words: Vec<u64>,
        home: Option<Arc<Shelf>>,
    },
    Shared(Bytes),
}

// === impl Tensor ===

impl Tensor {
    /// Returns a tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Self {
        let words = vec![0; byte_len(dtype, shape).div_ceil(8)];
        Self {
            dtype,
            shape: shape.to_vec(),
            storage: Storage::Owned { words, home: None },
        }
    }

    /// Returns a tensor holding a copy of `values`.
    ///
    /// # Errors
    /// [`SizeMismatch`] when `values` are not as many as `shape` says.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Self, SizeMismatch> {
        check_size(T::DTYPE, shape, size_of_val(values))?;
        let mut tensor = Self::zeros(T::DTYPE, shape);
        tensor
            .bytes_mut()
            .copy_from_slice(bytemuck::cast_slice(values));
        Ok(tensor)
    }

    /// Returns a read-only tensor over `bytes`, without a copy where they are aligned for `dtype`.
    ///
    /// # Errors
    /// [`SizeMismatch`] when the length of `bytes` is not what `shape` says.
    pub fn from_shared(dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Self, SizeMismatch> {
        check_size(dtype, shape, bytes.len())?;
        if bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
            return Ok(Self {
                dtype,
                shape: shape.to_vec(),
                storage: Storage::Shared(bytes),
            });
        }
        let mut tensor = Self::zeros(dtype, shape);
        tensor.bytes_mut().copy_from_slice(&bytes);
        Ok(tensor)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each dimension, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The raw bytes, in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned { words, .. } => {
                &bytemuck::cast_slice(words)[..byte_len(self.dtype, &self.shape)]
            }
            Storage::Shared(bytes) => bytes,
        }
    }

    /// The elements, or `None` when they are not of type `T`.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        (T::DTYPE == self.dtype).then(|| bytemuck::cast_slice(self.bytes()))
    }

    /// The elements for writing, or `None` when they are not of type `T` or the tensor is shared.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        let writable = matches!(self.storage, Storage::Owned { .. });
        (T::DTYPE == self.dtype && writable).then(|| bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// Copies `rows` one behind another into the leading part of this tensor's outermost dimension.
    ///
    /// This is how a batch is put together: `self` is `[N, ...]` and each row is one picture's `[...]`.
    /// What lies behind the last row becomes zero: the padding of a bucket must not be a picture that somebody
    /// sent before.
    ///
    /// # Panics
    /// When the rows are of another type or size than this tensor's, or too many: the caller made both.
    pub fn fill_rows<'a>(&mut self, rows: impl IntoIterator<Item = &'a Tensor>) {
        let row_len = byte_len(self.dtype, &self.shape[1..]);
        let dtype = self.dtype;
        let mut slots = self.bytes_mut().chunks_exact_mut(row_len);
        for row in rows {
            assert_eq!(row.dtype, dtype, "a batch holds one element type");
            let slot = slots
                .next()
                .expect("a batch has a slot for each of its rows");
            slot.copy_from_slice(row.bytes());
        }
        slots.for_each(|slot| slot.fill(0));
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = byte_len(self.dtype, &self.shape);
        match &mut self.storage {
            Storage::Owned { words, .. } => &mut bytemuck::cast_slice_mut(words)[..len],
            Storage::Shared(_) => &mut [],
        }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if let Storage::Owned {
            words,
            home: Some(home),
        } = &mut self.storage
        {
            home.put(std::mem::take(words));
        }
    }
}

fn byte_len(dtype: DType, shape: &[usize]) -> usize {
    shape.iter().product::<usize>() * dtype.size()
}

fn check_size(dtype: DType, shape: &[usize], got: usize) -> Result<(), SizeMismatch> {
    let expected = byte_len(dtype, shape);
    if expected == got {
        return Ok(());
    }
    Err(SizeMismatch {
        dtype,
        shape: shape.to_vec(),
        expected,
        got,
    })
}

/// Reuses the memory of tensors of one type and shape.
///
/// Cloning gives another handle to the same pool. The pool never refuses: who takes tensors is bounded
/// elsewhere (a slot on a shelf is reserved before); it only bounds what it keeps *idle*.
#[derive(Debug, Clone)]
pub struct TensorPool {
    dtype: DType,
    shape: Vec<usize>,
    shelf: Arc<Shelf>,
}

#[derive(Debug)]
struct Shelf {
    max_idle: usize,
    idle: Mutex<Vec<Vec<u64>>>,
}

// === impl TensorPool ===

impl TensorPool {
    /// Makes a pool of tensors of one type and shape that keeps at most `max_idle` of them.
    pub fn new(dtype: DType, shape: &[usize], max_idle: usize) -> Self {
        Self {
            dtype,
            shape: shape.to_vec(),
            shelf: Arc::new(Shelf {
                max_idle,
                idle: Mutex::default(),
            }),
        }
    }

    /// Returns a writable tensor. Its contents are whatever its last user left there.
    pub fn take(&self) -> Tensor {
        let mut tensor = match self.shelf.lock().pop() {
            Some(words) => Tensor {
                dtype: self.dtype,
                shape: self.shape.clone(),
                storage: Storage::Owned { words, home: None },
            },
            None => Tensor::zeros(self.dtype, &self.shape),
        };
        if let Storage::Owned { home, .. } = &mut tensor.storage {
            *home = Some(self.shelf.clone());
        }
        tensor
    }

    /// The element type of its tensors.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of its tensors.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl Shelf {
    fn put(&self, words: Vec<u64>) {
        let mut idle = self.lock();
        if idle.len() < self.max_idle {
            idle.push(words);
        }
    }

    /// The list is whole at every instant, so a panic elsewhere while it was held does not spoil it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u64>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_another_type_is_refused() {
        let mut tensor = Tensor::zeros(DType::F32, &[2, 3]);
        assert!(tensor.as_slice::<i32>().is_none());
        assert!(tensor.as_mut_slice::<u8>().is_none());
        assert_eq!(tensor.as_slice::<f32>(), Some(&[0.0; 6][..]));
    }

    #[test]
    fn shared_bytes_of_a_wrong_length_are_refused() {
        let error =
            Tensor::from_shared(DType::I64, &[3], Bytes::from_static(&[0; 23])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "23 bytes do not hold a i64 tensor of shape [3] (24 bytes)"
        );
    }

    #[test]
    fn misaligned_shared_bytes_are_copied() {
        let backing = Bytes::from(vec![1u8; 17]);
        for offset in 0..8 {
            let tensor =
                Tensor::from_shared(DType::I64, &[1], backing.slice(offset..offset + 8)).unwrap();
            assert_eq!(tensor.as_slice::<i64>(), Some(&[0x0101_0101_0101_0101][..]));
        }
    }

    #[test]
    fn rows_are_laid_one_behind_another_and_the_rest_is_zero() {
        let rows = [[1.0f32, 2.0], [3.0, 4.0]].map(|row| Tensor::from_slice(&[2], &row).unwrap());
        let mut batch = Tensor::zeros(DType::F32, &[3, 2]);
        batch.as_mut_slice::<f32>().unwrap().fill(9.0);
        batch.fill_rows(&rows);
        assert_eq!(
            batch.as_slice::<f32>(),
            Some(&[1.0, 2.0, 3.0, 4.0, 0.0, 0.0][..])
        );
    }

    #[test]
    fn a_dropped_tensor_is_taken_again_and_idle_memory_is_bounded() {
        let pool = TensorPool::new(DType::U8, &[8], 1);
        let (mut first, second) = (pool.take(), pool.take());
        first.as_mut_slice::<u8>().unwrap().fill(7);
        drop(first);
        drop(second);
        assert_eq!(pool.shelf.lock().len(), 1);
        assert_eq!(pool.take().as_slice::<u8>(), Some(&[7; 8][..]));
    }
}
