//! Whole streams: objects whose identities are known, the life of a track, and numbers that nobody should send.

mod hostile;
mod identities;
mod lifecycle;
mod trajectories;
mod world;
