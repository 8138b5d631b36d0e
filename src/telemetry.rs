//! Telemetry: how the process speaks to its operator.

pub mod logging;
