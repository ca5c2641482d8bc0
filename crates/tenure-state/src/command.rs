//! Everything that may enter the log, already valid: what can be refused without looking at the state was
//! refused at the edge, before it cost anything.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::ids::{LeaseId, MemberId, Nanos, Revision};
use crate::key::KeyRange;

/// One committed entry of the log, as apply sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub index: u64,
    /// The term of the Raft entry itself; a lease command is only obeyed if its stamp names the same one.
    pub term: u64,
    /// How many logical bytes the store may hold, as the leader had it set when it proposed; 0 is no limit.
    /// It travels in the entry so that all members decide alike while they are configured differently.
    pub quota_bytes: u64,
    pub command: Command,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Changes nothing: Raft's own empty entry of a new term, or a barrier.
    Nothing,
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Txn),
    /// Forget what was superseded at or before this revision. Moves the compact revision at once; the
    /// records go with the [`Command::Scrub`] entries that follow.
    Compact {
        revision: Revision,
    },
    /// Drop superseded records of the compacted past, looking at no more than `limit` records.
    Scrub {
        limit: u32,
    },
    Grant(Grant),
    Revoke {
        id: LeaseId,
    },
    LeaseStep(LeaseStep),
    TakeOver(TakeOver),
    Alarm {
        action: AlarmAction,
        member: MemberId,
        alarm: Alarm,
    },
}

/// The lease clock as the leader of a term read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub term: u64,
    pub clock: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    /// `None` keeps the value that the key has (etcd's `ignore_value`).
    pub value: Option<Bytes>,
    pub lease: PutLease,
    /// Answer with the version before this one.
    pub prev: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutLease {
    /// The key ends with this lease; [`LeaseId::NONE`] detaches it from any.
    Set(LeaseId),
    /// Keep the lease that the key has (etcd's `ignore_lease`).
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    pub range: KeyRange,
    /// Answer with the deleted versions.
    pub prev: bool,
}

/// A read of one range, with etcd's options. Shared by plain reads and transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub range: KeyRange,
    /// 0 or less is the current one. Kept raw, because a transaction reads a negative one differently.
    pub revision: i64,
    /// 0 or less is no limit.
    pub limit: i64,
    pub sort: Sort,
    pub keys_only: bool,
    pub count_only: bool,
    /// Bounds on revisions of a key; 0 is no bound.
    pub mod_min: i64,
    pub mod_max: i64,
    pub create_min: i64,
    pub create_max: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub target: SortTarget,
    pub order: SortOrder,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    #[default]
    Key,
    Version,
    Create,
    Mod,
    Value,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    #[default]
    None,
    Ascend,
    Descend,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Range(Range),
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Box<Txn>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub range: KeyRange,
    pub result: CompareResult,
    pub target: CompareTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareResult {
    Equal,
    Greater,
    Less,
    NotEqual,
}

/// What of a key is compared, with the value that it is compared to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    Version(i64),
    Create(i64),
    Mod(i64),
    Value(Bytes),
    Lease(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub stamp: Stamp,
    /// Never [`LeaseId::NONE`]: drawn at the edge where the client left it open.
    pub id: LeaseId,
    pub ttl: Nanos,
    /// [`LeaseId::NONE`] for the root of a tree, which every lease granted through etcd's API is.
    pub parent: LeaseId,
}

/// Renewals and expiry in one entry, renewals first: a renewal that is earlier in the log wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStep {
    pub stamp: Stamp,
    /// The leases to renew, in ascending order, each once.
    pub renew: Vec<LeaseId>,
    /// How many leases and keys may end in this entry (at least one whole tree does, if one is due).
    pub limit: u32,
    /// Whether leases may end here: no in all but the last of several chunks, and after a pause of the leader.
    pub last: bool,
}

/// First entry of a leader's term: clients get the moment that they need to find the new leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    pub term: u64,
    pub grace: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    NoSpace,
    Corrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAction {
    Activate,
    Deactivate,
}
