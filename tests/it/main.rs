//! The integration tests: one binary, so that it is linked once. Each starts the real server, in this process
//! and on port 0, and speaks real gRPC to it.

mod architecture;
mod batching;
mod command_line;
mod detect;
mod documents;
mod health;
mod overload;
mod shutdown;
mod support;
