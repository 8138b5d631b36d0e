//! Writing to the terminal: the one place that prints.

use std::io::Write;

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
