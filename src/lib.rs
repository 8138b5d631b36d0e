//! detectd: an object-detection inference server.
//!
//! `docs/ARCHITECTURE.md` has the picture of the house and the life of a request.

pub mod tensor;
pub mod vision;
