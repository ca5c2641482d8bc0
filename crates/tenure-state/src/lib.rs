//! What every replica agrees on: keys with their history, leases and their rules.
//!
//! [`State::apply`] is the only thing that changes it, and it is a pure function of the state and the entry:
//! no clock, no IO, no randomness, no order that could differ between two runs. Two members that applied the
//! same entries are equal, and [`State::digest`] shows it. What is deliberately absent: the wire, Raft, who
//! is asking, what time it is anywhere.
#![no_std]

extern crate alloc;

pub mod applied;
pub mod command;
pub mod ids;
pub mod key;
pub mod lease;
pub mod record;
pub mod refusal;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::applied::{LeaseRow, Meta, Progress, RangeReply, TxnReply};
use crate::command::{Entry, Range, Txn};
use crate::ids::{LeaseId, Nanos, Revision};
use crate::key::KeyRange;
use crate::record::{Event, Record};
use crate::refusal::Refusal;
use bytes::Bytes;

/// The replicated state of one member.
pub struct State {}

impl State {
    /// An empty store at revision 1, never compacted.
    pub fn new() -> State {
        todo!()
    }

    /// Starts to rebuild a state from the rows of a checkpoint, given in any order of kinds but records in
    /// ascending order of revision.
    pub fn load(meta: Meta) -> Loader {
        let _ = meta;
        todo!()
    }

    /// Carries out one entry. Entries come in order of their index, each once.
    pub fn apply(&mut self, entry: &Entry) -> Progress {
        let _ = entry;
        todo!()
    }

    /// Goes on with the entry that [`Progress::Unfinished`] named. Nothing else may be applied meanwhile; reads
    /// go on and see the state before it.
    pub fn resume(&mut self) -> Progress {
        todo!()
    }

    /// Reads a range at once. For long ranges use [`State::range_page`].
    pub fn range(&self, range: &Range) -> Result<RangeReply, Refusal> {
        let _ = range;
        todo!()
    }

    /// The part of `range` from key `from` on (`None`: from its start), at most `limit` living keys, in key
    /// order at revision `at`. Looks at no more than a small multiple of `limit` index entries.
    pub fn range_page(
        &self,
        range: &KeyRange,
        from: Option<&Bytes>,
        at: Revision,
        limit: usize,
    ) -> Result<Page, Refusal> {
        let _ = (range, from, at, limit);
        todo!()
    }

    /// Evaluates a transaction that only reads.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnReply, Refusal> {
        let _ = txn;
        todo!()
    }

    /// Events from revision `from` on, whole revisions, until about `limit` events; `None` in `next` when the
    /// present is reached. Refused as compacted if `from` is below the compact revision.
    pub fn replay(&self, from: Revision, limit: usize) -> Result<Replay, Refusal> {
        let _ = (from, limit);
        todo!()
    }

    pub fn revision(&self) -> Revision {
        todo!()
    }

    pub fn compacted(&self) -> Revision {
        todo!()
    }

    /// The lease clock C.
    pub fn clock(&self) -> Nanos {
        todo!()
    }

    pub fn lease(&self, id: LeaseId) -> Option<LeaseRow> {
        let _ = id;
        todo!()
    }

    /// The keys on a lease in ascending order; empty if it does not live.
    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        let _ = id;
        todo!()
    }

    /// All living leases in ascending order of what is left (then id).
    pub fn leases(&self) -> Vec<LeaseId> {
        todo!()
    }

    pub fn lease_count(&self) -> usize {
        todo!()
    }

    /// A lease with a deadline at or before `now`, if there is one: the earliest deadline.
    pub fn lease_due(&mut self, now: Nanos) -> Option<Nanos> {
        let _ = now;
        todo!()
    }

    /// A time before which no lease is due; `None` without leases. A cheap lower bound, not exact.
    pub fn next_lease_due(&self) -> Option<Nanos> {
        todo!()
    }

    pub fn meta(&self) -> Meta {
        todo!()
    }

    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// etcd's HashKV: CRC32C over the living records up to `at` (0 or less: now), in pages of about `limit`
    /// records. Pass the returned cursor on until it is done.
    pub fn hash_kv(&self, cursor: HashKv, limit: usize) -> Result<HashKv, Refusal> {
        let _ = (cursor, limit);
        todo!()
    }

    /// A hash of everything, leases and clock included; equal on equal histories.
    pub fn digest(&self) -> u64 {
        todo!()
    }

    /// Panics if the state contradicts itself. For tests and the simulator; takes time in the size of the state.
    pub fn assert_invariants(&self) {
        todo!()
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

/// Rebuilds a [`State`] from rows.
pub struct Loader {}

impl Loader {
    pub fn record(&mut self, record: Record) {
        let _ = record;
        todo!()
    }

    pub fn lease(&mut self, row: LeaseRow) {
        let _ = row;
        todo!()
    }

    /// Fails with a description if the rows contradict each other: then the checkpoint is damaged.
    pub fn finish(self) -> Result<State, LoadError> {
        todo!()
    }
}

/// Rows that do not make a state together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub alloc::string::String);

/// A part of a long read.
#[derive(Debug, Default)]
pub struct Page {
    pub records: Vec<Arc<Record>>,
    /// Where the next page starts; `None` at the end of the range.
    pub next: Option<Bytes>,
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
    pub cursor: u64,
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
