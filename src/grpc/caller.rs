//! Who a call is from, and how urgent it is, read from its connection and its headers.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use super::error::CallError;
use crate::pipeline::{Caller, DetectError, Source};
use crate::scheduling::Priority;

/// Says how urgent a call is.
const PRIORITY: &str = "x-detectd-priority";

/// A name longer than this is cut: what tells sources apart fits, and what does not is no name.
const MAX_NAME: usize = 128;

/// The other end of a connection: its address, or `None` over a Unix socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) Option<IpAddr>);

/// The caller of a request with these headers, over a connection from `peer`. `trusted` is the header in which a
/// trusted proxy names the source.
///
/// # Errors
/// [`DetectError::InvalidOption`] for a priority that there is not.
pub(super) fn caller(
    headers: &HeaderMap,
    peer: Peer,
    trusted: Option<&HeaderName>,
) -> Result<Caller, CallError> {
    let named = trusted
        .and_then(|name| headers.get(name))
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let source = match (named, peer) {
        (Some(name), _) if !name.is_empty() => {
            Source::Named(name[..name.floor_char_boundary(MAX_NAME)].into())
        }
        (_, Peer(Some(address))) => Source::Address(address),
        (_, Peer(None)) => Source::Local,
    };
    let priority = match headers.get(PRIORITY).map(|value| value.as_bytes()) {
        None | Some(b"" | b"interactive") => Priority::Interactive,
        Some(b"batch") => Priority::Batch,
        Some(other) => {
            let invalid = DetectError::InvalidOption {
                field: PRIORITY,
                detail: format!(
                    "{:?} is neither interactive nor batch",
                    String::from_utf8_lossy(other)
                ),
            };
            return Err(invalid.into());
        }
    };
    Ok(Caller { source, priority })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    const PEER: Peer = Peer(Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)));

    #[test]
    fn a_source_is_its_address_unless_a_trusted_proxy_names_it() {
        let tenant = HeaderName::from_static("x-tenant");
        let named = headers(&[("x-tenant", "blue")]);
        let source =
            |headers: &HeaderMap, peer, trusted| caller(headers, peer, trusted).unwrap().source;
        let none = HeaderMap::new();
        let by_address = Source::Address([127, 0, 0, 1].into());
        assert_eq!(source(&named, PEER, None), by_address);
        assert_eq!(
            source(&named, PEER, Some(&tenant)),
            Source::Named("blue".into())
        );
        assert_eq!(source(&none, PEER, Some(&tenant)), by_address);
        assert_eq!(source(&none, Peer(None), None), Source::Local);
        let long = "x".repeat(1_000);
        let Source::Named(name) = source(&headers(&[("x-tenant", &long)]), PEER, Some(&tenant))
        else {
            panic!("it is named");
        };
        assert_eq!(name.len(), MAX_NAME);
    }

    #[test]
    fn a_priority_is_one_of_two() {
        let priority = |value| {
            caller(&headers(&[(PRIORITY, value)]), PEER, None).map(|caller| caller.priority)
        };
        assert_eq!(priority("batch").unwrap(), Priority::Batch);
        assert_eq!(priority("interactive").unwrap(), Priority::Interactive);
        let error = priority("urgent").unwrap_err().to_string();
        assert_eq!(
            error,
            "x-detectd-priority: \"urgent\" is neither interactive nor batch"
        );
    }
}
