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
use crate::mvcc::index::Versions;
use crate::quota;
use crate::record::Record;
use crate::refusal::Refusal;

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
        while let Some(record) = self.history.first_from(self.scrubbed) {
            if record.at.main > self.compacted {
                break;
            }
            if looks_left == 0 {
                return true;
            }
            let record = Arc::clone(record);
            self.settle(&record, &mut looks_left, changes);
            self.scrubbed = RevisionAt { main: record.at.main, sub: record.at.sub + 1 };
        }
        self.scrubbed = RevisionAt { main: self.compacted.next(), sub: 0 };
        false
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
        let old = self
            .history
            .iter()
            .take_while(|record| record.at < self.scrubbed && record.at.main < self.compacted);
        old.filter(|record| {
            let versions = self.index.versions(&record.key).expect("a key of history is in the index");
            versions[0].at != record.at || record.is_tombstone()
        })
        .map(|record| record.at)
        .next()
    }

    /// Drops the superfluous versions of the key of `record`, oldest first, as far as `looks_left` allows but
    /// at least up to `record`; the newer ones have their turn later in the walk. Taking many at once is what
    /// keeps a key with very many versions from being moved down once for each of them.
    fn settle(&mut self, record: &Record, looks_left: &mut usize, changes: &mut Vec<Change>) {
        let versions = self.index.versions(&record.key).expect("a key of history is in the index");
        let superfluous = superfluous_count(versions, self.compacted);
        let own = versions.partition_point(|version| version.at <= record.at);
        let count = superfluous.min(own.max(*looks_left));
        *looks_left = looks_left.saturating_sub(count.max(1));
        if count == 0 {
            return;
        }
        self.index.drop_oldest(&record.key, count, |dropped| {
            self.history.remove(dropped.at);
            self.bytes -= quota::record_bytes(&dropped);
            changes.push(Change::RecordGone(dropped.at));
        });
    }
}

/// How many of the oldest versions nobody may ask for any more.
fn superfluous_count(versions: &Versions, compacted: Revision) -> usize {
    let up_to = versions.partition_point(|version| version.at.main <= compacted);
    let Some(last) = up_to.checked_sub(1).map(|place| &versions[place]) else { return 0 };
    let superseded = if last.is_tombstone() { up_to } else { up_to - 1 };
    let before = versions.partition_point(|version| version.at.main < compacted);
    superseded.min(before)
}
