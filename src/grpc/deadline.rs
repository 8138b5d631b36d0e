//! `grpc-timeout`: the caller's deadline, read from the headers.
//!
//! tonic has a timeout of its own, which answers CANCELLED, does not cover a body that is still being sent,
//! and hides the value from the handlers. So it is read here, on the headers, and put into the request's
//! extensions as a [`Deadline`].

use std::time::{Duration, Instant};

use http::HeaderMap;

use super::error::CallError;
use crate::pipeline::DetectError;
use crate::scheduling::Deadline;

const HEADER: &str = "grpc-timeout";

/// The deadline in `headers`, counted from `now`.
///
/// # Errors
/// [`DetectError::InvalidOption`] for a value that the protocol does not know.
pub(super) fn read(headers: &HeaderMap, now: Instant) -> Result<Deadline, CallError> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(Deadline::NEVER);
    };
    let timeout = value.to_str().ok().and_then(parse);
    let timeout = timeout.ok_or_else(|| DetectError::InvalidOption {
        field: HEADER,
        detail: format!("{value:?} is not up to eight digits and one of H, M, S, m, u, n"),
    })?;
    Ok(Deadline::after(now, timeout))
}

/// Parses at most eight digits and a unit, as the gRPC protocol over HTTP/2 has it.
fn parse(value: &str) -> Option<Duration> {
    let unit = value.chars().last()?;
    let digits = value.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount * 60 * 60),
        'M' => Duration::from_secs(amount * 60),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_the_protocol_is_read() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7_200)));
        assert_eq!(parse("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("5m"), Some(Duration::from_millis(5)));
        assert_eq!(parse("5u"), Some(Duration::from_micros(5)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
    }

    #[test]
    fn what_the_protocol_does_not_know_is_refused() {
        for value in [
            "",
            "m",
            "5",
            "5s",
            "-5m",
            "+5m",
            "123456789m",
            "5 m",
            "5µ",
            "é",
        ] {
            assert_eq!(parse(value), None, "{value:?}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(read(&headers, Instant::now()).unwrap(), Deadline::NEVER);
        headers.insert(HEADER, "soon".parse().unwrap());
        assert!(read(&headers, Instant::now()).is_err());
    }
}
