//! The life of a track, and numbers that nobody should send.

mod hostile;
mod lifecycle;
