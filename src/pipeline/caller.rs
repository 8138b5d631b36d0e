//! Who a request is from, and how urgent it is: what the doors tell about a call beside its message.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use crate::scheduling::{Priority, SourceKey};

/// Whoever shares alike with others: all requests of one source are one share, whatever connections they come over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// This machine, over a Unix socket.
    #[default]
    Local,
    /// The machine at this address.
    Address(IpAddr),
    /// As a trusted proxy calls it.
    Named(Arc<str>),
}

/// Who a call is from, and how urgent it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Whose share it takes from.
    pub source: Source,
    /// How urgent it is.
    pub priority: Priority,
}

// === impl Source ===

impl Source {
    /// By what name the scheduler knows it: always the same one, whether or not anything of it is here, so that what it owes and
    /// what its pictures take is found again when it comes back. A hash with a secret of this process: nobody can
    /// choose to share another's name.
    pub(super) fn key(&self, names: &RandomState) -> SourceKey {
        SourceKey(names.hash_one(self))
    }
}
