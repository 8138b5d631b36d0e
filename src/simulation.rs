//! Simulation: the server's own [`Machine`](crate::scheduling::Machine) in virtual time, with synthetic devices, CPU
//! stages and callers.
//!
//! It answers what a real machine answers slowly or not at all: what a load does to a host that is not there, what
//! a policy is worth, how many devices are enough. The policies are not modelled; they are the ones that serve.
//! Everything around them is: see `docs/SIMULATION.md` for what is and what is not.
//!
//! | file | job |
//! |---|---|
//! | [`scenario`] | what is simulated: the words of the file |
//! | [`check`] | whether they make sense |
//! | [`work`] | how much they ask for, and how much may be asked for |
//! | [`document`] | the file itself, whose values can be replaced by path |
//! | [`distribution`] | times that vary, and a table of kinds |
//! | [`random`] | numbers from a seed |
//! | [`agenda`] | what happens when, in virtual time |
//! | [`caller`] | who sends when |
//! | [`cores`] | cores shared by all that run on them |
//! | [`pool`] | the CPU workers |
//! | [`device`] | synthetic instances, with their faults |
//! | [`world`] | the loop: events into the machine, its actions into the world |
//! | [`ledger`], [`counts`] | what is counted on the way |
//! | [`report`] | what came out |
//! | [`remarks`] | what is odd about it |
//! | [`study`] | many runs: a sweep over values, the smallest host for a load |
//! | [`chart`] | a report drawn |
//!
//! There is no thread, no clock and no chance in it but the seed's: the same scenario gives the same report.

mod agenda;
mod caller;
pub mod chart;
mod check;
mod cores;
mod counts;
mod device;
mod distribution;
mod document;
mod ledger;
mod pool;
mod random;
mod remarks;
pub mod report;
pub mod scenario;
mod study;
mod work;
mod world;

pub use document::{Document, ScenarioError};
pub use report::Report;
pub use scenario::Scenario;
pub use study::{Plan, Row, plan, sweep};

/// Plays `scenario` from its beginning until the last request has been answered or let go.
pub fn simulate(scenario: &Scenario) -> Report {
    world::World::new(scenario).run()
}
