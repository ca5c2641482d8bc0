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
    /// No chunk is empty.
    chunks: VecDeque<Vec<Arc<Record>>>,
    len: usize,
}

impl History {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn last(&self) -> Option<&Arc<Record>> {
        self.chunks.back()?.last()
    }

    pub fn push(&mut self, record: Arc<Record>) {
        assert!(self.last().is_none_or(|last| last.at < record.at), "history is written in order");
        self.len += 1;
        if let Some(chunk) = self.chunks.back_mut().filter(|chunk| chunk.len() < CHUNK_MAX) {
            chunk.push(record);
        } else {
            // Grows by itself: a small store has one small chunk.
            self.chunks.push_back(alloc::vec![record]);
        }
    }

    /// The records at and after `at`, in order.
    pub fn from(&self, at: RevisionAt) -> impl Iterator<Item = &Arc<Record>> {
        let chunk = self.chunk_of(at);
        let skipped =
            self.chunks.get(chunk).map_or(0, |records| records.partition_point(|record| record.at < at));
        self.chunks.range(chunk..).flatten().skip(skipped)
    }

    pub fn first_from(&self, at: RevisionAt) -> Option<&Arc<Record>> {
        self.from(at).next()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.chunks.iter().flatten()
    }

    /// Takes the record at exactly `at` out.
    pub fn remove(&mut self, at: RevisionAt) {
        let place = self.chunk_of(at);
        let chunk = self.chunks.get_mut(place).expect("what is dropped is in history");
        let found = chunk.binary_search_by_key(&at, |record| record.at);
        chunk.remove(found.expect("what is dropped is in history"));
        self.len -= 1;
        self.merge(place);
    }

    /// The first chunk with a record at or after `at`; the number of chunks if there is none.
    fn chunk_of(&self, at: RevisionAt) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().expect("chunks are never empty").at < at)
    }

    /// Joins the chunk at `place` with the one after it or before it where both are small, and drops it when
    /// it is empty. Half full together leaves room, so that a chunk is not merged again at once.
    fn merge(&mut self, place: usize) {
        let here = self.chunks[place].len();
        if here == 0 {
            self.chunks.remove(place);
            return;
        }
        let fits =
            |other: Option<&Vec<Arc<Record>>>| other.is_some_and(|other| here + other.len() <= CHUNK_MAX / 2);
        if fits(self.chunks.get(place + 1)) {
            self.join_next(place);
        } else if place > 0 && fits(self.chunks.get(place - 1)) {
            self.join_next(place - 1);
        }
    }

    fn join_next(&mut self, place: usize) {
        let next = self.chunks.remove(place + 1).expect("there is a next chunk");
        self.chunks[place].extend(next);
    }

    /// Panics if the chunks contradict each other.
    pub fn assert_invariants(&self) {
        let mut before: Option<RevisionAt> = None;
        let mut count = 0;
        for chunk in &self.chunks {
            assert!(!chunk.is_empty(), "no chunk is empty");
            assert!(chunk.len() <= CHUNK_MAX, "no chunk is too long");
            for record in chunk {
                assert!(before.is_none_or(|before| before < record.at), "history is in order");
                before = Some(record.at);
                count += 1;
            }
        }
        assert_eq!(count, self.len, "history knows its length");
    }
}
