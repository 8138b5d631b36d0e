//! Thread priority.

/// Makes this thread step back by `niceness` behind where the process stands. A failure costs promptness under
/// load, not correctness.
pub fn step_back(niceness: i32) {
    // Linux keeps a niceness for each thread; a new one starts with its parent's.
    let stepped = rustix::process::getpriority_process(None).and_then(|now| {
        // 19 is as far back as it goes.
        rustix::process::setpriority_process(None, (now + niceness).min(19))
    });
    if let Err(error) = stepped {
        tracing::warn!(%error, niceness, "a thread's priority cannot be lowered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_back_from_where_it_stands_and_no_further_than_it_can() {
        let stepped = std::thread::spawn(|| {
            let before = rustix::process::getpriority_process(None).unwrap();
            step_back(3);
            let once = rustix::process::getpriority_process(None).unwrap();
            step_back(30);
            (
                before,
                once,
                rustix::process::getpriority_process(None).unwrap(),
            )
        });
        let (before, once, twice) = stepped.join().unwrap();
        assert_eq!(once, (before + 3).min(19));
        assert_eq!(twice, 19);
    }
}
