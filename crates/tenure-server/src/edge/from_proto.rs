//! Reads etcd's messages once, into commands that are valid whatever the state says. What is refused here costs
//! the replica nothing. The order of the checks is etcd's: the first one that fails is the answer.

use bytes::Bytes;
use tenure_proto::etcdserverpb as pb;
use tenure_replica::input::Consistency;
use tenure_state::command::{
    Alarm, Compare, CompareResult, CompareTarget, DeleteRange, Op, Put, PutLease, Range, Sort, SortOrder,
    SortTarget, Txn,
};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::key::KeyRange;
use tenure_state::txn::{TxnError, check};

use super::status::Invalid;

/// Anything shorter is copied out of the network buffer, so that a small value does not pin a large buffer for
/// as long as the key lives.
const SHARED_BYTES_MIN: usize = 4096;

/// The longest TTL that etcd grants.
const TTL_MAX_SECONDS: i64 = 9_000_000_000;
/// The shortest TTL on etcd's API; whatever is asked for below is raised to it.
const TTL_MIN_SECONDS: i64 = 1;

/// Bytes that will be stored, out of a message of `message_bytes`. They stay in its buffer only where they are
/// most of it.
fn stored(bytes: Bytes, message_bytes: usize) -> Bytes {
    if bytes.len() >= SHARED_BYTES_MIN && bytes.len() >= message_bytes / 2 {
        bytes
    } else {
        Bytes::copy_from_slice(&bytes)
    }
}

fn key_range(key: Bytes, range_end: Bytes) -> Result<KeyRange, Invalid> {
    if key.is_empty() { Err(Invalid::EmptyKey) } else { Ok(KeyRange::new(key, range_end)) }
}

pub(crate) fn consistency(serializable: bool) -> Consistency {
    if serializable { Consistency::Serializable } else { Consistency::Linearizable }
}

pub(crate) fn range(request: pb::RangeRequest) -> Result<Range, Invalid> {
    use pb::range_request as wire;
    let range = key_range(request.key, request.range_end)?;
    let order = match wire::SortOrder::try_from(request.sort_order) {
        Ok(wire::SortOrder::None) => SortOrder::None,
        Ok(wire::SortOrder::Ascend) => SortOrder::Ascend,
        Ok(wire::SortOrder::Descend) => SortOrder::Descend,
        Err(_) => return Err(Invalid::SortOption),
    };
    let target = match wire::SortTarget::try_from(request.sort_target) {
        Ok(wire::SortTarget::Key) => SortTarget::Key,
        Ok(wire::SortTarget::Version) => SortTarget::Version,
        Ok(wire::SortTarget::Create) => SortTarget::Create,
        Ok(wire::SortTarget::Mod) => SortTarget::Mod,
        Ok(wire::SortTarget::Value) => SortTarget::Value,
        Err(_) => return Err(Invalid::SortOption),
    };
    Ok(Range {
        range,
        revision: request.revision,
        limit: request.limit,
        sort: Sort { target, order },
        keys_only: request.keys_only,
        count_only: request.count_only,
        mod_min: request.min_mod_revision,
        mod_max: request.max_mod_revision,
        create_min: request.min_create_revision,
        create_max: request.max_create_revision,
    })
}

/// A range that can be sent while it is read: in the order of the store and without bounds.
pub(crate) fn range_stream(request: pb::RangeRequest) -> Result<Range, Invalid> {
    let mut range = range(request)?;
    let bounds = [range.mod_min, range.mod_max, range.create_min, range.create_max];
    match range.sort {
        // As etcd sees it, a target without an order asks for nothing.
        Sort { order: SortOrder::None, .. } | Sort { target: SortTarget::Key, order: SortOrder::Ascend } => {}
        _ => return Err(Invalid::StreamOrder),
    }
    if bounds.iter().any(|bound| *bound != 0) {
        return Err(Invalid::StreamBounds);
    }
    range.sort = Sort::default();
    Ok(range)
}

pub(crate) fn put(request: pb::PutRequest) -> Result<Put, Invalid> {
    // A key and a value are all that weighs anything in it.
    let message_bytes = request.key.len() + request.value.len();
    put_of(request, message_bytes)
}

fn put_of(request: pb::PutRequest, message_bytes: usize) -> Result<Put, Invalid> {
    if request.key.is_empty() {
        return Err(Invalid::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Invalid::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Invalid::LeaseProvided);
    }
    Ok(Put {
        key: stored(request.key, message_bytes),
        value: (!request.ignore_value).then(|| stored(request.value, message_bytes)),
        lease: match request.ignore_lease {
            true => PutLease::Keep,
            false => PutLease::Set(LeaseId(request.lease)),
        },
        prev: request.prev_kv,
    })
}

pub(crate) fn delete_range(request: pb::DeleteRangeRequest) -> Result<DeleteRange, Invalid> {
    Ok(DeleteRange { range: key_range(request.key, request.range_end)?, prev: request.prev_kv })
}

/// How a transaction is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnPath {
    /// It writes nothing, and is read like this.
    Read(Consistency),
    /// Through the log.
    Write,
}

/// etcd's rules: a nested transaction makes it a write whatever is in it, and it is serializable if all its
/// ranges are, which holds for one without any.
pub(crate) fn txn_path(request: &pb::TxnRequest) -> TxnPath {
    let mut serializable = true;
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(pb::request_op::Request::RequestRange(range)) => serializable &= range.serializable,
            _ => return TxnPath::Write,
        }
    }
    TxnPath::Read(consistency(serializable))
}

/// `message_bytes` is the size of the whole request.
pub(crate) fn txn(request: pb::TxnRequest, ops_max: usize, message_bytes: usize) -> Result<Txn, Invalid> {
    let txn = branches(request, ops_max, message_bytes)?;
    check(&txn, ops_max).map_err(|wrong| match wrong {
        TxnError::EmptyKey => Invalid::EmptyKey,
        TxnError::TooManyOps => Invalid::TooManyOps,
        TxnError::DuplicateKey => Invalid::DuplicateKey,
    })?;
    Ok(txn)
}

/// Checks each operation by itself, and the sizes of all lists, in one pass.
fn branches(request: pb::TxnRequest, ops_max: usize, message_bytes: usize) -> Result<Txn, Invalid> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    // What is nested shares what the longest list leaves, which bounds the depth as well.
    let ops_left = ops_max.checked_sub(longest).ok_or(Invalid::TooManyOps)?;
    let ops = |ops: Vec<pb::RequestOp>| -> Result<Vec<Op>, Invalid> {
        ops.into_iter().map(|it| op(it, ops_left, message_bytes)).collect()
    };
    Ok(Txn {
        compare: request.compare.into_iter().map(compare).collect::<Result<_, _>>()?,
        success: ops(request.success)?,
        failure: ops(request.failure)?,
    })
}

fn op(request: pb::RequestOp, ops_left: usize, message_bytes: usize) -> Result<Op, Invalid> {
    use pb::request_op::Request;
    match request.request.ok_or(Invalid::EmptyOp)? {
        Request::RequestRange(request) => range(request).map(Op::Range),
        Request::RequestPut(request) => put_of(request, message_bytes).map(Op::Put),
        Request::RequestDeleteRange(request) => delete_range(request).map(Op::DeleteRange),
        Request::RequestTxn(request) => Ok(Op::Txn(Box::new(branches(request, ops_left, message_bytes)?))),
    }
}

fn compare(request: pb::Compare) -> Result<Compare, Invalid> {
    use pb::compare::{CompareTarget as Target, TargetUnion};
    let range = key_range(request.key, request.range_end)?;
    let target = Target::try_from(request.target);
    // What is compared is what `target` names; an operand of another kind counts as none, which is zero.
    let target = match (target, request.target_union) {
        (Ok(Target::Version), Some(TargetUnion::Version(version))) => CompareTarget::Version(version),
        (Ok(Target::Version), _) => CompareTarget::Version(0),
        (Ok(Target::Create), Some(TargetUnion::CreateRevision(revision))) => CompareTarget::Create(revision),
        (Ok(Target::Create), _) => CompareTarget::Create(0),
        (Ok(Target::Mod), Some(TargetUnion::ModRevision(revision))) => CompareTarget::Mod(revision),
        (Ok(Target::Mod), _) => CompareTarget::Mod(0),
        (Ok(Target::Value), Some(TargetUnion::Value(value))) => CompareTarget::Value(value),
        (Ok(Target::Value), _) => CompareTarget::Value(Bytes::new()),
        (Ok(Target::Lease), Some(TargetUnion::Lease(lease))) => CompareTarget::Lease(lease),
        (Ok(Target::Lease), _) => CompareTarget::Lease(0),
        (Err(_), _) => return Ok(compare_nothing(range, request.result)),
    };
    let result = match wire_result(request.result) {
        Some(result) => result,
        // etcd takes a comparison that it does not know for one that holds; of a value, if there is one.
        None if matches!(target, CompareTarget::Value(_)) => return Ok(exists(range)),
        None => return Ok(constant(range, true)),
    };
    Ok(Compare { range, result, target })
}

fn wire_result(result: i32) -> Option<CompareResult> {
    use pb::compare::CompareResult as Result;
    Some(match Result::try_from(result).ok()? {
        Result::Equal => CompareResult::Equal,
        Result::Greater => CompareResult::Greater,
        Result::Less => CompareResult::Less,
        Result::NotEqual => CompareResult::NotEqual,
    })
}

/// etcd takes what a target that it does not know names for equal to the operand.
fn compare_nothing(range: KeyRange, result: i32) -> Compare {
    let holds = matches!(wire_result(result), None | Some(CompareResult::Equal));
    constant(range, holds)
}

/// A comparison that always holds, or never: no key has a version below 0.
fn constant(range: KeyRange, holds: bool) -> Compare {
    let result = if holds { CompareResult::Greater } else { CompareResult::Less };
    Compare { range, result, target: CompareTarget::Version(-1) }
}

/// Holds if a key of the range lives.
fn exists(range: KeyRange) -> Compare {
    Compare { range, result: CompareResult::Greater, target: CompareTarget::Version(0) }
}

/// The TTL that a grant gets for the seconds that it asks for.
pub(crate) fn ttl(seconds: i64) -> Result<Nanos, Invalid> {
    if seconds > TTL_MAX_SECONDS {
        return Err(Invalid::TtlTooLarge);
    }
    Ok(Nanos::from_secs(seconds.max(TTL_MIN_SECONDS).unsigned_abs()))
}

/// `None` for "any", which is also what an alarm that nobody knows counts as.
pub(crate) fn alarm(kind: i32) -> Option<Alarm> {
    match pb::AlarmType::try_from(kind) {
        Ok(pb::AlarmType::Nospace) => Some(Alarm::NoSpace),
        Ok(pb::AlarmType::Corrupt) => Some(Alarm::Corrupt),
        Ok(pb::AlarmType::None) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests;
