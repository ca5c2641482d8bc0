//! The one error of this crate. What the server said is kept word for word, because etcd's clients tell its refusals apart by
//! their text; what went wrong before or after the server is kept apart from it, because only the caller knows whether a write
//! whose outcome is unknown may be repeated.

use std::{fmt, time::Duration};

use tonic::{Code, Status};

use crate::lease::LeaseId;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An endpoint that no connection can ever be made to.
    #[error("endpoint {endpoint:?}: {why}")]
    Endpoint { endpoint: String, why: String },

    /// No endpoint took a connection, so nothing was sent.
    #[error("no cluster: {}", list(tried))]
    Connect { tried: Vec<(String, String)> },

    /// Something answered, but it speaks no gRPC: a wrong port, most likely.
    #[error("{endpoint} is no gRPC endpoint; is it the port for metrics, or another program's? ({why})")]
    NotGrpc { endpoint: String, why: String },

    /// The connection broke while a request was under way.
    #[error("the connection to {endpoint} broke: {why}{of}")]
    Broken { endpoint: String, why: String, of: Outcome },

    /// No answer came in time.
    #[error("no answer within {after:?}{of}")]
    Timeout { after: Duration, of: Outcome },

    /// The server's own answer: etcd's text and gRPC code.
    #[error("{message}")]
    Server { code: Code, message: String },

    /// The history that a watch was to go on from is gone.
    #[error(
        "the watch asks for revisions that have been compacted; the oldest that is left is {compact_revision}"
    )]
    Compacted { compact_revision: i64 },

    /// The server ended a watch for another reason than compaction.
    #[error("the server ended the watch: {reason}")]
    WatchEnded { reason: String },

    /// There is no such lease (any more). Kept apart from `Server` because a renewal learns it from an answer, not from an error.
    #[error("lease {id} is not there: it expired, was revoked or never was")]
    LeaseNotFound { id: LeaseId },

    /// An answer that the protocol does not allow.
    #[error("the server broke the protocol: {what}")]
    Protocol { what: &'static str },
}

/// What is known about a request that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It only asked.
    NothingChanged,
    /// It was a write, and may have been done all the same.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::NothingChanged => Ok(()),
            Outcome::Unknown => f.write_str("; it may or may not have been done"),
        }
    }
}

fn list(tried: &[(String, String)]) -> String {
    let tried: Vec<_> = tried.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect();
    tried.join("; ")
}

impl ClientError {
    pub(crate) fn from_status(endpoint: &str, status: &Status, of: Outcome) -> ClientError {
        let failure = Failure::of(status);
        if let Some(why) = speaks_no_grpc(failure, status) {
            return ClientError::NotGrpc { endpoint: endpoint.to_owned(), why };
        }
        match failure {
            Failure::Answered => {
                ClientError::Server { code: status.code(), message: status.message().to_owned() }
            }
            Failure::NotSent => {
                ClientError::Connect { tried: vec![(endpoint.to_owned(), root_cause(status))] }
            }
            Failure::Broken => {
                ClientError::Broken { endpoint: endpoint.to_owned(), why: root_cause(status), of }
            }
        }
    }

    /// The gRPC code of the server's answer, when there was one.
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// No member could be reached, or the one that was reached cannot serve now.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, ClientError::Connect { .. } | ClientError::Broken { .. })
            || self.code() == Some(Code::Unavailable)
    }

    /// The server does not know the lease.
    pub fn is_lease_not_found(&self) -> bool {
        match self {
            ClientError::LeaseNotFound { .. } => true,
            ClientError::Server { message, .. } => message == "etcdserver: requested lease not found",
            _ => false,
        }
    }
}

/// How far a failed request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There was no connection: the server has seen nothing.
    NotSent,
    /// There was one, and it broke: nobody knows what the server has seen.
    Broken,
    /// The server refused.
    Answered,
}

impl Failure {
    pub(crate) fn of(status: &Status) -> Failure {
        // A status that came over the wire has no source; one that tonic made of a local failure has.
        let Some(first) = std::error::Error::source(status) else { return Failure::Answered };
        let mut source = Some(first);
        while let Some(error) = source {
            if error.is::<tonic::ConnectError>() {
                return Failure::NotSent;
            }
            source = error.source();
        }
        Failure::Broken
    }
}

/// What tonic and h2 make of an HTTP server without gRPC. A proxy that lost its server (`UNAVAILABLE`) is another matter.
fn speaks_no_grpc(failure: Failure, status: &Status) -> Option<String> {
    let text = status.message();
    match failure {
        // Of a page of text, the first letters are taken for the head of a message.
        Failure::Answered if text.contains("invalid compression flag") => {
            let http = text.rsplit_once("response with status: ").map(|(_, http)| format!("HTTP {http}"));
            Some(http.unwrap_or_else(|| text.to_owned()))
        }
        Failure::Answered
            if text.starts_with("grpc-status header missing") && status.code() != Code::Unavailable =>
        {
            Some(text.to_owned())
        }
        // "HTTP/1.1 4…" where a frame should begin.
        Failure::Broken if root_cause(status).contains("frame with invalid size") => {
            Some("it answers as HTTP/1 does".to_owned())
        }
        _ => None,
    }
}

/// The last word of a chain of errors: "Connection refused" instead of "transport error".
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_etcds_code_and_text() {
        let status = Status::failed_precondition("etcdserver: lease already exists");
        let error = ClientError::from_status("http://a:1", &status, Outcome::Unknown);
        assert_eq!(error.code(), Some(Code::FailedPrecondition));
        assert_eq!(error.to_string(), "etcdserver: lease already exists");
    }

    #[test]
    fn a_port_that_speaks_no_grpc_is_told_from_a_refusal() {
        let metrics = "protocol error: received message with invalid compression flag: 77 (valid flags are 0 \
                       and 1) while receiving response with status: 405 Method Not Allowed";
        for (status, why) in [
            (Status::internal(metrics), "(HTTP 405 Method Not Allowed)"),
            (
                Status::unimplemented("grpc-status header missing, mapped from HTTP status code 404"),
                "code 404)",
            ),
        ] {
            let error = ClientError::from_status("http://a:1", &status, Outcome::NothingChanged);
            assert!(matches!(error, ClientError::NotGrpc { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("http://a:1 is no gRPC endpoint") && text.ends_with(why), "{text}");
        }
        let proxy = Status::unavailable("grpc-status header missing, mapped from HTTP status code 503");
        let error = ClientError::from_status("http://a:1", &proxy, Outcome::NothingChanged);
        assert!(error.is_unavailable(), "{error:?}");
    }

    #[test]
    fn only_a_failed_connection_counts_as_not_sent() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(tonic::ConnectError(Box::new(refused))));
        assert_eq!(Failure::of(&status), Failure::NotSent);

        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(Failure::of(&Status::from_error(Box::new(reset))), Failure::Broken);
        assert_eq!(Failure::of(&Status::unavailable("etcdserver: no leader")), Failure::Answered);
    }
}
