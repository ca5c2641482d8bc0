//! Events for one group, to be cut at revisions for each of its watchers and packed once for all that take the
//! same part.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_state::ids::Revision;
use tenure_state::record::{Event, Record};

use super::group::Hit;
use crate::effect::WatchBatch;

/// What an event costs beside its keys and values: the pointers here and the framing on the wire.
const EVENT_OVERHEAD_BYTES: u64 = 64;

pub(super) struct Run<'a> {
    events: &'a [Event],
    /// The events of this group among them; never empty.
    hits: &'a [Hit],
    /// One for each revision, ascending.
    cuts: Vec<Cut>,
    /// What was packed so far, by first and last cut.
    packed: BTreeMap<(usize, usize), Arc<WatchBatch>>,
}

/// The end of one revision in a run.
struct Cut {
    revision: Revision,
    /// Hits and bytes up to here.
    hits: usize,
    bytes: u64,
}

/// The part of a run that a watcher can be sent.
pub(super) struct Part {
    pub batch: Arc<WatchBatch>,
    pub bytes: u64,
    pub last: Revision,
}

impl<'a> Run<'a> {
    pub(super) fn new(events: &'a [Event], hits: &'a [Hit], prev: bool) -> Run<'a> {
        let mut cuts: Vec<Cut> = Vec::new();
        let mut bytes = 0;
        for (hit, number) in hits.iter().zip(1..) {
            let event = &events[hit.event as usize];
            bytes += cost(event, prev);
            let revision = event.record.at.main;
            match cuts.last_mut().filter(|cut| cut.revision == revision) {
                Some(cut) => (cut.hits, cut.bytes) = (number, bytes),
                None => cuts.push(Cut { revision, hits: number, bytes }),
            }
        }
        Run { events, hits, cuts, packed: BTreeMap::new() }
    }

    /// The whole revisions from `next` on that fit into `room`; with `force`, the first one in any case. Beside it
    /// the first revision that did not fit.
    pub(super) fn part(
        &mut self,
        next: Revision,
        room: u64,
        force: bool,
    ) -> (Option<Part>, Option<Revision>) {
        let from = self.cuts.partition_point(|cut| cut.revision < next);
        let (hits_before, bytes_before) =
            from.checked_sub(1).map_or((0, 0), |before| (self.cuts[before].hits, self.cuts[before].bytes));
        let mut to =
            self.cuts.partition_point(|cut| cut.bytes <= bytes_before.saturating_add(room)).max(from);
        if to == from && force {
            to = (from + 1).min(self.cuts.len());
        }
        let rest = self.cuts.get(to).map(|cut| cut.revision);
        if to == from {
            return (None, rest);
        }
        let end = &self.cuts[to - 1];
        let hits = &self.hits[hits_before..end.hits];
        let batch = self.packed.entry((from, to)).or_insert_with(|| {
            let events = hits.iter().map(|hit| self.events[hit.event as usize].clone());
            Arc::new(WatchBatch::new(events.collect()))
        });
        let part = Part { batch: Arc::clone(batch), bytes: end.bytes - bytes_before, last: end.revision };
        (Some(part), rest)
    }
}

fn cost(event: &Event, prev: bool) -> u64 {
    let bytes = |record: &Record| (record.key.len() + record.value.len()) as u64;
    let before = event.prev.as_deref().filter(|_| prev);
    EVENT_OVERHEAD_BYTES + bytes(&event.record) + before.map_or(0, bytes)
}
