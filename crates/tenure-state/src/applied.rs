//! What apply returns: the reply, the events for watchers, and the rows that a checkpoint must learn of.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::command::Alarm;
use crate::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use crate::record::{Event, Record};
use crate::refusal::Refusal;

/// How far [`crate::State::apply`] got.
#[derive(Debug)]
pub enum Progress {
    Done(Applied),
    /// The entry alone is over the bound of one turn (a delete range or a lease tree of very many keys): call
    /// [`crate::State::resume`] until it is done. Nothing of it can be seen before that, but for the lease clock
    /// and the renewals of a lease step, which hold at once.
    Unfinished,
}

/// All that one entry did. The caller drops what it does not need.
#[derive(Debug)]
pub struct Applied {
    pub reply: Result<Reply, Refusal>,
    /// In the order of history; those of one revision stand together.
    pub events: Vec<Event>,
    /// The rows that changed, for the checkpoint. A row may stand here more than once; the last one counts.
    pub changes: Vec<Change>,
}

/// A row of the checkpoint that changed. [`crate::State::meta`] is a row of its own, which changes with
/// every entry and is therefore not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Record(Arc<Record>),
    RecordGone(RevisionAt),
    Lease(LeaseRow),
    LeaseGone(LeaseId),
}

/// A lease as it is stored. Its keys are not in it: they carry the id of their lease themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub id: LeaseId,
    pub ttl: Nanos,
    /// When it ends, on the lease clock.
    pub deadline: Nanos,
    /// The deadline that the last grant or renewal set. Take-overs count from it, or frequent changes of
    /// leader would make leases immortal.
    pub base: Nanos,
    /// When it was granted, on the lease clock.
    pub granted: Nanos,
    /// [`LeaseId::NONE`] in the root of a tree.
    pub parent: LeaseId,
    /// 0 in a root.
    pub depth: u32,
}

/// The small state beside records and leases: one row, written with every checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Index of the last entry that was applied.
    pub applied: u64,
    /// The lease clock C.
    pub clock: Nanos,
    pub revision: Revision,
    /// -1 before the first compaction, as on etcd.
    pub compacted: Revision,
    /// Where the next Scrub entry goes on; beyond the compact revision when nothing is left to drop. A place
    /// within a revision, because one revision may hold more records than one entry may look at.
    pub scrubbed: RevisionAt,
    /// In ascending order.
    pub alarms: Vec<(MemberId, Alarm)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nothing,
    Put(PutReply),
    DeleteRange(DeleteReply),
    Txn(TxnReply),
    Compact {
        revision: Revision,
    },
    /// `more` says that records are left for another entry.
    Scrub {
        more: bool,
    },
    Grant {
        id: LeaseId,
        ttl: Nanos,
        revision: Revision,
    },
    Revoke {
        revision: Revision,
    },
    LeaseStep(StepReply),
    TakeOver,
    /// All alarms after the change.
    Alarms {
        alarms: Vec<(MemberId, Alarm)>,
        revision: Revision,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReply {
    pub revision: Revision,
    pub prev: Option<Arc<Record>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteReply {
    pub revision: Revision,
    pub deleted: i64,
    /// In key order; empty unless asked for.
    pub prevs: Vec<Arc<Record>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeReply {
    /// The current revision when it was read, not the one that was asked for.
    pub revision: Revision,
    pub records: Vec<Arc<Record>>,
    /// All living keys in the range, whatever limit and bounds say.
    pub count: i64,
    pub more: bool,
    /// Whether `records` are to be shown without value and lease (etcd's `keys_only`), or without value only.
    pub shown: Shown,
}

/// How much of a record a read shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    #[default]
    All,
    /// Without its value.
    NoValue,
    /// Without value and lease: etcd serves `keys_only` from an index that does not know the lease.
    KeyOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnReply {
    /// The current one, one more than before if anything changed.
    pub revision: Revision,
    pub succeeded: bool,
    pub responses: Vec<OpReply>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpReply {
    Range(RangeReply),
    Put(PutReply),
    DeleteRange(DeleteReply),
    Txn(TxnReply),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepReply {
    /// One for each lease of the step's `renew`, in its order.
    pub renewed: Vec<Renewed>,
    /// The leases that ended, in order, each with the deadline that it had (descendants follow their root).
    pub ended: Vec<(LeaseId, Nanos)>,
    /// Whether leases that were due at the step's clock are left for the next one.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub id: LeaseId,
    /// What is left of it now, never more than its TTL; `None` if it does not live.
    pub remaining: Option<Nanos>,
}
