//! What a server, or what lies between, says instead of an answer.

use std::fmt;

use serde_json::json;
use tonic::{Code, Status};
use tonic_types::{ErrorInfo, RpcStatusExt, StatusExt};

/// Code, reason and text of a status.
#[derive(Debug)]
pub(in crate::cli) struct Refusal {
    code: Code,
    /// None where no server of ours has said it.
    reason: Option<String>,
    /// The bound that was passed, where one was.
    limit: Option<u64>,
    text: String,
}

// === impl Refusal ===

impl Refusal {
    fn new(code: Code, info: Option<ErrorInfo>, text: &str) -> Self {
        let limit = info.as_ref().and_then(|info| info.metadata.get("limit"));
        Self {
            code,
            limit: limit.and_then(|limit| limit.parse().ok()),
            reason: info.map(|info| info.reason),
            text: text.to_owned(),
        }
    }

    /// Whether another server, or the same one later, may take what this one did not.
    pub(in crate::cli) fn may_pass(&self) -> bool {
        match self.reason {
            Some(_) => self.code == Code::Unavailable,
            // A server's own statuses have a reason. Without one the connection broke, or a proxy cut it, and each
            // library and proxy has a code of its own for that.
            None => matches!(
                self.code,
                Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
            ),
        }
    }

    /// The most bytes that a message may have, where one had more.
    pub(in crate::cli) fn message_limit(&self) -> Option<u64> {
        let too_large = self.reason.as_deref() == Some("MESSAGE_TOO_LARGE");
        self.limit.filter(|_| too_large)
    }

    pub(in crate::cli) fn as_json(&self) -> serde_json::Value {
        json!({"code": format!("{:?}", self.code), "reason": self.reason, "message": self.text})
    }
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        Self::new(
            status.code(),
            status.get_details_error_info(),
            status.message(),
        )
    }
}

/// A frame's error.
impl From<&tonic_types::pb::Status> for Refusal {
    fn from(status: &tonic_types::pb::Status) -> Self {
        let code = Code::from(status.code);
        Self::new(code, status.get_details_error_info(), &status.message)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.code)?;
        if let Some(reason) = &self.reason {
            write!(f, " {reason}")?;
        }
        write!(f, ": {}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: Code, reason: Option<&str>) -> Refusal {
        Refusal {
            code,
            reason: reason.map(str::to_owned),
            limit: None,
            text: "text".to_owned(),
        }
    }

    #[test]
    fn a_broken_connection_may_pass_and_what_a_server_says_of_the_stream_does_not() {
        for code in [Code::Unavailable, Code::Unknown, Code::Internal] {
            assert!(refusal(code, None).may_pass(), "{code:?}");
        }
        assert!(refusal(Code::Unavailable, Some("DRAINING")).may_pass());
        for (code, reason) in [
            (Code::Internal, Some("INTERNAL")),
            (Code::ResourceExhausted, Some("SLOW_READER")),
            (Code::Unimplemented, None),
        ] {
            assert!(!refusal(code, reason).may_pass(), "{code:?} {reason:?}");
        }
    }

    #[test]
    fn a_refusal_without_a_reason_reads_well() {
        assert_eq!(refusal(Code::Unknown, None).to_string(), "Unknown: text");
        let told = refusal(Code::NotFound, Some("MODEL_NOT_FOUND"));
        assert_eq!(told.to_string(), "NotFound MODEL_NOT_FOUND: text");
    }
}
