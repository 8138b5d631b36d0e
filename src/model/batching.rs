//! The card's `[batching]` table.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::device::bounded;

/// Largest batch that a card may allow. Past it a batch only costs latency and memory.
pub const MAX_BATCH_SIZE: usize = 256;

/// Longest wait for company that a card may ask for. A client would give up before.
pub const MAX_QUEUE_DELAY: Duration = Duration::from_secs(10);

/// How requests of a model may be put together. A card that says nothing gets batches of one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingSpec {
    /// Most pictures in one run, up to [`MAX_BATCH_SIZE`].
    #[serde(deserialize_with = "batch_size")]
    pub max_batch_size: NonZeroUsize,
    /// How long a free device may be left idle in the hope of a larger batch, up to [`MAX_QUEUE_DELAY`].
    /// Zero, which is right nearly always: batches grow by themselves while devices are busy.
    #[serde(deserialize_with = "queue_delay")]
    pub max_queue_delay: Duration,
}

// === impl BatchingSpec ===

impl Default for BatchingSpec {
    fn default() -> Self {
        Self {
            max_batch_size: NonZeroUsize::MIN,
            max_queue_delay: Duration::ZERO,
        }
    }
}

fn batch_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroUsize, D::Error> {
    bounded(deserializer, MAX_BATCH_SIZE)
}

fn queue_delay<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text)
        .filter(|delay| *delay <= MAX_QUEUE_DELAY)
        .ok_or_else(|| {
            de::Error::custom(format!(
                "{text:?} is no delay: a whole number of us, ms or s, up to {}s, is, like \"2ms\"",
                MAX_QUEUE_DELAY.as_secs()
            ))
        })
}

/// Reads a whole number with its unit, as `250us`, `2ms` or `1s`.
fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(unit_at);
    let number = digits.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_whole_number_with_its_unit() {
        assert_eq!(parse_duration("0ms"), Some(Duration::ZERO));
        assert_eq!(parse_duration("250us"), Some(Duration::from_micros(250)));
        assert_eq!(parse_duration("10s"), Some(Duration::from_secs(10)));
        let too_large = format!("{}0s", u64::MAX);
        for bad in [
            "", "0", "ms", "1.5ms", "-1ms", "+1ms", "1 ms", "1m", "1ms ", "1MS", &too_large,
        ] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_and_delays_out_of_range_are_refused_with_the_range() {
        let refusal = |text: &str| {
            toml::from_str::<BatchingSpec>(text)
                .unwrap_err()
                .to_string()
        };
        for bad in ["0", "-1", "257"] {
            let error = refusal(&format!("max_batch_size = {bad}"));
            assert!(
                error.contains(&format!("{bad} is not from 1 to 256")),
                "{error}"
            );
        }
        assert!(refusal("max_queue_delay = \"11s\"").contains("up to 10s"));
        assert!(refusal("max_queue_delay = 5").contains("string"));
    }
}
