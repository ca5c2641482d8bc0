//! What every replica agrees on: keys with their history, leases and their rules.
//!
//! [`State::apply`] is the only thing that changes it, and it is a pure function of the state and the entry:
//! no clock, no IO, no randomness, no order that could differ between two runs. Two members that applied the
//! same entries are equal, and [`State::digest`] shows it. What is deliberately absent: the wire, Raft, who
//! is asking, what time it is anywhere.
#![no_std]

extern crate alloc;

mod apply;
mod invariants;
mod loader;
mod mvcc;
mod quota;
mod write;

pub mod applied;
pub mod bugs;
pub mod command;
pub mod ids;
pub mod key;
pub mod lease;
pub mod range;
pub mod record;
pub mod refusal;
pub mod txn;

pub use crate::loader::Loader;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::applied::{LeaseRow, Meta, RangeReply, TxnReply};
use crate::apply::{Job, SLICE_MAX};
use crate::bugs::Bugs;
use crate::command::{Alarm, Range, Txn};
use crate::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use crate::key::KeyRange;
use crate::lease::LeaseTable;
use crate::mvcc::Mvcc;
use crate::record::{Event, Record};
use crate::refusal::Refusal;

/// The replicated state of one member.
pub struct State {
    /// Index of the last entry that was applied.
    applied: u64,
    mvcc: Mvcc,
    leases: LeaseTable,
    alarms: BTreeSet<(MemberId, Alarm)>,
    /// The entry that is half applied, if one is.
    job: Option<Job>,
    slice_max: usize,
    bugs: Bugs,
}

impl State {
    /// An empty store at revision 1, never compacted.
    pub fn new() -> State {
        State {
            applied: 0,
            mvcc: Mvcc::new(Revision::FRESH, Revision::NEVER_COMPACTED, RevisionAt::default()),
            leases: LeaseTable::new(Nanos::ZERO),
            alarms: BTreeSet::new(),
            job: None,
            slice_max: SLICE_MAX,
            bugs: Bugs::default(),
        }
    }

    /// Puts a known bug back.
    #[cfg(feature = "planted-bugs")]
    pub fn set_bugs(&mut self, bugs: Bugs) {
        self.bugs = bugs;
        self.leases.set_bugs(bugs);
    }

    /// Sets how many keys an entry may delete before it takes another turn; 4,000 from the start. It only cuts
    /// the work and never changes what comes out, so members may differ in it: the simulator and tests make it
    /// small, to get at [`Progress::Unfinished`](applied::Progress::Unfinished) cheaply.
    pub fn set_slice_max(&mut self, keys: usize) {
        assert!(keys > 0, "a slice of nothing never ends");
        self.slice_max = keys;
    }

    /// Starts to rebuild a state from the rows of a checkpoint, given in any order of kinds but records in
    /// ascending order of revision.
    pub fn load(meta: Meta) -> Loader {
        Loader::new(meta)
    }

    /// Reads a range at once. For long ranges use [`State::range_page`].
    pub fn range(&self, range: &Range) -> Result<RangeReply, Refusal> {
        self.mvcc.range(range, self.mvcc.revision())
    }

    /// The revision that a plain read of `asked` reads at: 0 or less is the current one.
    pub fn resolve(&self, asked: i64) -> Result<Revision, Refusal> {
        self.mvcc.resolve(asked, self.mvcc.revision())
    }

    /// The part of `range` from key `from` on (`None`: from its start), at most `limit` living keys, in key
    /// order at revision `at`. Looks at no more than a small multiple of `limit` index entries. Pages of one
    /// read that began before a compaction go on until the first Scrub entry after it.
    pub fn range_page(
        &self,
        range: &KeyRange,
        from: Option<&Bytes>,
        at: Revision,
        limit: usize,
    ) -> Result<Page, Refusal> {
        self.mvcc.page(range, from, at, limit)
    }

    /// Counts living keys like [`State::range_page`], looking at no more than `limit` index entries.
    pub fn count_page(
        &self,
        range: &KeyRange,
        from: Option<&Bytes>,
        at: Revision,
        limit: usize,
    ) -> Result<CountPage, Refusal> {
        self.mvcc.count_page(range, from, at, limit)
    }

    /// Evaluates a transaction that only reads, at once: what a long one, evaluated in pages, must come to.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnReply, Refusal> {
        self.evaluate(txn)
    }

    /// Events from revision `from` on, whole revisions, until about `limit` events; `None` in `next` when the
    /// present is reached. Refused as compacted if `from` is below the compact revision.
    pub fn replay(&self, from: Revision, limit: usize) -> Result<Replay, Refusal> {
        self.mvcc.replay(from, limit)
    }

    /// Index of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    pub fn revision(&self) -> Revision {
        self.mvcc.revision()
    }

    pub fn compacted(&self) -> Revision {
        self.mvcc.compacted()
    }

    /// The lease clock C.
    pub fn clock(&self) -> Nanos {
        self.leases.clock()
    }

    pub fn lease(&self, id: LeaseId) -> Option<LeaseRow> {
        self.leases.get(id)
    }

    /// All living leases in ascending order of what is left (then id).
    pub fn leases(&self) -> Vec<LeaseId> {
        self.leases.list()
    }

    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// A lease with a deadline at or before `now`, if there is one: the earliest deadline.
    pub fn lease_due(&mut self, now: Nanos) -> Option<Nanos> {
        self.leases.next_due(now).map(|(_, deadline)| deadline)
    }

    /// A time before which no lease is due; `None` without leases. A cheap lower bound, not exact.
    pub fn next_lease_due(&self) -> Option<Nanos> {
        self.leases.next_due_bound()
    }

    pub fn meta(&self) -> Meta {
        Meta {
            applied: self.applied,
            clock: self.leases.clock(),
            revision: self.mvcc.revision(),
            compacted: self.mvcc.compacted(),
            scrubbed: self.mvcc.scrubbed(),
            alarms: self.alarms.iter().copied().collect(),
        }
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

/// Rows that do not make a state together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// A part of a long read.
#[derive(Debug, Default)]
pub struct Page {
    pub records: Vec<Arc<Record>>,
    /// Where the next page starts; `None` at the end of the range.
    pub next: Option<Bytes>,
    /// Index entries that were looked at.
    pub looks: usize,
}

/// A part of a long count.
#[derive(Debug, Default)]
pub struct CountPage {
    pub count: u64,
    /// Where the next page starts; `None` at the end of the range.
    pub next: Option<Bytes>,
    /// Index entries that were looked at.
    pub looks: usize,
}

/// A part of history.
#[derive(Debug, Default)]
pub struct Replay {
    pub events: Vec<Event>,
    /// The revision to go on from; `None` when all up to the current revision was returned.
    pub next: Option<Revision>,
}

/// A running HashKV.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashKv {
    /// What was asked for; resolved to a real revision by the first step.
    pub at: Revision,
    pub compacted: Revision,
    pub hash: u32,
    pub done: bool,
    /// Private to the state: where to go on.
    pub cursor: RevisionAt,
}

/// What the state weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Replicated logical bytes: what the quota is checked against (etcd's `dbSizeInUse`).
    pub logical_bytes: u64,
    /// Keys that live.
    pub keys: u64,
    /// Records in history, superseded ones and tombstones included.
    pub records: u64,
    pub leases: u64,
}
