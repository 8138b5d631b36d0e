//! Devices, and the instances of a model that run on them.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::ModelError;

/// Most instances that one `[[instances]]` entry may ask for: more than cores or GPU streams ever pay for, so
/// that a slip of the keyboard does not start ten thousand threads.
pub const MAX_INSTANCES: usize = 256;

/// Most threads that an instance may ask for, for the same reason.
pub const MAX_THREADS: usize = 256;

/// Something that networks run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The processor, all cores of it; written `cpu:0`.
    Cpu,
    /// A CUDA GPU by its ordinal; written `cuda:1`.
    Cuda(u32),
}

/// The device that a card asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum DeviceRequest {
    /// Whatever this machine has: its GPUs, or its processor where it has none.
    #[default]
    Auto,
    /// This device or none.
    Exact(Device),
}

/// One `[[instances]]` entry of a card: instances of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceSpec {
    /// Where they run.
    pub device: DeviceRequest,
    /// How many, up to [`MAX_INSTANCES`]; unset = what the device is best kept busy with: on a processor one
    /// for each core (divided by `threads`), on each GPU one.
    #[serde(deserialize_with = "instance_count")]
    pub count: Option<NonZeroUsize>,
    /// Threads that one instance computes with, up to [`MAX_THREADS`]. Means nothing on a GPU.
    #[serde(deserialize_with = "thread_count")]
    pub threads: NonZeroUsize,
}

// === impl Device ===

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let ordinal = |digits: &str| {
            let ordinal: Option<u32> = digits.parse().ok();
            ordinal.filter(|ordinal| ordinal.to_string() == digits)
        };
        let device = match text.split_once(':') {
            None if text == "cpu" => Some(Self::Cpu),
            Some(("cpu", "0")) => Some(Self::Cpu),
            Some(("cuda", digits)) => ordinal(digits).map(Self::Cuda),
            _ => None,
        };
        device.ok_or_else(|| {
            ModelError::Value(format!(
                "{text:?} is no device: cpu (or cpu:0), cuda:0, cuda:1 and so on are"
            ))
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu:0"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

// === impl DeviceRequest ===

impl FromStr for DeviceRequest {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Exact)
    }
}

impl TryFrom<String> for DeviceRequest {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        text.parse()
    }
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exact(device) => device.fmt(f),
        }
    }
}

// === impl InstanceSpec ===

impl Default for InstanceSpec {
    fn default() -> Self {
        Self {
            device: DeviceRequest::Auto,
            count: None,
            threads: NonZeroUsize::MIN,
        }
    }
}

fn instance_count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<NonZeroUsize>, D::Error> {
    bounded(d, MAX_INSTANCES).map(Some)
}

fn thread_count<'de, D: Deserializer<'de>>(d: D) -> Result<NonZeroUsize, D::Error> {
    bounded(d, MAX_THREADS)
}

/// Reads a number from 1 to `max`.
pub(super) fn bounded<'de, D: Deserializer<'de>>(
    deserializer: D,
    max: usize,
) -> Result<NonZeroUsize, D::Error> {
    let number = i64::deserialize(deserializer)?;
    usize::try_from(number)
        .ok()
        .filter(|&number| number <= max)
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| de::Error::custom(format!("{number} is not from 1 to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["cpu:0", "cuda:0", "cuda:15"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
            assert_eq!(text.parse::<DeviceRequest>().unwrap().to_string(), text);
        }
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::Cpu);
        let auto: DeviceRequest = "auto".parse().unwrap();
        assert_eq!(
            (auto, auto.to_string()),
            (DeviceRequest::Auto, "auto".to_owned())
        );
    }

    #[test]
    fn what_is_no_device_is_refused_by_name() {
        for bad in [
            "", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cpu:1", "CPU", "auto",
        ] {
            let error = bad.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
