//! detectd: an object-detection inference server.
//!
//! The rooms, from the street to the ground; imports run downwards only. `docs/ARCHITECTURE.md` has the
//! picture and the life of a request.
//!
//! | level | rooms |
//! |---|---|
//! | root | [`cli`], [`app`], [`config`] |
//! | doors | [`grpc`], [`http`] |
//! | use | [`pipeline`], [`simulation`] |
//! | machine | [`scheduling`], [`device`] |
//! | domain | [`model`], [`heads`], [`vision`], [`tracking`] |
//! | ground | [`tensor`], [`telemetry`] |

pub mod app;
pub mod cli;
pub mod config;
pub mod device;
pub mod grpc;
pub mod heads;
pub mod http;
pub mod model;
pub mod pipeline;
pub mod scheduling;
pub mod simulation;
pub mod telemetry;
pub mod tensor;
pub mod tracking;
pub mod vision;
