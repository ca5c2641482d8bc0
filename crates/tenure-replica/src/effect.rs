//! Everything that a replica asks of the outside, as data. Carried out in order.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tenure_state::applied::{Change, Meta, Renewed, Reply};
use tenure_state::command::Alarm;
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision};
use tenure_state::record::{Event, Record};
use tenure_state::refusal::Refusal;
use thiserror::Error;

use crate::input::{StreamId, Ticket};

#[derive(Debug)]
pub enum Effect {
    /// Write this to the log and make it durable, then say so with [`crate::Input::Appended`].
    Append(Append),
    Answer {
        ticket: Ticket,
        header: Header,
        answer: Result<Answer, Failure>,
    },
    Watch {
        stream: StreamId,
        output: WatchOutput,
    },
    /// Rows for the checkpoint, as of an applied index.
    Checkpoint(Checkpoint),
    /// Commit the checkpoint now instead of at its leisure: somebody waits for it.
    FlushCheckpoint,
    /// The log up to this index is in the checkpoint: segments that end before it may be recycled.
    CutLog {
        through: u64,
    },
}

/// What etcd's response header says of the moment of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub revision: Revision,
    pub term: u64,
}

/// One batch for the write-ahead log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Counts up by one.
    pub batch: u64,
    /// In ascending order without a gap. The first may be at or below entries that are in the log already: those
    /// and all behind them are superseded.
    pub entries: Vec<LogEntry>,
    pub hard_state: Option<HardState>,
}

/// An entry as the log keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    pub term: u64,
    pub index: u64,
    pub kind: EntryKind,
    pub data: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryKind {
    #[default]
    Command,
    /// A change of membership, in our own encoding.
    Members,
}

/// What Raft must never forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

/// Who votes and who learns, as of an applied index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
    pub voters_outgoing: Vec<u64>,
    pub learners_next: Vec<u64>,
    pub auto_leave: bool,
}

/// Rows that changed up to an applied index. A store folds several and commits them in one transaction.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// With the applied index and the lease clock in it.
    pub meta: Meta,
    /// The term of the entry at that index.
    pub term: u64,
    pub membership: Membership,
    pub changes: Vec<Change>,
}

#[derive(Debug)]
pub enum Answer {
    Applied(Reply),
    /// In the order that was asked.
    Renewed(Vec<Renewed>),
    Page(RangePage),
    Txn(TxnPage),
    TimeToLive(Option<TimeToLive>),
    Leases(Vec<LeaseId>),
    HashKv {
        hash: u32,
        compacted: Revision,
        /// The revision that was hashed.
        at: Revision,
    },
    Digest(u64),
    Barrier,
    Status(Box<Status>),
}

#[derive(Debug)]
pub struct RangePage {
    /// In key order.
    pub records: Vec<Arc<Record>>,
    /// The revision that is read: the same on every page.
    pub at: Revision,
    /// On the last page: all living keys in the range, counted also where a limit ended the pages early.
    pub count: Option<i64>,
}

/// A part of the answer to a transaction that only reads.
#[derive(Debug)]
pub struct TxnPage {
    /// The revision that the transaction reads at, the same on every page. Its ranges may ask for older ones.
    pub at: Revision,
    pub succeeded: bool,
    /// For the ranges of the branch that is taken, in their order. What comes without a count is gone on with by the
    /// first one of the next page.
    pub ranges: Vec<RangePage>,
    /// Whether this is the last page.
    pub done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeToLive {
    pub granted: Nanos,
    pub remaining: Nanos,
    /// In ascending order; empty unless asked for.
    pub keys: Vec<Bytes>,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The deterministic no: nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing was done: there is no leader to ask.
    #[error("no leader")]
    NoLeader,
    /// The leader changed while the request waited. A write may have happened or not.
    #[error("leader changed")]
    LeaderChanged,
    /// Nothing was done: too much is waiting already.
    #[error("too many requests")]
    TooManyRequests,
    /// No answer within the time that requests are given. A write may have happened or not.
    #[error("request timed out")]
    TimedOut,
    /// The entry would be over the limit of a request.
    #[error("request is too large")]
    TooLarge,
    /// The member is stopping.
    #[error("server stopped")]
    Stopped,
}

/// What a member knows of itself. Filled for metrics, health and etcd's Status.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub member: MemberId,
    /// 0 while there is none.
    pub leader: u64,
    pub is_leader: bool,
    pub is_learner: bool,
    pub term: u64,
    pub committed: u64,
    pub applied: u64,
    pub revision: Revision,
    pub compacted: Revision,
    pub clock: Nanos,
    pub alarms: Vec<(MemberId, Alarm)>,
    pub stats: tenure_state::Stats,
    pub counters: Counters,
    pub watch: WatchStats,
    pub proposals_pending: u64,
    /// The leader's oldest proposal has waited for longer than an election timeout.
    pub stalled: bool,
    pub overdue_oldest: Nanos,
}

/// Counted since the start of this process.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub leader_changes: u64,
    pub proposals_failed: u64,
    pub leases_granted: u64,
    pub leases_revoked: u64,
    pub leases_renewed: u64,
    pub leases_expired: u64,
    pub lease_steps: u64,
    pub take_overs: u64,
    pub puts: u64,
    pub deletes: u64,
    pub txns: u64,
    pub ranges: u64,
    pub read_index_batches: u64,
    /// Those that had to be asked for again.
    pub read_index_batches_again: u64,
    /// Reads that were given up without a confirmation.
    pub read_indexes_failed: u64,
    pub put_bytes: u64,
    pub compacted_keys: u64,
    /// How late leases ended, on the lease clock; see [`LATENESS_BOUNDS_MS`].
    pub lateness: Buckets,
    /// TTLs that were granted, in seconds; see [`TTL_BOUNDS_S`].
    pub ttls: Buckets,
}

/// Upper bounds of the buckets of [`Counters::lateness`], in milliseconds.
pub const LATENESS_BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 5_000, 30_000];
/// Upper bounds of the buckets of [`Counters::ttls`], in seconds: etcd's own, powers of two.
pub const TTL_BOUNDS_S: [u64; 24] = {
    let mut bounds = [1; 24];
    let mut i = 1;
    while i < bounds.len() {
        bounds[i] = bounds[i - 1] * 2;
        i += 1;
    }
    bounds
};

/// A histogram without a library: counts per bucket, the last one is "above all bounds".
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Buckets {
    /// Adds `value` under `bounds`, always the same ones for one histogram.
    pub fn observe(&mut self, bounds: &[u64], value: u64) {
        self.counts.resize(bounds.len() + 1, 0);
        self.counts[bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStats {
    pub streams: u64,
    pub watchers: u64,
    /// Watchers that are behind and read from history.
    pub slow_watchers: u64,
    pub events: u64,
    /// Events sent and not yet taken by their readers.
    pub pending_events: u64,
}

/// What a watch stream is told, in the order of its requests and of history.
#[derive(Clone, Debug)]
pub enum WatchOutput {
    Created {
        id: i64,
        revision: Revision,
    },
    /// The watch was never made.
    Refused {
        why: WatchRefusal,
        revision: Revision,
    },
    Cancelled {
        id: i64,
        revision: Revision,
    },
    /// The watch is over: what it needs next was compacted.
    Compacted {
        id: i64,
        compacted: Revision,
    },
    /// Whole revisions, ascending. `revision` is what the header says: that of the last event for live ones, the
    /// current one while catching up.
    Events {
        id: i64,
        revision: Revision,
        batch: Arc<WatchBatch>,
        prev: bool,
        /// What [`crate::input::WatchInput::Credit`] must give back once these are sent.
        bytes: usize,
    },
    /// `id` is -1 when the whole stream asked.
    Progress {
        id: i64,
        revision: Revision,
    },
}

/// Events, shared by all watches that are sent the same.
#[derive(Debug)]
pub struct WatchBatch {
    pub events: Vec<Event>,
    packed: OnceLock<Bytes>,
}

impl WatchBatch {
    pub fn new(events: Vec<Event>) -> WatchBatch {
        WatchBatch { events, packed: OnceLock::new() }
    }

    /// The events as they go over the wire, made by whoever is first to send them. All that share a batch show the
    /// same of it, so they pack it alike.
    pub fn packed(&self, pack: impl FnOnce(&[Event]) -> Bytes) -> &Bytes {
        self.packed.get_or_init(|| pack(&self.events))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WatchRefusal {
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    #[error("etcdserver: mvcc: required revision has been compacted")]
    NegativeStart,
}
