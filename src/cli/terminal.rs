//! Writing to the terminal: the one place that prints.

use std::io::{IsTerminal, Write};

/// Prints a line on standard output. A reader that has gone, as `head` does, is no fault of ours.
pub(super) fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Prints a line on standard error.
pub(super) fn complain(line: &str) {
    drop(writeln!(std::io::stderr(), "detectd: {line}"));
}

/// Prints a line on standard output unless it is read by a program.
pub(super) fn say_unless(for_a_program: bool, line: &str) {
    if !for_a_program {
        say(line);
    }
}

/// A line on standard error that says how far a command is, and goes again. Only a terminal shows it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    shown: bool,
}

/// An error and its causes in one line, without what a cause says that has been said.
pub(super) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            let separator = if line.is_empty() { "" } else { ": " };
            line.push_str(separator);
            line.push_str(&cause);
        }
    }
    line
}

// === impl Progress ===

impl Progress {
    /// In place of what it said before.
    pub(super) fn show(&mut self, text: &str) {
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            self.shown = true;
            drop(write!(stderr, "\r{text}\x1b[K"));
        }
    }

    /// Makes room for other lines.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            drop(write!(std::io::stderr(), "\r\x1b[K"));
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_that_has_been_told_is_not_told_again() {
        let error = anyhow!("no such file")
            .context("cannot read a: no such file")
            .context("cannot start");
        assert_eq!(
            one_line(&error),
            "cannot start: cannot read a: no such file"
        );
    }
}
