//! All records in the order of revisions.
//!
//! Kept in chunks, so that taking out what compaction drops moves a few kilobytes and not everything, and so
//! that growth never copies the whole. Chunks that were thinned out are merged with their neighbour.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::RevisionAt;
use crate::record::Record;

/// Records in a chunk. A removal moves half of it on average: 2 KiB of pointers.
const CHUNK_MAX: usize = 512;

#[derive(Default)]
pub(super) struct History {
    chunks: VecDeque<Chunk>,
    len: usize,
}

struct Chunk {
    /// No record of this chunk is before it, all of the chunks before are: what a search compares with, lest
    /// it touch a record of each chunk that it looks at.
    start: RevisionAt,
    /// Never empty.
    records: Vec<Arc<Record>>,
}

impl History {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn last(&self) -> Option<&Arc<Record>> {
        self.chunks.back()?.records.last()
    }

    pub fn push(&mut self, record: Arc<Record>) {
        assert!(self.last().is_none_or(|last| last.at < record.at), "history is written in order");
        self.len += 1;
        if let Some(chunk) = self.chunks.back_mut().filter(|chunk| chunk.records.len() < CHUNK_MAX) {
            chunk.records.push(record);
        } else {
            // Grows by itself: a small store has one small chunk.
            self.chunks.push_back(Chunk { start: record.at, records: alloc::vec![record] });
        }
    }

    /// The records at and after `at`, in order.
    pub fn from(&self, at: RevisionAt) -> impl Iterator<Item = &Arc<Record>> {
        let (first, rest) = match self.chunk_of(at) {
            Some(place) => {
                let records = &self.chunks[place].records;
                (&records[records.partition_point(|record| record.at < at)..], place + 1)
            }
            None => (&[][..], 0),
        };
        first.iter().chain(self.chunks.range(rest..).flat_map(|chunk| &chunk.records))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.chunks.iter().flat_map(|chunk| &chunk.records)
    }

    /// Takes the record at exactly `at` out.
    pub fn remove(&mut self, at: RevisionAt) {
        let place = self.chunk_of(at).expect("what is dropped is in history");
        let records = &mut self.chunks[place].records;
        let found = records.binary_search_by_key(&at, |record| record.at);
        records.remove(found.expect("what is dropped is in history"));
        self.len -= 1;
        self.merge(place);
    }

    /// The only chunk that may hold a record at `at`, which is also the first that may hold one after it.
    fn chunk_of(&self, at: RevisionAt) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.start <= at).checked_sub(1)
    }

    /// Joins the chunk at `place` with the one after it or before it where both are small, and drops it when
    /// it is empty. Half full together leaves room, so that a chunk is not merged again at once.
    fn merge(&mut self, place: usize) {
        let here = self.chunks[place].records.len();
        if here == 0 {
            self.chunks.remove(place);
            return;
        }
        let fits =
            |other: Option<&Chunk>| other.is_some_and(|other| here + other.records.len() <= CHUNK_MAX / 2);
        if fits(self.chunks.get(place + 1)) {
            self.join_next(place);
        } else if place > 0 && fits(self.chunks.get(place - 1)) {
            self.join_next(place - 1);
        }
    }

    fn join_next(&mut self, place: usize) {
        let next = self.chunks.remove(place + 1).expect("there is a next chunk");
        self.chunks[place].records.extend(next.records);
    }

    /// Panics if the chunks contradict each other.
    pub fn assert_invariants(&self) {
        let mut before: Option<RevisionAt> = None;
        let mut count = 0;
        for chunk in &self.chunks {
            assert!(!chunk.records.is_empty(), "no chunk is empty");
            assert!(chunk.records.len() <= CHUNK_MAX, "no chunk is too long");
            assert!(before.is_none_or(|before| before < chunk.start), "chunks start behind those before");
            assert!(chunk.start <= chunk.records[0].at, "chunks start with their records");
            for record in &chunk.records {
                assert!(before.is_none_or(|before| before < record.at), "history is in order");
                before = Some(record.at);
                count += 1;
            }
        }
        assert_eq!(count, self.len, "history knows its length");
        for (one, next) in self.chunks.iter().zip(self.chunks.iter().skip(1)) {
            let together = one.records.len() + next.records.len();
            assert!(together > CHUNK_MAX / 2, "small neighbours are merged");
        }
    }
}
