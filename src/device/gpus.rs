//! Which GPUs this machine has, without loading a driver.

/// The numbers of the NVIDIA devices that the kernel offers, lowest first; empty where there is no driver.
///
/// A hint for `device = "auto"` and no promise: the runtime may still not be able to use one.
pub fn gpus() -> Vec<u32> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("nvidia")?.parse().ok();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| number(entry.file_name()))
        .collect();
    numbers.sort_unstable();
    numbers
}
