//! Any bytes through the decoders and the resize behind them. Nothing may panic, hang or grow: run it with
//! `-rss_limit_mb` and `-timeout`, see README.md.

#![no_main]

use std::sync::LazyLock;

use detectd::tensor::{DType, Tensor};
use detectd::vision::preprocess::{ColorOrder, InputSpec, Layout, Preprocessor, Resize};
use detectd::vision::{DecodeLimits, ImageSize, decode};
use libfuzzer_sys::fuzz_target;

/// Small, so that what grows with a file rather than with its picture shows.
const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 18,
};

static PREPROCESSOR: LazyLock<Preprocessor> = LazyLock::new(|| {
    let spec = InputSpec {
        size: ImageSize::new(32, 32),
        resize: Resize::Stretch,
        color: ColorOrder::Rgb,
        layout: Layout::Nchw,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    };
    Preprocessor::new(spec, DType::F32).expect("the spec is valid")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(picture) = decode(bytes, &LIMITS) {
        assert!(picture.size().pixels() <= LIMITS.max_pixels);
        let mut out = Tensor::zeros(DType::F32, &PREPROCESSOR.tensor_shape());
        PREPROCESSOR.run(&picture, &mut out);
    }
});
