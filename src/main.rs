//! detectd
fn main() {}
