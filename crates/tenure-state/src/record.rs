//! What history is made of: one record for each key that a write touched, and the events that watchers see.

use alloc::sync::Arc;

use bytes::Bytes;

use crate::ids::{LeaseId, Revision, RevisionAt};

/// One version of one key, or its end. Shared by the index, the history, replies and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    /// Empty in a tombstone.
    pub value: Bytes,
    /// The revision that created the key; zero in a tombstone, which is how etcd marks a deletion.
    pub create: Revision,
    /// The revision of this record and its place within it.
    pub at: RevisionAt,
    /// How often the key was written since its creation; 1 when created, 0 in a tombstone.
    pub version: i64,
    /// The lease that the key ends with.
    pub lease: LeaseId,
}

impl Record {
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }
}

/// What a watcher may see: the record that a write made, and what was there before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// A tombstone stands for a DELETE, everything else for a PUT.
    pub record: Arc<Record>,
    /// The version before this one, if the key lived then. Never absent for a live event; an event replayed
    /// from history lacks it where it was compacted.
    pub prev: Option<Arc<Record>>,
}
