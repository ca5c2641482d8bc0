//! Forgetting: which records the compact revision makes superfluous, and dropping them bit by bit.
//!
//! Of each key, the version that lives at the compact revision C stays, and everything from C on. Records *of*
//! revision C stay even where they are superseded or tombstones, until the next compaction: who watches from C
//! on is owed the events of C itself.
//!
//! A scrub walks what happened since the last compaction, not all keys: only a record up to C that is newer
//! than the last compact revision can have superseded anything.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::applied::Change;
use crate::ids::{Revision, RevisionAt};
use crate::mvcc::Mvcc;
use crate::quota;
use crate::record::Record;
use crate::refusal::Refusal;

/// Records that a scrub takes out of history at once before it looks at each.
const BATCH_MAX: usize = 128;

impl Mvcc {
    pub fn compact(&mut self, revision: Revision) -> Result<(), Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        // What stayed for watchers of the old compact revision may go now.
        self.scrubbed = self.scrubbed.min(RevisionAt { main: self.compacted, sub: 0 });
        self.compacted = revision;
        Ok(())
    }

    /// Drops superseded records of the compacted past, looking at about `limit` records. Says whether
    /// some are left for another scrub.
    ///
    /// Holds afterwards, and before: each record before `scrubbed` that is older than the compact revision has
    /// no older version of its key, and is no tombstone.
    pub fn scrub(&mut self, limit: usize, changes: &mut Vec<Change>) -> bool {
        self.intact_from = self.compacted;
        let mut looks_left = limit.max(1);
        while looks_left > 0 {
            let due = self.history.from(self.scrubbed).take_while(|record| record.at.main <= self.compacted);
            let batch: Vec<_> = due.take(looks_left.min(BATCH_MAX)).cloned().collect();
            if batch.is_empty() {
                break;
            }
            for record in batch {
                if looks_left > 0 {
                    looks_left = self.settle(&record, looks_left, changes);
                }
            }
        }
        let next = self.history.from(self.scrubbed).next();
        let more = next.is_some_and(|record| record.at.main <= self.compacted);
        if !more {
            self.scrubbed = RevisionAt { main: self.compacted.next(), sub: 0 };
        }
        more
    }

    /// The records from `from` on, each with whether a finished compaction keeps it. Unlike what a scrub drops,
    /// the superseded records and tombstones of the compact revision itself are not kept in this sense, and it
    /// plays no role how far the scrubbing got.
    pub fn kept_from(&self, from: RevisionAt) -> impl Iterator<Item = (&Arc<Record>, bool)> {
        self.history.from(from).map(|record| {
            let kept = record.at.main > self.compacted || {
                let versions = self.index.versions(&record.key).expect("a key of history is in the index");
                let up_to = versions.partition_point(|version| version.at.main <= self.compacted);
                versions[up_to - 1].at == record.at && !record.is_tombstone()
            };
            (record, kept)
        })
    }

    /// A record that a scrub should have dropped already, if there is one.
    pub(super) fn unscrubbed(&self) -> Option<RevisionAt> {
        let is_settled = |record: &Record| record.at < self.scrubbed && record.at.main < self.compacted;
        self.index.iter().find_map(|(_, versions)| {
            let superseding = versions.get(1).filter(|record| is_settled(record));
            let tombstone = versions.first().filter(|record| record.is_tombstone() && is_settled(record));
            superseding.or(tombstone).map(|record| record.at)
        })
    }

    /// Drops the superfluous versions of the key of `record`, oldest first, as far as `looks_left` allows but
    /// at least up to `record`; the newer ones have their turn later in the walk. Taking many at once is what
    /// keeps a key with very many versions from being moved down once for each of them. Returns how many looks
    /// are left.
    fn settle(&mut self, record: &Record, looks_left: usize, changes: &mut Vec<Change>) -> usize {
        let versions = self.index.versions(&record.key).map_or(&[][..], |versions| versions);
        let Ok(place) = versions.binary_search_by_key(&record.at, |version| version.at) else {
            // Gone already, with what an earlier one of the batch took along. It must not count, or what one
            // entry drops would depend on the size of a batch.
            return looks_left;
        };
        let count = superfluous_count(versions, self.compacted).min(looks_left.max(place + 1));
        if count > 0 {
            self.index.drop_oldest(&record.key, count, |dropped| {
                self.history.remove(dropped.at);
                self.bytes -= quota::record_bytes(&dropped);
                changes.push(Change::RecordGone(dropped.at));
            });
        }
        self.scrubbed = RevisionAt { main: record.at.main, sub: record.at.sub + 1 };
        looks_left.saturating_sub(count.max(1))
    }
}

/// How many of the oldest versions nobody may ask for any more.
fn superfluous_count(versions: &[Arc<Record>], compacted: Revision) -> usize {
    let up_to = versions.partition_point(|version| version.at.main <= compacted);
    let Some(last) = up_to.checked_sub(1).map(|place| &versions[place]) else { return 0 };
    let superseded = if last.is_tombstone() { up_to } else { up_to - 1 };
    let before = versions.partition_point(|version| version.at.main < compacted);
    superseded.min(before)
}
