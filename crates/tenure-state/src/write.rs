//! Writing keys: the one place where records are made, leases attached and events told.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::State;
use crate::applied::Change;
use crate::command::{Put, PutLease};
use crate::ids::{LeaseId, Revision, RevisionAt};
use crate::key::KeyRange;
use crate::record::{Event, Record};
use crate::refusal::Refusal;

/// What the running entry has done so far. Its records are in the store already, but above the visible
/// revision.
pub(crate) struct Draft {
    /// The revision that the next record gets.
    main: Revision,
    /// How many records there are of that revision.
    sub: u32,
    pub events: Vec<Event>,
    pub changes: Vec<Change>,
}

impl Draft {
    pub fn new(current: Revision) -> Draft {
        Draft { main: current.next(), sub: 0, events: Vec::new(), changes: Vec::new() }
    }

    /// What is current for the entry itself: one more than before from its first change on.
    pub fn revision(&self) -> Revision {
        if self.sub == 0 { self.main.before() } else { self.main }
    }

    /// What follows gets a revision of its own.
    pub fn next_revision(&mut self) {
        self.main = self.revision().next();
        self.sub = 0;
    }
}

impl State {
    /// Carries out a put and returns the version before it.
    pub(crate) fn put(&mut self, put: &Put, draft: &mut Draft) -> Result<Option<Arc<Record>>, Refusal> {
        // The entry itself sees all that it has written, so what lives for it is the latest version.
        let before = self.mvcc.latest(&put.key).cloned();
        // A lease that does not live is told before a key that does not, as on etcd.
        let asked = match put.lease {
            PutLease::Set(id) if !id.is_none() && !self.leases.contains(id) => {
                return Err(Refusal::LeaseNotFound);
            }
            PutLease::Set(id) => Some(id),
            PutLease::Keep => None,
        };
        let lease = match asked {
            Some(id) => id,
            None => before.as_ref().ok_or(Refusal::KeyNotFound)?.lease,
        };
        let value = match &put.value {
            Some(value) => value.clone(),
            None => before.as_ref().ok_or(Refusal::KeyNotFound)?.value.clone(),
        };
        let key = before.as_ref().map_or(&put.key, |before| &before.key).clone();
        let lease_before = before.as_ref().map_or(LeaseId::NONE, |before| before.lease);
        self.move_key(&key, lease_before, lease);
        let (create, version) = match &before {
            Some(before) => (before.create, before.version + 1),
            None => (draft.main, 1),
        };
        self.record(Record { key, value, create, at: RevisionAt::default(), version, lease }, draft);
        Ok(before)
    }

    /// Deletes all living keys of `range` and returns the deleted versions in key order.
    pub(crate) fn delete_range(&mut self, range: &KeyRange, draft: &mut Draft) -> Vec<Arc<Record>> {
        let living: Vec<_> = self.mvcc.living_in(range, draft.revision()).cloned().collect();
        for record in &living {
            self.delete(record, draft);
        }
        living
    }

    /// Deletes a key, of which `record` is the living version.
    pub(crate) fn delete(&mut self, record: &Record, draft: &mut Draft) {
        self.move_key(&record.key, record.lease, LeaseId::NONE);
        self.bury(record.key.clone(), draft);
    }

    /// Deletes a living key without a word to its lease, because that ends as well.
    pub(crate) fn bury(&mut self, key: Bytes, draft: &mut Draft) {
        let tombstone = Record {
            key,
            value: Bytes::new(),
            create: Revision::ZERO,
            at: RevisionAt::default(),
            version: 0,
            lease: LeaseId::NONE,
        };
        self.record(tombstone, draft);
    }

    fn move_key(&mut self, key: &Bytes, from: LeaseId, to: LeaseId) {
        if from == to {
            return;
        }
        if to.is_none() {
            self.leases.detach(key, from);
        } else {
            self.leases.attach(key.clone(), from, to);
        }
    }

    /// Gives the record its place in history.
    fn record(&mut self, mut record: Record, draft: &mut Draft) {
        record.at = RevisionAt { main: draft.main, sub: draft.sub };
        draft.sub =
            draft.sub.checked_add(1).expect("an entry that makes 2^32 records does not fit into memory");
        let (record, before) = self.mvcc.append(record);
        // Where this revision touches the key twice, watchers are told what was there before the revision.
        let prev = match before {
            Some(before) if before.at.main == draft.main => {
                self.mvcc.get(&record.key, draft.main.before()).cloned()
            }
            before => before.filter(|before| !before.is_tombstone()),
        };
        draft.changes.push(Change::Record(Arc::clone(&record)));
        draft.events.push(Event { record, prev });
    }
}
