//! Every "no" in etcd's exact words and code. Clients match on the text, so a letter here is an interface.

use tenure_replica::effect::Failure;
use tenure_state::refusal::Refusal;
use tonic::{Code, Status};

/// What is wrong with a request whatever the state says: found before it costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// No key where there must be one.
    EmptyKey,
    /// An operation of a transaction that says nothing at all. etcd's text for it is that of a missing key.
    EmptyOp,
    ValueProvided,
    LeaseProvided,
    TooManyOps,
    DuplicateKey,
    SortOption,
    TooLarge,
    TtlTooLarge,
    ApiVersion,
    /// A range stream in an order that would need the whole result first.
    StreamOrder,
    /// A range stream with bounds on revisions.
    StreamBounds,
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Status {
        let (code, text) = match invalid {
            Invalid::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided"),
            Invalid::EmptyOp => (Code::InvalidArgument, "etcdserver: key not found"),
            Invalid::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
            Invalid::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
            Invalid::TooManyOps => (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
            Invalid::DuplicateKey => {
                (Code::InvalidArgument, "etcdserver: duplicate key given in txn request")
            }
            Invalid::SortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
            Invalid::TooLarge => (Code::InvalidArgument, "etcdserver: request is too large"),
            Invalid::TtlTooLarge => (Code::OutOfRange, "etcdserver: too large lease TTL"),
            Invalid::ApiVersion => (Code::InvalidArgument, "etcdserver: invalid client api version"),
            Invalid::StreamOrder => (Code::Unimplemented, "RangeStream does not support custom sort orders"),
            Invalid::StreamBounds => (Code::Unimplemented, "RangeStream does not support revision filters"),
        };
        Status::new(code, text)
    }
}

/// The state's deterministic "no".
pub(crate) fn refusal(refusal: Refusal) -> Status {
    let (code, text) = match refusal {
        Refusal::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Refusal::Compacted => (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
        Refusal::FutureRevision => {
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
        }
        Refusal::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found"),
        Refusal::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Refusal::NoSpace => (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        Refusal::Corrupt => (Code::DataLoss, "etcdserver: corrupt cluster"),
        // Leases in trees are not etcd's, and neither are these words.
        Refusal::ParentNotFound => (Code::NotFound, "tenure: parent lease not found"),
        Refusal::TreeTooDeep => (Code::FailedPrecondition, "tenure: lease tree is too deep"),
        // The replica proposes such an entry again and answers with what became of that.
        Refusal::StaleTerm => return leader_changed(),
    };
    Status::new(code, text)
}

/// Why there is no answer at all.
pub(crate) fn failure(failure: Failure) -> Status {
    match failure {
        Failure::Refused(why) => refusal(why),
        Failure::NoLeader => no_leader(),
        Failure::LeaderChanged => leader_changed(),
        // etcd loses the code of this one on its way to the wire, and clients know it by its text.
        Failure::TooManyRequests => Status::new(Code::Unknown, "etcdserver: too many requests"),
        Failure::TimedOut => Status::new(Code::Unavailable, "etcdserver: request timed out"),
        Failure::TooLarge => Invalid::TooLarge.into(),
        Failure::Stopped => stopped(),
    }
}

/// An answer that would not fit into one message: grpc-go's words, which are etcd's.
pub(crate) fn reply_too_large(bytes: usize, bytes_max: usize) -> Status {
    let text = format!("grpc: trying to send message larger than max ({bytes} vs. {bytes_max})");
    Status::new(Code::ResourceExhausted, text)
}

pub(crate) fn no_leader() -> Status {
    Status::new(Code::Unavailable, "etcdserver: no leader")
}

fn leader_changed() -> Status {
    Status::new(Code::Unavailable, "etcdserver: leader changed")
}

/// How every open stream ends when the server stops.
pub(crate) fn stopped() -> Status {
    Status::new(Code::Unavailable, "etcdserver: server stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `what` is answered with exactly this.
    fn check(status: Status, code: Code, text: &str) {
        assert_eq!((status.code(), status.message()), (code, text));
    }

    #[test]
    fn invalid_requests_are_answered_in_the_words_of_etcd() {
        use Code::{InvalidArgument, OutOfRange, Unimplemented};
        for (invalid, code, text) in [
            (Invalid::EmptyKey, InvalidArgument, "etcdserver: key is not provided"),
            (Invalid::EmptyOp, InvalidArgument, "etcdserver: key not found"),
            (Invalid::ValueProvided, InvalidArgument, "etcdserver: value is provided"),
            (Invalid::LeaseProvided, InvalidArgument, "etcdserver: lease is provided"),
            (Invalid::TooManyOps, InvalidArgument, "etcdserver: too many operations in txn request"),
            (Invalid::DuplicateKey, InvalidArgument, "etcdserver: duplicate key given in txn request"),
            (Invalid::SortOption, InvalidArgument, "etcdserver: invalid sort option"),
            (Invalid::TooLarge, InvalidArgument, "etcdserver: request is too large"),
            (Invalid::TtlTooLarge, OutOfRange, "etcdserver: too large lease TTL"),
            (Invalid::ApiVersion, InvalidArgument, "etcdserver: invalid client api version"),
            (Invalid::StreamOrder, Unimplemented, "RangeStream does not support custom sort orders"),
            (Invalid::StreamBounds, Unimplemented, "RangeStream does not support revision filters"),
        ] {
            check(invalid.into(), code, text);
        }
    }

    #[test]
    fn refusals_are_answered_in_the_words_of_etcd() {
        use Code::{DataLoss, FailedPrecondition, InvalidArgument, NotFound, OutOfRange, ResourceExhausted};
        for (why, code, text) in [
            (Refusal::KeyNotFound, InvalidArgument, "etcdserver: key not found"),
            (Refusal::Compacted, OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
            (Refusal::FutureRevision, OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
            (Refusal::LeaseNotFound, NotFound, "etcdserver: requested lease not found"),
            (Refusal::LeaseExists, FailedPrecondition, "etcdserver: lease already exists"),
            (Refusal::NoSpace, ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            (Refusal::Corrupt, DataLoss, "etcdserver: corrupt cluster"),
            (Refusal::ParentNotFound, NotFound, "tenure: parent lease not found"),
            (Refusal::TreeTooDeep, FailedPrecondition, "tenure: lease tree is too deep"),
            (Refusal::StaleTerm, Code::Unavailable, "etcdserver: leader changed"),
        ] {
            check(refusal(why), code, text);
            check(failure(Failure::Refused(why)), code, text);
        }
    }

    #[test]
    fn failures_are_answered_in_the_words_of_etcd() {
        use Code::{InvalidArgument, Unavailable, Unknown};
        for (why, code, text) in [
            (Failure::NoLeader, Unavailable, "etcdserver: no leader"),
            (Failure::LeaderChanged, Unavailable, "etcdserver: leader changed"),
            (Failure::TooManyRequests, Unknown, "etcdserver: too many requests"),
            (Failure::TimedOut, Unavailable, "etcdserver: request timed out"),
            (Failure::TooLarge, InvalidArgument, "etcdserver: request is too large"),
            (Failure::Stopped, Unavailable, "etcdserver: server stopped"),
        ] {
            check(failure(why), code, text);
        }
    }
}
