//! `x-request-id`: a name for a call that both sides' logs can be searched for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};

/// The header, in requests and replies.
pub(super) const HEADER: &str = "x-request-id";

/// A longer one is not a name but a payload; it is replaced.
const MAX_LEN: usize = 128;

/// A call's name: the caller's, if it sent one that can be printed, or one of ours.
#[derive(Debug, Clone)]
pub(super) struct RequestId(HeaderValue);

/// Makes names that differ from each other and, by the time of the start, from those of another run.
#[derive(Debug)]
pub(super) struct RequestIds {
    start: u64,
    next: AtomicU64,
}

// === impl RequestIds ===

impl RequestIds {
    pub(super) fn new() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // The lower bits change fastest, and 64 of them last for centuries.
        let start =
            u64::try_from(since_epoch.as_nanos() & u128::from(u64::MAX)).unwrap_or_default();
        Self {
            start,
            next: AtomicU64::new(0),
        }
    }

    /// The name of the call with these headers.
    pub(super) fn name(&self, headers: &HeaderMap) -> RequestId {
        let sent = headers.get(HEADER).filter(|value| {
            let bytes = value.as_bytes();
            !bytes.is_empty() && bytes.len() <= MAX_LEN && bytes.iter().all(u8::is_ascii_graphic)
        });
        RequestId(sent.cloned().unwrap_or_else(|| {
            let name = format!(
                "{:016x}-{:x}",
                self.start,
                self.next.fetch_add(1, Ordering::Relaxed)
            );
            HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("unnamed"))
        }))
    }
}

// === impl RequestId ===

impl RequestId {
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("unnamed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(value: &'static [u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        RequestIds::new().name(&headers).to_string()
    }

    #[test]
    fn a_callers_name_is_kept_and_what_is_none_is_replaced() {
        assert_eq!(named(b"frame-7"), "frame-7");
        let long: &'static [u8] = Box::leak(vec![b'a'; MAX_LEN + 1].into_boxed_slice());
        for value in [&b""[..], b"two words", b"caf\xe9", long] {
            assert!(named(value).ends_with("-0"), "{value:?}");
        }
    }

    #[test]
    fn our_names_differ() {
        let (ids, headers) = (RequestIds::new(), HeaderMap::new());
        assert_ne!(
            ids.name(&headers).to_string(),
            ids.name(&headers).to_string()
        );
    }
}
