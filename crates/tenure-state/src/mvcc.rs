//! The store: keys with all their versions, and history in the order of revisions.
//!
//! Two views of the same records. The index answers "what was this key at revision R", history answers "what
//! happened from revision R on". What a running entry writes goes straight into both, under revisions above
//! the visible one, so that nobody sees it before the entry is done and nothing has to be copied then.

mod compaction;
mod history;
mod index;

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::applied::RangeReply;
use crate::command::Range;
use crate::ids::{Revision, RevisionAt};
use crate::key::KeyRange;
use crate::mvcc::history::History;
use crate::mvcc::index::{Index, living_at};
use crate::quota;
use crate::range;
use crate::record::{Event, Record};
use crate::refusal::Refusal;
use crate::{CountPage, LoadError, Page, Replay};

pub(crate) struct Mvcc {
    index: Index,
    history: History,
    /// The last revision that may be seen. Records above it belong to the entry that is being applied.
    revision: Revision,
    compacted: Revision,
    /// The next record that a scrub looks at; beyond the compact revision when nothing is left to do.
    scrubbed: RevisionAt,
    /// Reads below this revision may miss records that a scrub dropped. It follows `compacted` with the first
    /// scrub after it, so a read in pages that began before the compaction may end before the scrub.
    intact_from: Revision,
    /// Logical bytes of all records.
    bytes: u64,
    /// Keys that live now.
    living: u64,
}

impl Mvcc {
    pub fn new(revision: Revision, compacted: Revision, scrubbed: RevisionAt) -> Mvcc {
        Mvcc {
            index: Index::default(),
            history: History::default(),
            revision,
            compacted,
            scrubbed,
            intact_from: compacted,
            bytes: 0,
            living: 0,
        }
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    pub fn scrubbed(&self) -> RevisionAt {
        self.scrubbed
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn living(&self) -> u64 {
        self.living
    }

    pub fn record_count(&self) -> usize {
        self.history.len()
    }

    /// Shows everything that was written up to `revision`.
    pub fn publish(&mut self, revision: Revision) {
        assert!(revision >= self.revision, "a revision never goes back");
        if let Some(last) = self.history.last() {
            assert!(last.at.main <= revision, "an entry is shown as a whole");
        }
        self.revision = revision;
    }

    /// Takes the next record into index and history. Returns it and the version before it, be it a tombstone.
    pub fn append(&mut self, record: Record) -> (Arc<Record>, Option<Arc<Record>>) {
        assert!(record.at.main > self.revision, "the visible past is never written to");
        self.push(record).expect("a record follows the one before it")
    }

    /// Takes a stored record back, checking it against those before it.
    pub fn load(&mut self, record: Record) -> Result<(), LoadError> {
        let at = record.at;
        if at.main > self.revision {
            return Err(LoadError(alloc::format!("record {at} is newer than the state")));
        }
        if self.history.last().is_some_and(|last| last.at >= at) {
            return Err(LoadError(alloc::format!("record {at} is out of order")));
        }
        self.push(record).map(|_| ()).map_err(|what| LoadError(alloc::format!("record {at}: {what}")))
    }

    fn push(&mut self, record: Record) -> Result<(Arc<Record>, Option<Arc<Record>>), &'static str> {
        let (record, before) = self.index.push(record)?;
        self.bytes += quota::record_bytes(&record);
        let lived = before.as_ref().is_some_and(|before| !before.is_tombstone());
        match (lived, !record.is_tombstone()) {
            (false, true) => self.living += 1,
            (true, false) => self.living -= 1,
            _ => {}
        }
        self.history.push(Arc::clone(&record));
        Ok((record, before))
    }

    /// Checks, after the last record was loaded, that no scrubbing is claimed that did not happen.
    pub fn finish_load(&mut self) -> Result<(), LoadError> {
        self.unscrubbed().map_or(Ok(()), |at| {
            let scrubbed = self.scrubbed;
            Err(LoadError(alloc::format!("record {at} should be gone at scrub position {scrubbed}")))
        })
    }

    /// The living version of each key, in key order.
    pub fn latest_of_all(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.index.iter().filter_map(|(_, versions)| versions.last()).filter(|last| !last.is_tombstone())
    }

    /// The living version of `key`, what the running entry wrote included.
    pub fn latest(&self, key: &[u8]) -> Option<&Arc<Record>> {
        self.index.versions(key)?.last().filter(|last| !last.is_tombstone())
    }

    /// All records in the order of history.
    pub fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.history.iter()
    }

    /// The version of `key` that lives at `revision`.
    pub fn get(&self, key: &[u8], revision: Revision) -> Option<&Arc<Record>> {
        living_at(self.index.versions(key)?, revision)
    }

    /// All living versions of `range` at `revision`, in key order.
    pub fn living_in<'a>(
        &'a self,
        range: &KeyRange,
        revision: Revision,
    ) -> impl Iterator<Item = &'a Arc<Record>> + use<'a> {
        self.index.range(range, None).filter_map(move |(_, versions)| living_at(versions, revision))
    }

    /// The revision that a read with this request revision reads at, if it may. `current` is the one that it
    /// sees: the visible one, or the running one inside a write.
    pub fn resolve(&self, asked: i64, current: Revision) -> Result<Revision, Refusal> {
        if asked <= 0 {
            return Ok(current);
        }
        let asked = Revision(asked);
        if asked > current {
            Err(Refusal::FutureRevision)
        } else if asked < self.compacted {
            Err(Refusal::Compacted)
        } else {
            Ok(asked)
        }
    }

    /// Reads a range with all of its options.
    pub fn range(&self, range: &Range, current: Revision) -> Result<RangeReply, Refusal> {
        let at = self.resolve(range.revision, current)?;
        let needed = range::needed(range);
        let mut records = Vec::new();
        let mut count = 0_i64;
        for record in self.living_in(&range.range, at) {
            if records.len() < needed {
                records.push(Arc::clone(record));
                range::trim(&mut records, range);
            }
            count += 1;
        }
        let (records, more) = range::finish(records, range);
        Ok(RangeReply { revision: current, records, count, more, shown: range::shown(range) })
    }

    pub fn page(
        &self,
        range: &KeyRange,
        from: Option<&Bytes>,
        at: Revision,
        limit: usize,
    ) -> Result<Page, Refusal> {
        if at > self.revision {
            return Err(Refusal::FutureRevision);
        }
        if at < self.intact_from {
            return Err(Refusal::Compacted);
        }
        let mut page = Page::default();
        // Deleted keys that wait for a scrub cost a look each, and may be many.
        let looks_max = limit.saturating_mul(PAGE_LOOKS_PER_RECORD).saturating_add(PAGE_LOOKS_MIN);
        for (key, versions) in self.index.range(range, from) {
            if page.records.len() >= limit || page.looks >= looks_max {
                page.next = Some(key.clone());
                break;
            }
            page.looks += 1;
            page.records.extend(living_at(versions, at).cloned());
        }
        Ok(page)
    }

    /// Counts like [`Mvcc::page`] without keeping records, and looks at `limit` keys.
    pub fn count_page(
        &self,
        range: &KeyRange,
        from: Option<&Bytes>,
        at: Revision,
        limit: usize,
    ) -> Result<CountPage, Refusal> {
        if at < self.intact_from {
            return Err(Refusal::Compacted);
        }
        let mut page = CountPage::default();
        for (key, versions) in self.index.range(range, from) {
            if page.looks >= limit {
                page.next = Some(key.clone());
                break;
            }
            page.looks += 1;
            page.count += u64::from(living_at(versions, at).is_some());
        }
        Ok(page)
    }

    pub fn replay(&self, from: Revision, limit: usize) -> Result<Replay, Refusal> {
        if from < self.compacted {
            return Err(Refusal::Compacted);
        }
        let mut replay = Replay::default();
        let mut running = from;
        for record in self.history.from(RevisionAt { main: from, sub: 0 }) {
            if record.at.main > self.revision {
                break;
            }
            if record.at.main > running {
                if replay.events.len() >= limit.max(1) {
                    replay.next = Some(record.at.main);
                    break;
                }
                running = record.at.main;
            }
            replay.events.push(Event { record: Arc::clone(record), prev: self.prev_of(record) });
        }
        Ok(replay)
    }

    /// What lived before the revision of `record`. Absent where compaction may have dropped it, whether it did
    /// so already or not: the answer must not depend on how far the scrubbing got.
    fn prev_of(&self, record: &Record) -> Option<Arc<Record>> {
        let known = record.at.main > self.compacted;
        known.then(|| self.get(&record.key, record.at.main.before()).cloned()).flatten()
    }
}

impl Mvcc {
    /// Panics if index and history contradict each other. `writing` says that an entry is half applied.
    pub fn assert_invariants(&self, writing: bool) {
        self.history.assert_invariants();
        assert!(self.revision >= Revision::FRESH);
        assert!(self.compacted >= Revision::NEVER_COMPACTED && self.compacted <= self.revision);
        assert!(self.intact_from <= self.compacted);
        assert!(self.scrubbed <= RevisionAt { main: self.compacted.next(), sub: 0 });
        let newest = self.history.last().map_or(Revision::ZERO, |record| record.at.main);
        assert!(writing || newest <= self.revision, "nothing is written beyond the present");
        let (mut bytes, mut living, mut count) = (0, 0, 0);
        for (key, versions) in self.index.iter() {
            assert!(!versions.is_empty(), "a key has versions");
            let mut before: Option<&Arc<Record>> = None;
            for record in versions {
                assert!(record.key == *key, "versions belong to their key");
                assert!(before.is_none_or(|before| before.at < record.at), "versions are in order");
                assert_eq!(index::follows(before, record), Ok(()));
                let found = self.history.from(record.at).next();
                assert!(found.is_some_and(|found| Arc::ptr_eq(found, record)), "history has each version");
                bytes += quota::record_bytes(record);
                count += 1;
                before = Some(record);
            }
            living += u64::from(before.is_some_and(|last| !last.is_tombstone()));
        }
        assert_eq!(count, self.history.len(), "index and history hold the same");
        assert_eq!(bytes, self.bytes, "bytes are counted");
        assert_eq!(living, self.living, "living keys are counted");
        assert_eq!(self.unscrubbed(), None, "what was scrubbed is gone");
    }
}

/// Index entries that a page may look at for each record that it may return, on top of a fixed number.
const PAGE_LOOKS_PER_RECORD: usize = 4;
const PAGE_LOOKS_MIN: usize = 64;
