//! The wire contract's generated types: `proto/detectd/v1/detection.proto`.
//!
//! They stay in this room, and in the client commands of `cli`: everything else speaks the project's types.

#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::unwrap_used
)]

tonic::include_proto!("detectd.v1");

/// The contract and all it imports, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/detection.binpb"));
