//! What has become of a run's frames: where each stands, and how many ended how.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The frames of a run in their order. Each is still to be sent, waits for its answer, or is done with.
#[derive(Debug)]
pub(super) struct Frames {
    files: Vec<PathBuf>,
    to_send: VecDeque<usize>,
    waiting: VecDeque<usize>,
}

/// How many frames ended how.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: usize,
    pub(super) dropped: BTreeMap<&'static str, usize>,
    pub(super) failed: usize,
}

// === impl Frames ===

impl Frames {
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        Self {
            to_send: (0..files.len()).collect(),
            waiting: VecDeque::new(),
            files,
        }
    }

    /// The next to be sent, which is up to the caller: it is no longer to be sent, and does not wait.
    pub(super) fn next(&mut self) -> Option<(u64, &Path)> {
        let at = self.to_send.pop_front()?;
        Some((at as u64, &self.files[at]))
    }

    pub(super) fn sent(&mut self, id: u64) {
        self.waiting.push_back(id as usize);
    }

    /// The file of the frame that has an answer now, if it is the one whose turn it is.
    pub(super) fn answered(&mut self, id: u64) -> Option<&Path> {
        let at = *self.waiting.front().filter(|at| **at as u64 == id)?;
        self.waiting.pop_front();
        Some(&self.files[at])
    }

    /// What waits will have no answer: it is to be sent again, before the others.
    pub(super) fn take_back(&mut self) {
        self.waiting.append(&mut self.to_send);
        std::mem::swap(&mut self.waiting, &mut self.to_send);
    }

    /// Takes out those that wait and whose file is larger than this, in bytes.
    pub(super) fn take_larger(&mut self, most: u64) -> Vec<(u64, PathBuf)> {
        let size = |at: usize| std::fs::metadata(&self.files[at]).map_or(0, |file| file.len());
        let (larger, waiting): (VecDeque<usize>, VecDeque<usize>) =
            self.waiting.iter().partition(|at| size(**at) > most);
        self.waiting = waiting;
        let named = |at: usize| (at as u64, self.files[at].clone());
        larger.into_iter().map(named).collect()
    }

    pub(super) fn all_sent(&self) -> bool {
        self.to_send.is_empty()
    }

    pub(super) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first that is not done with.
    pub(super) fn first(&self) -> Option<&Path> {
        let at = self.waiting.front().or(self.to_send.front())?;
        Some(&self.files[*at])
    }

    pub(super) fn left(&self) -> usize {
        self.waiting.len() + self.to_send.len()
    }
}

// === impl Tally ===

impl Tally {
    /// The line at the end of a run that left so many frames undone.
    pub(super) fn line(&self, left: usize, took: Duration) -> String {
        let dropped: usize = self.dropped.values().sum();
        let done = self.answered + dropped + self.failed;
        let mut line = format!("{} frames  {} answered", done + left, self.answered);
        for (reason, count) in &self.dropped {
            line.push_str(&format!("  {count} {reason}"));
        }
        if self.failed > 0 {
            line.push_str(&format!("  {} failed", self.failed));
        }
        if left > 0 {
            line.push_str(&format!("  {left} left undone"));
        }
        let rate = done as f64 / took.as_secs_f64();
        line.push_str(&format!("  {rate:.1} frames/s"));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_is_sent_again_first_and_what_is_done_with_is_not() {
        let mut frames = Frames::new(["a", "b", "c", "d"].map(PathBuf::from).to_vec());
        for unread in [false, true, false] {
            let (id, _) = frames.next().unwrap();
            if !unread {
                frames.sent(id);
            }
        }
        assert_eq!(frames.answered(2), None);
        assert_eq!(frames.answered(0), Some(Path::new("a")));
        assert!(frames.any_waits() && !frames.all_sent());
        frames.take_back();
        assert!(!frames.any_waits());
        assert_eq!((frames.left(), frames.first()), (2, Some(Path::new("c"))));
        assert_eq!(frames.next(), Some((2, Path::new("c"))));
        assert_eq!(frames.next(), Some((3, Path::new("d"))));
        assert_eq!(frames.next(), None);
    }
}
