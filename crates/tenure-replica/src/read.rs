//! Reads: linearizable ones wait until the leadership is confirmed and nothing due is left unseen; long ones go
//! in pages, so that no turn of the loop takes long.

mod txn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tenure_state::State;
use tenure_state::command::Range;
use tenure_state::ids::{LeaseId, Nanos, Revision};
use tenure_state::range;
use tenure_state::record::Record;
use tenure_state::refusal::Refusal;

use crate::consensus::Consensus;
use crate::effect::{Answer, Failure, RangePage, TimeToLive};
use crate::input::{Read, Ticket};
use crate::read::txn::TxnRead;

/// A page is full at this many records or bytes.
const PAGE: Room = Room { records: 1000, bytes: 1 << 20 };
/// One turn looks at about this many records and index entries for all long reads together.
const TURN_LOOKS_MAX: usize = 8 * PAGE.records;
/// A long read keeps a scrub waiting for so long and no longer.
const PIN_MAX: Nanos = Nanos::from_secs(5);

/// What a page has room for.
#[derive(Clone, Copy)]
struct Room {
    records: usize,
    bytes: usize,
}

/// The reads that wait for their confirmation, and those that take several turns.
pub(crate) struct Reads {
    /// Came this turn, not in a batch yet.
    open: Vec<Waiting>,
    /// By read-index context, in the order in which they were asked.
    batches: BTreeMap<u64, Batch>,
    next_context: u64,
    long: BTreeMap<Ticket, LongRead>,
    /// Long reads that have something to do this turn.
    ready: VecDeque<Ticket>,
    /// Given up this turn, and maybe still waiting for their confirmation.
    forgotten: BTreeSet<Ticket>,
    counts: ReadCounts,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadCounts {
    pub(crate) ranges: u64,
    /// Confirmations that were asked for, and those of them that had to be asked for again.
    pub(crate) batches: u64,
    pub(crate) batches_again: u64,
    /// Reads that were given up without one.
    pub(crate) failed: u64,
}

struct Waiting {
    ticket: Ticket,
    read: Read,
    since: Nanos,
    /// The lease clock when it was asked.
    clock: Nanos,
}

struct Batch {
    reads: Vec<Waiting>,
    asked: Nanos,
    /// Known once the leadership is confirmed.
    index: Option<u64>,
    /// A lease was due: wait for a step after this many that may expire.
    after_step: Option<u64>,
}

enum LongRead {
    Range(RangeRead),
    Txn(Box<TxnRead>),
    HashKv(tenure_state::HashKv),
}

struct RangeRead {
    range: Range,
    /// The same on all pages.
    at: Revision,
    since: Nanos,
    /// Where to go on; `None` inside `Some` is the start. Done when `None`.
    next: Option<Option<Bytes>>,
    /// Records still wanted.
    wanted: usize,
    count: u64,
    page: Vec<Arc<Record>>,
    page_bytes: usize,
    /// The page was sent; nothing is done until the next one is asked for.
    sent: bool,
}

/// An answer for a ticket.
pub(crate) type Out<'a> = &'a mut dyn FnMut(Ticket, Result<Answer, Failure>);

impl Reads {
    pub(crate) fn new() -> Reads {
        Reads {
            open: Vec::new(),
            batches: BTreeMap::new(),
            next_context: 1,
            long: BTreeMap::new(),
            ready: VecDeque::new(),
            forgotten: BTreeSet::new(),
            counts: ReadCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> ReadCounts {
        self.counts
    }

    /// Takes a linearizable read. `clock` is the lease clock when it was asked.
    pub(crate) fn add(&mut self, ticket: Ticket, read: Read, now: Nanos, clock: Nanos) {
        self.open.push(Waiting { ticket, read, since: now, clock });
    }

    /// Asks Raft once for all reads that came this turn. `clock` is the lease clock now. `due` says that a lease is due
    /// which the reads must not see alive; `steps` counts the expiring steps that were proposed so far.
    pub(crate) fn ask(
        &mut self,
        consensus: &mut Consensus,
        now: Nanos,
        clock: Nanos,
        due: bool,
        steps: u64,
        retry_after: Nanos,
    ) {
        let stale: Vec<u64> = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.index.is_none() && batch.asked + retry_after <= now)
            .map(|(context, _)| *context)
            .collect();
        if self.open.is_empty() && stale.is_empty() {
            return;
        }
        if !consensus.role().is_leader || !consensus.committed_in_term() {
            return;
        }
        for context in stale {
            let batch = self.batches.remove(&context).expect("it was just found");
            self.open.extend(batch.reads);
            self.counts.batches_again += 1;
        }
        self.counts.batches += 1;
        let context = self.next_context;
        self.next_context += 1;
        let mut reads = std::mem::take(&mut self.open);
        for read in &mut reads {
            // Who asked before this member was active was given the clock that its state had then, which may be
            // that of an old checkpoint.
            read.clock = read.clock.max(clock);
        }
        let batch = Batch { reads, asked: now, index: None, after_step: due.then_some(steps) };
        self.batches.insert(context, batch);
        consensus.read_index(context);
    }

    pub(crate) fn confirmed(&mut self, context: u64, index: u64) {
        // A batch that was asked for again under another context is not here any more.
        if let Some(batch) = self.batches.get_mut(&context) {
            batch.index = Some(index);
        }
    }

    /// After a change of role, term or leader every read asks anew.
    pub(crate) fn restart(&mut self) {
        for (_, batch) in std::mem::take(&mut self.batches) {
            self.open.extend(batch.reads);
        }
    }

    /// Answers the batches whose index is applied. `steps_applied` counts the expiring steps of this leader.
    pub(crate) fn answer(&mut self, state: &State, now: Nanos, steps_applied: u64, out: Out<'_>) {
        self.drop_forgotten();
        let applied = state.applied();
        let done: Vec<u64> = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.index.is_some_and(|index| index <= applied))
            .filter(|(_, batch)| batch.after_step.is_none_or(|steps| steps < steps_applied))
            .map(|(context, _)| *context)
            .collect();
        for context in done {
            let batch = self.batches.remove(&context).expect("it was just found");
            for waiting in batch.reads {
                self.serve(state, waiting.ticket, waiting.read, now, waiting.clock, out);
            }
        }
    }

    /// Serves a read from the state as it is.
    pub(crate) fn serve(
        &mut self,
        state: &State,
        ticket: Ticket,
        read: Read,
        now: Nanos,
        clock: Nanos,
        out: Out<'_>,
    ) {
        if matches!(read, Read::Range(_)) {
            self.counts.ranges += 1;
        }
        match read {
            Read::Range(range) => match state.resolve(range.revision) {
                Ok(at) => self.start(ticket, LongRead::Range(RangeRead::new(range, at, now))),
                Err(refusal) => out(ticket, Err(refusal.into())),
            },
            Read::Txn(txn) => self.start(ticket, LongRead::Txn(Box::new(TxnRead::new(txn, state, now)))),
            Read::TimeToLive { id, keys } => {
                out(ticket, Ok(Answer::TimeToLive(time_to_live(state, id, keys, clock))))
            }
            Read::Leases => out(ticket, Ok(Answer::Leases(state.leases()))),
            Read::HashKv { revision } => {
                let hash = tenure_state::HashKv { at: revision, ..Default::default() };
                self.start(ticket, LongRead::HashKv(hash));
            }
            Read::Digest => out(ticket, Ok(Answer::Digest(state.digest()))),
            Read::Barrier => out(ticket, Ok(Answer::Barrier)),
            Read::Status => unreachable!("the status is answered at once, by the replica"),
        }
    }

    fn start(&mut self, ticket: Ticket, long: LongRead) {
        self.long.insert(ticket, long);
        self.ready.push_back(ticket);
    }

    pub(crate) fn next_page(&mut self, ticket: Ticket) -> Result<(), Failure> {
        let sent = match self.long.get_mut(&ticket) {
            Some(LongRead::Range(read)) => std::mem::take(&mut read.sent),
            Some(LongRead::Txn(read)) => std::mem::take(&mut read.sent),
            Some(LongRead::HashKv(_)) | None => false,
        };
        if sent {
            self.ready.push_back(ticket);
            Ok(())
        } else {
            // Only a read that was given up for its age is missing.
            Err(Failure::Refused(Refusal::Compacted))
        }
    }

    pub(crate) fn forget(&mut self, ticket: Ticket) {
        if self.long.remove(&ticket).is_none() {
            self.forgotten.insert(ticket);
        }
    }

    /// Drops what is forgotten before it was confirmed: it would start, and wait for ever to be asked for more. All of a
    /// turn at once, since many clients may leave together.
    fn drop_forgotten(&mut self) {
        let forgotten = std::mem::take(&mut self.forgotten);
        if forgotten.is_empty() {
            return;
        }
        let is_wanted = |waiting: &Waiting| !forgotten.contains(&waiting.ticket);
        self.open.retain(is_wanted);
        for batch in self.batches.values_mut() {
            batch.reads.retain(is_wanted);
        }
    }

    /// Goes on with long reads, a bounded amount a turn.
    pub(crate) fn turn(&mut self, state: &State, out: Out<'_>) {
        let mut looks = TURN_LOOKS_MAX;
        while looks > 0 {
            let Some(ticket) = self.ready.pop_front() else { return };
            match self.long.get_mut(&ticket) {
                None => {}
                Some(LongRead::Range(read)) => match read.advance(state, PAGE, &mut looks) {
                    Ok(None) => self.ready.push_back(ticket),
                    Ok(Some(page)) => {
                        if page.count.is_some() {
                            self.long.remove(&ticket);
                        }
                        out(ticket, Ok(Answer::Page(page)));
                    }
                    Err(refusal) => {
                        self.long.remove(&ticket);
                        out(ticket, Err(refusal.into()));
                    }
                },
                Some(LongRead::Txn(read)) => match read.advance(state, PAGE, &mut looks) {
                    Ok(None) => self.ready.push_back(ticket),
                    Ok(Some(page)) => {
                        if page.done {
                            self.long.remove(&ticket);
                        }
                        out(ticket, Ok(Answer::Txn(page)));
                    }
                    Err(refusal) => {
                        self.long.remove(&ticket);
                        out(ticket, Err(refusal.into()));
                    }
                },
                Some(LongRead::HashKv(hash)) => {
                    looks = looks.saturating_sub(PAGE.records);
                    match state.hash_kv(hash.clone(), PAGE.records) {
                        Ok(next) if next.done => {
                            self.long.remove(&ticket);
                            let answer =
                                Answer::HashKv { hash: next.hash, compacted: next.compacted, at: next.at };
                            out(ticket, Ok(answer));
                        }
                        Ok(next) => {
                            *hash = next;
                            self.ready.push_back(ticket);
                        }
                        Err(refusal) => {
                            self.long.remove(&ticket);
                            out(ticket, Err(refusal.into()));
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a read in pages still needs records that the next scrub would drop.
    pub(crate) fn pins(&self, compacted: Revision, now: Nanos) -> bool {
        self.long.values().any(|long| {
            let (at, since) = match long {
                LongRead::Range(read) => (read.at, read.since),
                LongRead::Txn(read) => (read.oldest, read.since),
                LongRead::HashKv(_) => return false,
            };
            at < compacted && now < since + PIN_MAX
        })
    }

    /// Gives up on reads that have waited for their confirmation since before `since`.
    pub(crate) fn expire(&mut self, since: Nanos, failure: Failure, out: Out<'_>) {
        let mut failed = 0;
        let mut give_up = |reads: &mut Vec<Waiting>| {
            reads.retain(|waiting| {
                let keep = waiting.since >= since;
                if !keep {
                    failed += 1;
                    out(waiting.ticket, Err(failure));
                }
                keep
            });
        };
        give_up(&mut self.open);
        self.batches.retain(|_, batch| {
            give_up(&mut batch.reads);
            !batch.reads.is_empty()
        });
        self.counts.failed += failed;
    }

    /// Since when the oldest read waits for its confirmation.
    pub(crate) fn waiting_since(&self) -> Option<Nanos> {
        let open = self.open.iter().map(|waiting| waiting.since);
        let asked = self.batches.values().flat_map(|batch| &batch.reads).map(|waiting| waiting.since);
        open.chain(asked).min()
    }
}

impl RangeRead {
    fn new(range: Range, at: Revision, since: Nanos) -> RangeRead {
        RangeRead {
            wanted: range::needed(&range),
            range,
            at,
            since,
            next: Some(None),
            count: 0,
            page: Vec::new(),
            page_bytes: 0,
            sent: false,
        }
    }

    /// Works on until a page is full or the turn's share is used up. `None`: go on next turn.
    fn advance(
        &mut self,
        state: &State,
        room: Room,
        looks: &mut usize,
    ) -> Result<Option<RangePage>, Refusal> {
        while let Some(from) = self.next.clone() {
            if *looks == 0 {
                return Ok(None);
            }
            if self.wanted == 0 {
                let page = state.count_page(&self.range.range, from.as_ref(), self.at, *looks)?;
                *looks = looks.saturating_sub(page.looks.max(1));
                self.count += page.count;
                self.next = page.next.map(Some);
                continue;
            }
            let limit = room.records.saturating_sub(self.page.len()).min(self.wanted).min(*looks).max(1);
            let page = state.range_page(&self.range.range, from.as_ref(), self.at, limit)?;
            *looks = looks.saturating_sub(page.looks.max(1));
            self.count += page.records.len() as u64;
            self.wanted -= page.records.len();
            self.page_bytes +=
                page.records.iter().map(|record| record.key.len() + record.value.len()).sum::<usize>();
            self.page.extend(page.records);
            self.next = page.next.map(Some);
            let full = self.page.len() >= room.records || self.page_bytes >= room.bytes;
            if full && self.next.is_some() {
                self.page_bytes = 0;
                self.sent = true;
                let records = std::mem::take(&mut self.page);
                return Ok(Some(RangePage { records, at: self.at, count: None }));
            }
        }
        let records = std::mem::take(&mut self.page);
        Ok(Some(RangePage { records, at: self.at, count: Some(self.count as i64) }))
    }
}

fn time_to_live(state: &State, id: LeaseId, keys: bool, clock: Nanos) -> Option<TimeToLive> {
    let row = state.lease(id)?;
    Some(TimeToLive {
        granted: row.ttl,
        remaining: row.deadline.saturating_sub(clock).min(row.ttl),
        keys: if keys { state.lease_keys(id) } else { Vec::new() },
    })
}
