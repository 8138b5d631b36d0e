//! Samples of other channels to R, G, B.

/// Converts pixels of `N >= 3` bytes where they lie, so that no second picture is held.
pub(super) fn shrink<const N: usize>(
    mut samples: Vec<u8>,
    convert: impl Fn(&[u8; N]) -> [u8; 3],
) -> Vec<u8> {
    const { assert!(N >= 3, "what is written must lie behind what is read") };
    let count = samples.len() / N;
    for index in 0..count {
        let mut pixel = [0; N];
        pixel.copy_from_slice(&samples[index * N..][..N]);
        samples[index * 3..][..3].copy_from_slice(&convert(&pixel));
    }
    samples.truncate(count * 3);
    samples.shrink_to_fit();
    samples
}

/// Converts pixels of `N` bytes into a new buffer.
pub(super) fn spread<const N: usize>(
    samples: &[u8],
    convert: impl Fn(&[u8; N]) -> [u8; 3],
) -> Vec<u8> {
    let sources = samples.as_chunks::<N>().0;
    let mut pixels = vec![0u8; sources.len() * 3];
    for (pixel, source) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(sources) {
        *pixel = convert(source);
    }
    pixels
}
