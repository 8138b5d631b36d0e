//! Who a request is from, and how urgent it is: what the doors tell about a call beside its message.

use std::net::IpAddr;
use std::sync::Arc;

use crate::scheduling::Priority;

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
