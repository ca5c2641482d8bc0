//! Carrying out one entry of the log.
//!
//! One match over all commands; each arm calls one function that stands elsewhere. Nothing here may depend on
//! anything but the state and the entry, or members drift apart.

use alloc::vec::Vec;
use core::mem;

use bytes::Bytes;

use crate::applied::{Applied, Change, DeleteReply, Progress, PutReply, Reply, StepReply};
use crate::bugs::Bug;
use crate::command::{AlarmAction, Command, DeleteRange, Entry, Grant, LeaseStep, Put, TakeOver};
use crate::ids::{LeaseId, Nanos};
use crate::key::KeyRange;
use crate::refusal::Refusal;
use crate::write::Draft;
use crate::{State, Stats};

/// Keys that one turn deletes when a single entry deletes very many: a few milliseconds' worth.
pub(crate) const SLICE_MAX: usize = 4_000;

/// An entry that takes several turns.
pub(crate) struct Job {
    index: u64,
    work: Work,
    draft: Draft,
    /// What the state weighed before it, which is what others see until it is done.
    stats: Stats,
}

enum Work {
    Delete {
        range: KeyRange,
        /// The first key that is still to be looked at.
        next: Option<Bytes>,
        prev: bool,
        reply: DeleteReply,
    },
    /// The leases of the tree stay until its last key is gone.
    Tree { root: LeaseId, leases: Vec<LeaseId>, then: AfterTree },
}

/// What a tree ends for.
enum AfterTree {
    Revoke,
    Step { reply: StepReply, clock: Nanos },
}

/// How far the first turn of an entry got.
enum Begun {
    Done(Reply),
    Work(Work),
}

impl State {
    /// Carries out one entry. Entries come in order of their index, each once.
    pub fn apply(&mut self, entry: &Entry) -> Progress {
        assert!(self.job.is_none(), "an unfinished entry is finished before the next one");
        assert!(entry.index > self.applied, "entries are applied in order, each once");
        let stats = self.stats();
        let mut draft = Draft::new(self.mvcc.revision());
        match self.begin(entry, &mut draft) {
            Ok(Begun::Done(reply)) => self.finish(entry.index, Ok(reply), draft),
            Ok(Begun::Work(work)) => {
                self.job = Some(Job { index: entry.index, work, draft, stats });
                Progress::Unfinished
            }
            Err(refusal) => {
                assert!(draft.changes.is_empty(), "what is refused has changed nothing");
                self.finish(entry.index, Err(refusal), draft)
            }
        }
    }

    /// Goes on with the entry that [`Progress::Unfinished`] named. Nothing else may be applied meanwhile; reads
    /// go on and see the state before it.
    pub fn resume(&mut self) -> Progress {
        let mut job = self.job.take().expect("there is an unfinished entry to go on with");
        match self.work_on(&mut job.work, &mut job.draft) {
            Some(reply) => self.finish(job.index, Ok(reply), job.draft),
            None => {
                self.job = Some(job);
                Progress::Unfinished
            }
        }
    }

    /// Makes everything visible at once.
    fn finish(&mut self, index: u64, reply: Result<Reply, Refusal>, draft: Draft) -> Progress {
        self.mvcc.publish(draft.revision());
        self.applied = index;
        Progress::Done(Applied { reply, events: draft.events, changes: draft.changes })
    }

    fn begin(&mut self, entry: &Entry, draft: &mut Draft) -> Result<Begun, Refusal> {
        self.obey_clock(entry)?;
        self.admit(entry)?;
        let reply = match &entry.command {
            Command::Nothing => Reply::Nothing,
            Command::Put(put) => self.apply_put(put, draft)?,
            Command::DeleteRange(delete) => return Ok(self.begin_delete(delete, draft)),
            Command::Txn(txn) => Reply::Txn(self.txn(txn, draft)?),
            Command::Compact { revision } => {
                self.mvcc.compact(*revision)?;
                Reply::Compact { revision: self.mvcc.revision() }
            }
            Command::Scrub { limit } => {
                Reply::Scrub { more: self.mvcc.scrub(*limit as usize, &mut draft.changes) }
            }
            Command::Grant(grant) => self.apply_grant(grant, draft)?,
            Command::Revoke { id } => return self.begin_revoke(*id, draft),
            Command::LeaseStep(step) => return Ok(self.begin_step(step, draft)),
            Command::TakeOver(take_over) => self.apply_take_over(take_over, draft),
            Command::Alarm { action, member, alarm } => {
                match action {
                    AlarmAction::Activate => self.alarms.insert((*member, *alarm)),
                    AlarmAction::Deactivate => self.alarms.remove(&(*member, *alarm)),
                };
                Reply::Alarms {
                    alarms: self.alarms.iter().copied().collect(),
                    revision: self.mvcc.revision(),
                }
            }
        };
        Ok(Begun::Done(reply))
    }

    /// Advances the lease clock by what a lease entry says, unless the leader that stamped it was deposed
    /// before the entry got its place in the log: then nothing of it may count, its clock least of all.
    fn obey_clock(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let (term, clock) = match &entry.command {
            Command::Grant(Grant { stamp, .. }) | Command::LeaseStep(LeaseStep { stamp, .. }) => {
                (stamp.term, stamp.clock)
            }
            Command::TakeOver(TakeOver { term, .. }) => (*term, self.leases.clock()),
            _ => return Ok(()),
        };
        if term != entry.term {
            return Err(Refusal::StaleTerm);
        }
        self.leases.advance(clock);
        Ok(())
    }

    fn apply_put(&mut self, put: &Put, draft: &mut Draft) -> Result<Reply, Refusal> {
        let before = self.put(put, draft)?;
        Ok(Reply::Put(PutReply { revision: draft.revision(), prev: before.filter(|_| put.prev) }))
    }

    fn begin_delete(&mut self, delete: &DeleteRange, draft: &mut Draft) -> Begun {
        let (range, prev) = (delete.range.clone(), delete.prev);
        self.begin_work(Work::Delete { range, next: None, prev, reply: DeleteReply::default() }, draft)
    }

    fn begin_work(&mut self, mut work: Work, draft: &mut Draft) -> Begun {
        match self.work_on(&mut work, draft) {
            Some(reply) => Begun::Done(reply),
            None => Begun::Work(work),
        }
    }

    fn apply_grant(&mut self, grant: &Grant, draft: &mut Draft) -> Result<Reply, Refusal> {
        let row = self.leases.grant(grant.id, grant.ttl, grant.parent, grant.stamp.clock)?;
        draft.changes.push(Change::Lease(row));
        Ok(Reply::Grant { id: row.id, ttl: row.ttl, revision: draft.revision() })
    }

    fn apply_take_over(&mut self, take_over: &TakeOver, draft: &mut Draft) -> Reply {
        let mut rows = Vec::new();
        self.leases.take_over(take_over.grace, &mut rows);
        draft.changes.extend(rows.into_iter().map(Change::Lease));
        Reply::TakeOver
    }

    fn begin_revoke(&mut self, id: LeaseId, draft: &mut Draft) -> Result<Begun, Refusal> {
        if !self.leases.contains(id) {
            return Err(Refusal::LeaseNotFound);
        }
        if self.leases.weight(id) > self.slice_max {
            return Ok(self.begin_tree(id, AfterTree::Revoke, draft));
        }
        self.end_tree(id, draft);
        Ok(Begun::Done(Reply::Revoke { revision: draft.revision() }))
    }

    /// Renewals first, so that one that is earlier in the log wins; then what is due, one revision for each
    /// tree.
    fn begin_step(&mut self, step: &LeaseStep, draft: &mut Draft) -> Begun {
        let clock = step.stamp.clock;
        let mut rows = Vec::new();
        let expire_first = self.bugs.has(Bug::ExpireById) && step.last;
        let doomed = if expire_first { self.leases.next_due(clock).map(|(root, _)| root) } else { None };
        let renewed = self.leases.renew(&step.renew, clock, &mut rows);
        if !self.bugs.has(Bug::RenewalLostAtRestart) {
            draft.changes.extend(rows.into_iter().map(Change::Lease));
        }
        if let Some(root) = doomed {
            self.end_tree(root, draft);
        }
        let mut reply = StepReply { renewed, ended: Vec::new(), more: false };
        let limit = step.limit as usize;
        let mut left = limit;
        while step.last
            && let Some((root, _)) = self.leases.next_due(clock)
        {
            let weight = self.leases.weight(root);
            if weight > left && !reply.ended.is_empty() {
                break;
            }
            // Only the first tree can be over the limit, and then nothing else ends in this entry.
            if weight > limit && weight > self.slice_max {
                return self.begin_tree(root, AfterTree::Step { reply, clock }, draft);
            }
            reply.ended.extend(self.end_tree(root, draft));
            left = left.saturating_sub(weight);
        }
        Begun::Done(self.step_reply(reply, clock))
    }

    fn step_reply(&mut self, mut reply: StepReply, clock: Nanos) -> Reply {
        reply.more = self.leases.next_due(clock).is_some();
        Reply::LeaseStep(reply)
    }

    /// Ends a lease with its descendants and all their keys, in one revision. Returns which ended, each with
    /// its deadline.
    fn end_tree(&mut self, root: LeaseId, draft: &mut Draft) -> Vec<(LeaseId, Nanos)> {
        let mut ended = self.leases.end(root);
        let mut keys: Vec<Bytes> = ended.iter_mut().flat_map(|lease| mem::take(&mut lease.keys)).collect();
        keys.sort_unstable();
        for key in keys {
            self.bury(key, draft);
            if self.bugs.has(Bug::KeysInTwoRevisions) {
                draft.next_revision();
            }
        }
        draft.next_revision();
        draft.changes.extend(ended.iter().map(|lease| Change::LeaseGone(lease.id)));
        ended.iter().map(|lease| (lease.id, lease.deadline)).collect()
    }

    fn begin_tree(&mut self, root: LeaseId, then: AfterTree, draft: &mut Draft) -> Begun {
        let leases = self.leases.subtree(root);
        self.begin_work(Work::Tree { root, leases, then }, draft)
    }

    /// One slice of the work; the reply when it was the last.
    fn work_on(&mut self, work: &mut Work, draft: &mut Draft) -> Option<Reply> {
        match work {
            Work::Delete { range, next, prev, reply } => {
                // Reads the state before the entry, so what is deleted already costs nothing again.
                let visible = self.mvcc.revision();
                let page = self.mvcc.page(range, next.as_ref(), visible, self.slice_max);
                let page = page.expect("the present can always be read");
                for record in &page.records {
                    self.delete(record, draft);
                }
                reply.deleted += page.records.len() as i64;
                if *prev {
                    reply.prevs.extend(page.records);
                }
                *next = page.next;
                if next.is_some() {
                    return None;
                }
                reply.revision = draft.revision();
                Some(Reply::DeleteRange(mem::take(reply)))
            }
            Work::Tree { root, leases, then } => {
                // One more of each than a slice holds shows whether this is the last slice.
                let limit = self.slice_max + 1;
                let first_keys = leases.iter().flat_map(|id| self.leases.first_keys(*id, limit));
                let mut keys: Vec<Bytes> = first_keys.collect();
                keys.sort_unstable();
                let is_last = keys.len() <= self.slice_max;
                for key in keys.iter().take(self.slice_max) {
                    let record = self.mvcc.latest(key).cloned().expect("a key on a lease lives");
                    self.delete(&record, draft);
                }
                if !is_last {
                    return None;
                }
                let ended = self.leases.end(*root);
                draft.next_revision();
                draft.changes.extend(ended.iter().map(|lease| Change::LeaseGone(lease.id)));
                Some(match then {
                    AfterTree::Revoke => Reply::Revoke { revision: draft.revision() },
                    AfterTree::Step { reply, clock } => {
                        let mut reply = mem::take(reply);
                        reply.ended.extend(ended.iter().map(|lease| (lease.id, lease.deadline)));
                        self.step_reply(reply, *clock)
                    }
                })
            }
        }
    }

    /// What the state weighs, as of the last entry that is done.
    pub fn stats(&self) -> Stats {
        match &self.job {
            Some(job) => job.stats,
            None => Stats {
                logical_bytes: self.logical_bytes(),
                keys: self.mvcc.living(),
                records: self.mvcc.record_count() as u64,
                leases: self.leases.len() as u64,
            },
        }
    }

    /// The keys on a lease in ascending order; empty if it does not live.
    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        let mut keys = self.leases.keys(id);
        // What the running entry took off the lease is still on it for everybody else.
        if let Some(job) = &self.job {
            let prevs = job.draft.events.iter().filter_map(|event| event.prev.as_ref());
            keys.extend(prevs.filter(|prev| prev.lease == id).map(|prev| prev.key.clone()));
            keys.sort_unstable();
        }
        keys
    }
}
