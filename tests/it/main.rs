//! The integration tests: one binary, so that it is linked once. Most start the real server, in this process
//! and on port 0, and speak real gRPC to it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod architecture;
mod batching;
mod cases;
mod command_line;
mod command_stream;
mod detect;
mod documents;
mod doors;
mod eval;
mod failure;
mod heads;
mod health;
mod overload;
mod pictures;
mod pressure;
mod shutdown;
mod simulate;
mod streams;
mod support;
mod tiling;
mod vision;
