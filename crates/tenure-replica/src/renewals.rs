//! Renewals on their way into a step: collected in batches, queued at the leader, answered by the apply of the
//! step that lists their batch and by nothing else. An answer is found by batch, never by lease id, so that no
//! member can answer a renewal that the log does not hold.

use std::collections::{BTreeMap, VecDeque};

use tenure_state::applied::Renewed;
use tenure_state::ids::{LeaseId, MemberId, Nanos};

use crate::effect::Answer;
use crate::entry::Origin;
use crate::input::Ticket;

/// A batch takes no further renewals beyond this.
const BATCH_IDS_MAX: usize = 4096;
/// One entry renews at most about so many leases (about 70 KiB of ids), more go into further chunks.
const CHUNK_IDS_MAX: usize = 8192;

/// Part of a step: what one entry renews, and the batches that it answers.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Ascending, each once.
    pub(crate) ids: Vec<LeaseId>,
    pub(crate) batches: Vec<Origin>,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    ids: Vec<LeaseId>,
    since: Nanos,
}

#[derive(Debug)]
pub(crate) struct Renewals {
    member: MemberId,
    incarnation: u64,
    next_number: u64,
    /// Who waits in each batch of this member, until it is answered.
    waiting: BTreeMap<u64, Vec<Waiter>>,
    /// Batches that are in no step yet, in the order in which they came.
    queue: VecDeque<u64>,
    /// How many renewals the last batch of the queue holds, if it may take more.
    open: Option<usize>,
}

impl Renewals {
    pub(crate) fn new(member: MemberId, incarnation: u64) -> Renewals {
        Renewals {
            member,
            incarnation,
            next_number: 1,
            waiting: BTreeMap::new(),
            queue: VecDeque::new(),
            open: None,
        }
    }

    pub(crate) fn add(&mut self, ticket: Ticket, ids: Vec<LeaseId>, now: Nanos) {
        let count = ids.len();
        let number = match self.open {
            Some(held) => {
                self.open = Some(held + count);
                self.next_number - 1
            }
            None => {
                let number = self.next_number;
                self.next_number += 1;
                self.queue.push_back(number);
                self.open = Some(count);
                number
            }
        };
        self.waiting.entry(number).or_default().push(Waiter { ticket, ids, since: now });
        if self.open.is_some_and(|held| held >= BATCH_IDS_MAX) {
            self.open = None;
        }
    }

    /// Since when the oldest renewal waits for a step; `None` if none does.
    pub(crate) fn queued_since(&self) -> Option<Nanos> {
        let first = self.queue.front()?;
        self.waiting.get(first)?.first().map(|waiter| waiter.since)
    }

    /// Takes all that waits, in chunks of bounded size.
    pub(crate) fn take(&mut self) -> Vec<Chunk> {
        self.open = None;
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut full = true;
        for number in self.queue.drain(..) {
            if full {
                chunks.push(Chunk { ids: Vec::new(), batches: Vec::new() });
            }
            let chunk = chunks.last_mut().expect("a chunk was just opened");
            chunk.batches.push(Origin { member: self.member, incarnation: self.incarnation, number });
            for waiter in self.waiting.get(&number).into_iter().flatten() {
                chunk.ids.extend_from_slice(&waiter.ids);
            }
            full = chunk.ids.len() >= CHUNK_IDS_MAX;
        }
        for chunk in &mut chunks {
            chunk.ids.sort_unstable();
            chunk.ids.dedup();
        }
        chunks
    }

    /// Puts batches back that are in no log: those of dropped chunks, or all unanswered ones on a change of leader.
    pub(crate) fn requeue(&mut self, batches: impl IntoIterator<Item = Origin>) {
        for batch in batches {
            if self.is_ours(batch)
                && self.waiting.contains_key(&batch.number)
                && !self.queue.contains(&batch.number)
            {
                self.queue.push_back(batch.number);
            }
        }
        self.queue.make_contiguous().sort_unstable();
        self.open = None;
    }

    /// All batches without an answer go back into the queue.
    pub(crate) fn requeue_all(&mut self) {
        self.queue = self.waiting.keys().copied().collect();
        self.open = None;
    }

    /// Answers the batches of an applied step; `renewed` is in ascending order of id.
    pub(crate) fn answer(
        &mut self,
        batches: &[Origin],
        renewed: &[Renewed],
        mut answer: impl FnMut(Ticket, Answer),
    ) {
        for batch in batches {
            if !self.is_ours(*batch) {
                continue;
            }
            for waiter in self.waiting.remove(&batch.number).into_iter().flatten() {
                let renewed = waiter
                    .ids
                    .iter()
                    .map(|id| match renewed.binary_search_by_key(id, |renewed| renewed.id) {
                        Ok(at) => renewed[at],
                        Err(_) => unreachable!("a step renews all leases of the batches that it lists"),
                    })
                    .collect();
                answer(waiter.ticket, Answer::Renewed(renewed));
            }
        }
    }

    /// Gives up on those that have waited since before `since`, wherever their batch is.
    pub(crate) fn expire(&mut self, since: Nanos, mut give_up: impl FnMut(Ticket)) {
        self.waiting.retain(|_, waiters| {
            waiters.retain(|waiter| {
                let keep = waiter.since >= since;
                if !keep {
                    give_up(waiter.ticket);
                }
                keep
            });
            !waiters.is_empty()
        });
        let waiting = &self.waiting;
        self.queue.retain(|number| waiting.contains_key(number));
        self.open = None;
    }

    /// Since when the oldest unanswered renewal waits, in a step or not.
    pub(crate) fn waiting_since(&self) -> Option<Nanos> {
        self.waiting.first_key_value().and_then(|(_, waiters)| waiters.first()).map(|waiter| waiter.since)
    }

    fn is_ours(&self, batch: Origin) -> bool {
        batch.member == self.member && batch.incarnation == self.incarnation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[i64]) -> Vec<LeaseId> {
        ids.iter().copied().map(LeaseId).collect()
    }

    fn renewed(ids: &[i64]) -> Vec<Renewed> {
        ids.iter().map(|id| Renewed { id: LeaseId(*id), remaining: Some(Nanos(*id as u64)) }).collect()
    }

    fn answers(renewals: &mut Renewals, batches: &[Origin], step: &[Renewed]) -> Vec<(u64, Vec<i64>)> {
        let mut out = Vec::new();
        renewals.answer(batches, step, |ticket, answer| {
            let Answer::Renewed(renewed) = answer else { panic!("only renewals answer renewals") };
            out.push((ticket.0, renewed.iter().map(|renewed| renewed.id.0).collect()));
        });
        out
    }

    #[test]
    fn all_that_comes_before_a_step_shares_it() {
        let mut renewals = Renewals::new(MemberId(1), 1);
        renewals.add(Ticket(1), ids(&[5, 3]), Nanos(1));
        renewals.add(Ticket(2), ids(&[4, 5]), Nanos(2));
        assert_eq!(renewals.queued_since(), Some(Nanos(1)));
        let chunks = renewals.take();
        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].ids, ids(&[3, 4, 5]));
        assert_eq!(renewals.queued_since(), None);
        let step = renewed(&[3, 4, 5]);
        assert_eq!(answers(&mut renewals, &chunks[0].batches, &step), [(1, vec![5, 3]), (2, vec![4, 5])]);
        assert_eq!(renewals.waiting_since(), None);
    }

    #[test]
    fn a_step_answers_only_the_batches_that_it_lists() {
        let mut renewals = Renewals::new(MemberId(1), 7);
        renewals.add(Ticket(1), ids(&[3]), Nanos(1));
        let first = renewals.take();
        renewals.add(Ticket(2), ids(&[3]), Nanos(2));
        assert_eq!(answers(&mut renewals, &first[0].batches, &renewed(&[3])), [(1, vec![3])]);
        assert_eq!(renewals.waiting_since(), Some(Nanos(2)));
    }

    #[test]
    fn a_batch_of_an_earlier_life_answers_nobody() {
        let mut renewals = Renewals::new(MemberId(1), 7);
        renewals.add(Ticket(1), ids(&[3]), Nanos(1));
        let ours = renewals.take().remove(0).batches[0];
        for stranger in [Origin { incarnation: 6, ..ours }, Origin { member: MemberId(2), ..ours }] {
            assert_eq!(answers(&mut renewals, &[stranger], &renewed(&[3])), []);
        }
    }

    #[test]
    fn many_renewals_go_in_chunks() {
        let mut renewals = Renewals::new(MemberId(1), 1);
        for n in 0..30_000 {
            renewals.add(Ticket(n), ids(&[n as i64]), Nanos(n));
        }
        let chunks = renewals.take();
        assert!(chunks.len() >= 3);
        assert!(chunks.iter().all(|chunk| chunk.ids.len() < CHUNK_IDS_MAX + BATCH_IDS_MAX));
        assert_eq!(chunks.iter().map(|chunk| chunk.ids.len()).sum::<usize>(), 30_000);
    }

    #[test]
    fn dropped_batches_are_taken_again_in_order() {
        let mut renewals = Renewals::new(MemberId(1), 1);
        renewals.add(Ticket(1), ids(&[1]), Nanos(1));
        let dropped = renewals.take().remove(0);
        renewals.add(Ticket(2), ids(&[2]), Nanos(2));
        renewals.requeue(dropped.batches);
        let chunks = renewals.take();
        assert_eq!(chunks[0].ids, ids(&[1, 2]));
        assert_eq!(chunks[0].batches.iter().map(|batch| batch.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn those_that_waited_too_long_are_given_up() {
        let mut renewals = Renewals::new(MemberId(1), 1);
        renewals.add(Ticket(1), ids(&[1]), Nanos(1));
        renewals.add(Ticket(2), ids(&[2]), Nanos(9));
        let mut gone = Vec::new();
        renewals.expire(Nanos(5), |ticket| gone.push(ticket));
        assert_eq!(gone, [Ticket(1)]);
        assert_eq!(renewals.take()[0].ids, ids(&[2]));
    }
}
