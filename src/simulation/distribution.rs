//! [`Distribution`]: a time that varies from picture to picture.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{IntoDeserializer, MapAccess, Visitor};

use super::random::Random;

/// A time that varies. In a scenario: `"2ms"`, or a table with one of the keys below.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(Duration),
    /// Anything between the two, equally likely.
    Uniform(Duration, Duration),
    /// The logarithm is normal, with this deviation: most are near the median, a few far above.
    LogNormal {
        /// Half are shorter.
        median: Duration,
        /// Deviation of the logarithm: 0.3 puts two thirds within 30 % or so of the median.
        spread: f64,
    },
    /// Kinds of pictures.
    Kinds(Vec<Kind>),
}

/// One kind of pictures.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// How often it comes, against the other kinds.
    pub weight: f64,
    /// What it takes.
    pub time: Span,
}

/// A duration as people write it. The server's settings are whole numbers; here `"1.5ms"` is a usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The longest time that a scenario speaks of: a month. All sums of such times are far from what the clock holds.
pub(super) const LONGEST: Duration = Duration::from_secs(31 * 24 * 3_600);

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Shape {
    Uniform([Span; 2]),
    LogNormal(LogNormal),
    Kinds(Vec<Kind>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogNormal {
    median: Span,
    spread: f64,
}

// === impl Distribution ===

impl Distribution {
    /// No time at all.
    pub const NOTHING: Distribution = Distribution::Constant(Duration::ZERO);

    /// One of its times, in seconds.
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Distribution::Constant(time) => time.as_secs_f64(),
            Distribution::Uniform(least, most) => {
                let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
                least + (most - least) * random.uniform()
            }
            Distribution::LogNormal { median, spread } => {
                let drawn = median.as_secs_f64() * (spread * random.normal()).exp();
                drawn.min(LONGEST.as_secs_f64())
            }
            Distribution::Kinds(kinds) => {
                let all: f64 = kinds.iter().map(|kind| kind.weight).sum();
                let mut left = all * random.uniform();
                let chosen = kinds.iter().find(|kind| {
                    left -= kind.weight;
                    left < 0.0
                });
                chosen
                    .or(kinds.last())
                    .map_or(0.0, |kind| kind.time.0.as_secs_f64())
            }
        }
    }

    /// What it is on average, in seconds.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant(time) => time.as_secs_f64(),
            Distribution::Uniform(least, most) => (least.as_secs_f64() + most.as_secs_f64()) / 2.0,
            Distribution::LogNormal { median, spread } => {
                median.as_secs_f64() * (spread * spread / 2.0).exp()
            }
            Distribution::Kinds(kinds) => {
                let all: f64 = kinds.iter().map(|kind| kind.weight).sum();
                let sum = kinds
                    .iter()
                    .map(|kind| kind.weight * kind.time.0.as_secs_f64());
                if all > 0.0 {
                    sum.sum::<f64>() / all
                } else {
                    0.0
                }
            }
        }
    }

    /// What is wrong with it, if anything is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        // Their sum is a number, too.
        let weighs = |kind: &Kind| (1e-9..=1e9).contains(&kind.weight);
        match self {
            Distribution::Uniform(least, most) if least > most => {
                Some("uniform takes the shorter time first")
            }
            Distribution::LogNormal { spread, .. } if !(0.0..=3.0).contains(spread) => {
                Some("spread is from 0 to 3")
            }
            Distribution::Kinds(kinds) if kinds.is_empty() || !kinds.iter().all(weighs) => {
                Some("there is at least one kind, and its weight is from 1e-9 to 1e9")
            }
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Distribution;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "a time such as \"2ms\", or { uniform = [..] }, { lognormal = {..} }, { kinds = [..] }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Distribution, E> {
                let text: StrDeserializer<'_, E> = text.into_deserializer();
                Ok(Distribution::Constant(Span::deserialize(text)?.0))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Distribution, A::Error> {
                Ok(match Shape::deserialize(MapAccessDeserializer::new(map))? {
                    Shape::Uniform([least, most]) => Distribution::Uniform(least.0, most.0),
                    Shape::LogNormal(LogNormal { median, spread }) => Distribution::LogNormal {
                        median: median.0,
                        spread,
                    },
                    Shape::Kinds(kinds) => Distribution::Kinds(kinds),
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

// === impl Span ===

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "{text:?} is not a time; write a number and us, ms, s, min or h, such as \"1.5ms\""
            ))
        })?;
        if time > LONGEST {
            return Err(serde::de::Error::custom(format!(
                "{text:?} is too long; the longest time is {}h",
                LONGEST.as_secs() / 3_600
            )));
        }
        Ok(Span(time))
    }
}

fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.trim().parse().ok()?;
    let unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    // Whole nanoseconds: 41.6 ms are 41.6 ms, not 41.599999.
    let nanoseconds = (number * unit * 1e9).round();
    (0.0..1e19)
        .contains(&nanoseconds)
        .then(|| Duration::from_nanos(nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse("1.5ms"), Some(Duration::from_micros(1_500)));
        assert_eq!(parse("41.6 ms"), Some(Duration::from_micros(41_600)));
        assert_eq!(parse("2min"), Some(Duration::from_secs(120)));
        assert_eq!(parse("5"), None);
        assert_eq!(parse("-5ms"), None);
        assert_eq!(parse("5 parsecs"), None);
        for text in ["nanms", "infs", "1e400s", "999999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_drawn_has_the_mean_that_is_told() {
        let ms = Duration::from_millis;
        let all = [
            Distribution::Uniform(ms(2), ms(6)),
            Distribution::LogNormal {
                median: ms(4),
                spread: 0.5,
            },
            Distribution::Kinds(vec![
                Kind {
                    weight: 3.0,
                    time: Span(ms(2)),
                },
                Kind {
                    weight: 1.0,
                    time: Span(ms(20)),
                },
            ]),
        ];
        for distribution in all {
            let mut random = Random::new(3, 1);
            let sum: f64 = (0..50_000).map(|_| distribution.draw(&mut random)).sum();
            let (mean, told) = (sum / 50_000.0, distribution.mean());
            assert!(
                (mean / told - 1.0).abs() < 0.02,
                "{distribution:?}: {mean} {told}"
            );
        }
    }
}
