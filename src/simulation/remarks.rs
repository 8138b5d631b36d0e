//! Remarks on a run: what whoever reads its numbers should not have to guess.

use super::counts::Counts;
use super::scenario::{Arrivals, Scenario, Source};

/// Why the numbers of a source are all zero, if they are.
pub(super) fn remark(scenario: &Scenario, source: &Source, counts: &Counts) -> Option<String> {
    let name = &source.name;
    match (counts.sent, counts.tally.offered) {
        (0, _) => Some(format!(
            "source {name} sent nothing: {}",
            why(scenario, source)
        )),
        (_, 0) => Some(format!("source {name} sent nothing after warm_up")),
        _ => None,
    }
}

fn why(scenario: &Scenario, source: &Source) -> String {
    let (start, stop) = scenario.window(source);
    match &source.arrivals {
        _ if start >= stop => format!("it would begin at {start} s and end at {stop} s"),
        Arrivals::Trace { .. } => "its trace has no time before its end".to_owned(),
        Arrivals::Closed { .. } => "its callers think for longer than it lasts".to_owned(),
        Arrivals::Poisson { .. } | Arrivals::Burst { .. } | Arrivals::Constant { .. } => format!(
            "at its rate {:.2e} requests were to be expected",
            scenario.expected(source)
        ),
    }
}
