//! Reads along what the member applies: its effects say which records were made and which leases ended.
//!
//! After a restart the member applies again what its checkpoint did not hold. What comes out must be what came out
//! the first time; where it is not, history forked.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_replica::effect::Checkpoint;
use tenure_state::State;
use tenure_state::applied::Change;
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::key::KeyRange;

use crate::history::{Commit, Finding, History, LeaseEnd, LeaseLife};

#[derive(Default)]
pub struct Tap {
    /// The lease that each living key is on.
    on_lease: BTreeMap<Bytes, LeaseId>,
    alive: BTreeMap<LeaseId, (u32, Nanos)>,
    /// Which life of its id a lease is, by the clock at its grant.
    lives: BTreeMap<(LeaseId, Nanos), u32>,
    life_count: BTreeMap<LeaseId, u32>,
    clock: Nanos,
    /// When the clock in the log went on last.
    pub stamped_at: u64,
    /// In this life, revisions up to here were applied.
    revision: i64,
}

impl Tap {
    /// The member starts with this state.
    pub fn restarted(&mut self, state: &State) {
        self.on_lease.clear();
        let all = KeyRange::From(Bytes::from_static(&[0]));
        let page = state.range_page(&all, None, state.revision(), usize::MAX);
        for record in page.expect("the present can be read").records {
            self.on_lease.insert(record.key.clone(), record.lease);
        }
        self.alive.clear();
        for id in state.leases() {
            let granted = state.lease(id).expect("it was just listed").granted;
            let nth = self.life(id, granted);
            self.alive.insert(id, (nth, granted));
        }
        self.clock = state.clock();
        self.revision = state.revision().0;
    }

    fn life(&mut self, id: LeaseId, granted: Nanos) -> u32 {
        if let Some(nth) = self.lives.get(&(id, granted)) {
            return *nth;
        }
        let count = self.life_count.entry(id).or_default();
        *count += 1;
        self.lives.insert((id, granted), *count);
        *count
    }

    pub fn applied(&mut self, h: u64, checkpoint: &Checkpoint, history: &mut History) {
        let clock = checkpoint.meta.clock;
        if clock < self.clock {
            history.findings.push(Finding::ClockWentBack { before: self.clock, after: clock });
        }
        if clock > self.clock {
            self.stamped_at = h;
        }
        self.clock = clock;
        // Keys that tombstones of this batch took off leases.
        let mut buried: Vec<(LeaseId, i64)> = Vec::new();
        for change in &checkpoint.changes {
            match change {
                Change::Record(record) => {
                    let revision = record.at.main.0;
                    self.revision = revision;
                    let commit = history
                        .commits
                        .entry(revision)
                        .or_insert_with(|| Commit { at: h, ..Commit::default() });
                    match commit.records.get(record.at.sub as usize) {
                        None => commit.records.push(record.clone()),
                        Some(known) if known == record => {}
                        Some(known) => {
                            let what = format!("{known:?} became {record:?}");
                            history.findings.push(Finding::Fork { revision, what });
                        }
                    }
                    let before = if record.is_tombstone() {
                        self.on_lease.remove(&record.key)
                    } else {
                        self.on_lease.insert(record.key.clone(), record.lease)
                    };
                    if let Some(lease) = before.filter(|_| record.is_tombstone()) {
                        buried.push((lease, revision));
                    }
                }
                Change::Lease(row) => {
                    let nth = self.life(row.id, row.granted);
                    self.alive.insert(row.id, (nth, row.granted));
                    let lease = history.leases.entry(LeaseLife { id: row.id, nth }).or_default();
                    lease.parent = row.parent;
                    lease.ttl = row.ttl;
                    if row.base == row.deadline && lease.end.is_none() {
                        lease.renewed = h;
                    }
                }
                Change::LeaseGone(id) => {
                    let Some((nth, _)) = self.alive.remove(id) else { continue };
                    let life = LeaseLife { id: *id, nth };
                    let revision =
                        buried.iter().filter(|(lease, _)| lease == id).map(|(_, revision)| *revision).max();
                    if let Some(commit) = revision.and_then(|revision| history.commits.get_mut(&revision))
                        && !commit.ended.contains(&life)
                        && commit.records.iter().all(|record| record.is_tombstone())
                    {
                        commit.ended.push(life);
                    }
                    let lease = history.leases.entry(life).or_default();
                    lease.end.get_or_insert(LeaseEnd { at: h, revision });
                }
                Change::RecordGone(_) => {}
            }
        }
        self.revision = self.revision.max(checkpoint.meta.revision.0);
    }
}
