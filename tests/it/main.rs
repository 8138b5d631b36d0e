//! integration

mod vision;
