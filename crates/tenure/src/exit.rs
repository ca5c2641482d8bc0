//! Exit codes: what a script learns without parsing a message.

use std::{fmt, io};

use tenure_client::ClientError;
use tenure_server::inspect::InspectError;
use tonic::Code;

pub const ERROR: u8 = 1;
pub const USAGE: u8 = 2;
pub const NOT_FOUND: u8 = 3;
pub const CONFLICT: u8 = 4;
pub const DAMAGED: u8 = 65;
pub const NO_CLUSTER: u8 = 69;
pub const LEASE_LOST: u8 = 75;
pub const TIMED_OUT: u8 = 124;

/// A failure that this program found itself, with the code that goes with it.
#[derive(Debug)]
pub enum Failure {
    Usage(String),
    NotFound(String),
    Conflict(String),
    LeaseLost(String),
    NoCluster(String),
    /// Everything that there is to say has been printed.
    Silent(u8),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text)
            | Failure::NotFound(text)
            | Failure::Conflict(text)
            | Failure::LeaseLost(text)
            | Failure::NoCluster(text) => f.write_str(text),
            Failure::Silent(code) => write!(f, "exit code {code}"),
        }
    }
}

impl std::error::Error for Failure {}

pub fn code(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return 0;
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return match failure {
            Failure::Usage(_) => USAGE,
            Failure::NotFound(_) => NOT_FOUND,
            Failure::Conflict(_) => CONFLICT,
            Failure::LeaseLost(_) => LEASE_LOST,
            Failure::NoCluster(_) => NO_CLUSTER,
            Failure::Silent(code) => *code,
        };
    }
    if let Some(inspected) = error.downcast_ref::<InspectError>() {
        return u8::try_from(inspected.exit_code()).unwrap_or(ERROR);
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Endpoint { .. }) => USAGE,
        Some(ClientError::Connect { .. } | ClientError::Broken { .. } | ClientError::NotGrpc { .. }) => {
            NO_CLUSTER
        }
        Some(ClientError::Timeout { .. }) => TIMED_OUT,
        Some(ClientError::LeaseNotFound { .. }) => NOT_FOUND,
        Some(ClientError::Server { code, .. }) => match code {
            Code::NotFound => NOT_FOUND,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => CONFLICT,
            Code::Unavailable => NO_CLUSTER,
            Code::DeadlineExceeded => TIMED_OUT,
            _ => ERROR,
        },
        _ => ERROR,
    }
}

/// Nobody is left to read, as in `tenure get -p '' | head -1`: not this program's failure, and no reason for a message.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

pub fn is_silent(error: &anyhow::Error) -> bool {
    is_broken_pipe(error) || matches!(error.downcast_ref(), Some(Failure::Silent(_)))
}

#[cfg(test)]
mod tests {
    use tenure_client::Outcome;

    use super::*;

    fn code_of(error: impl Into<anyhow::Error>) -> u8 {
        code(&error.into())
    }

    fn server(code: Code) -> ClientError {
        ClientError::Server { code, message: String::new() }
    }

    #[test]
    fn every_kind_of_failure_has_its_code() {
        assert_eq!(code_of(Failure::Usage(String::new())), 2);
        assert_eq!(code_of(Failure::LeaseLost(String::new())), 75);
        assert_eq!(code_of(ClientError::Connect { tried: Vec::new() }), 69);
        assert_eq!(code_of(ClientError::NotGrpc { endpoint: String::new(), why: String::new() }), 69);
        assert_eq!(
            code_of(ClientError::Timeout { after: std::time::Duration::ZERO, of: Outcome::Unknown }),
            124
        );
        assert_eq!(code_of(ClientError::LeaseNotFound { id: tenure_client::LeaseId(1) }), 3);
        assert_eq!(code_of(server(Code::NotFound)), 3);
        assert_eq!(code_of(server(Code::FailedPrecondition)), 4);
        assert_eq!(code_of(server(Code::Unavailable)), 69);
        assert_eq!(code_of(server(Code::OutOfRange)), 1);
        assert_eq!(code_of(io::Error::from(io::ErrorKind::BrokenPipe)), 0);
        assert_eq!(code_of(io::Error::from(io::ErrorKind::StorageFull)), 1);
    }
}
