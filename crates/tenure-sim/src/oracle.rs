//! The promises of the design, each with the check that finds it broken in a history: one promise a file.
//!
//! A check takes every bound in the direction that favours the server, so any hit is a bug. Each file also holds a
//! hand-written history that it must reject, and one that it must not.

#[cfg(test)]
mod hand;
mod k1_serializable;
mod k2_durable;
mod k3_at_most_once;
mod k4_past_state;
mod k5_never_back;
mod k6_compaction;
mod k7_equal;
mod l10_attach_is_atomic;
mod l11_last_put_owns;
mod l12_revoke;
mod l16_mass_expiry;
mod l17_clock;
mod l18_pause;
mod l1_never_early;
mod l2_bounded_lateness;
mod l3_vanish_at_once;
mod l4_no_zombie;
mod l6_children;
mod l8_time_to_live;
mod l9_no_resurrection;
mod liveness;
mod w1_ordered;
mod w2_unique;
mod w3_reliable;
mod w4_atomic;
mod w5_resumable;
mod w6_bookmark;
mod w7_start;
mod w8_prev;
mod w9_no_silent_gap;

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_replica::effect::Answer;
use tenure_replica::input::{Read, WatchCreate, Write};
use tenure_state::applied::Reply;
use tenure_state::command::Op as TxnOp;
use tenure_state::ids::Nanos;
use tenure_state::key::KeyRange;
use tenure_state::record::Record;

use crate::history::{Ask, History, LeaseLife, Op, Versions};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub promise: &'static str,
    pub what: String,
}

/// A history and what several checks look up in it.
pub struct Evidence<'a> {
    pub history: &'a History,
    pub versions: Versions,
    /// What clients were told of each lease, in the order in which they asked.
    pub told: BTreeMap<LeaseLife, Vec<Told>>,
    /// What clients asked to delete and when, by the revision that they were told; `None`: nobody knows.
    deletes: BTreeMap<Option<i64>, Vec<(u64, Vec<&'a KeyRange>)>>,
}

/// What one answer says of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub op: usize,
    pub send: u64,
    pub recv: u64,
    pub what: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Granted or renewed for so long.
    Acked(Nanos),
    /// So much is left.
    Left(Nanos),
    Gone,
    Revoked {
        revision: i64,
    },
    /// Asked to grant or renew, and nobody knows.
    MaybeAcked,
}

pub type Report = Vec<Violation>;

/// Checks everything.
pub fn check(history: &History) -> Report {
    let evidence = Evidence::of(history);
    let mut report = Report::new();
    for check in [
        liveness::check,
        k1_serializable::check,
        k2_durable::check,
        k3_at_most_once::check,
        k4_past_state::check,
        k5_never_back::check,
        k6_compaction::check,
        k7_equal::check,
        l1_never_early::check,
        l2_bounded_lateness::check,
        l3_vanish_at_once::check,
        l4_no_zombie::check,
        l6_children::check,
        l8_time_to_live::check,
        l9_no_resurrection::check,
        l10_attach_is_atomic::check,
        l11_last_put_owns::check,
        l12_revoke::check,
        l16_mass_expiry::check,
        l17_clock::check,
        l18_pause::check,
        w1_ordered::check,
        w2_unique::check,
        w3_reliable::check,
        w4_atomic::check,
        w5_resumable::check,
        w6_bookmark::check,
        w7_start::check,
        w8_prev::check,
        w9_no_silent_gap::check,
    ] {
        check(&evidence, &mut report);
    }
    report
}

fn broken(report: &mut Report, promise: &'static str, what: String) {
    // One fault breaks much; the first few say enough.
    if report.iter().filter(|violation| violation.promise == promise).count() < 3 {
        report.push(Violation { promise, what });
    }
}

impl<'a> Evidence<'a> {
    pub fn of(history: &'a History) -> Evidence<'a> {
        let mut told: BTreeMap<LeaseLife, Vec<Told>> = BTreeMap::new();
        for (index, op) in history.ops.iter().enumerate() {
            // A child has a life of its own, and only one.
            let is_child = |position| matches!(&op.ask, Ask::Renew(ids) if ids.len() == 2 && position == 1);
            let mut say = |id, position: usize, what| {
                let recv = op.recv.unwrap_or(u64::MAX);
                let nth = if is_child(position) { 1 } else { op.nth.max(1) };
                told.entry(LeaseLife { id, nth }).or_default().push(Told {
                    op: index,
                    send: op.send,
                    recv,
                    what,
                });
            };
            match (&op.ask, op.ok()) {
                // One with a parent may have less, and is not told how much.
                (
                    Ask::Write(Write::Grant { id, parent, .. }),
                    Some((_, Answer::Applied(Reply::Grant { ttl, .. }))),
                ) if parent.is_none() => say(*id, 0, Said::Acked(*ttl)),
                (Ask::Renew(_), Some((_, Answer::Renewed(renewed)))) => {
                    for (position, renewed) in renewed.iter().enumerate() {
                        say(renewed.id, position, renewed.remaining.map_or(Said::Gone, Said::Acked));
                    }
                }
                (Ask::Read(Read::TimeToLive { id, .. }, _), Some((_, Answer::TimeToLive(left)))) => {
                    say(*id, 0, left.as_ref().map_or(Said::Gone, |left| Said::Left(left.remaining)));
                }
                (
                    Ask::Write(Write::Revoke { id }),
                    Some((_, Answer::Applied(Reply::Revoke { revision }))),
                ) => {
                    say(*id, 0, Said::Revoked { revision: revision.0 });
                }
                (Ask::Write(Write::Grant { id, .. }), None) if op.is_unknown() => {
                    say(*id, 0, Said::MaybeAcked);
                }
                (Ask::Renew(ids), None) if op.is_unknown() => {
                    ids.iter().zip(0..).for_each(|(id, position)| say(*id, position, Said::MaybeAcked));
                }
                _ => {}
            }
        }
        Evidence { history, versions: Versions::of(history), told, deletes: deletes(history) }
    }

    /// The lease and all above it.
    pub fn lineage(&self, life: LeaseLife) -> Vec<LeaseLife> {
        let mut lineage = vec![life];
        let mut at = life;
        while let Some(lease) = self.history.leases.get(&at).filter(|lease| !lease.parent.is_none()) {
            let lives = self.history.leases.range(
                LeaseLife { id: lease.parent, nth: 0 }..=LeaseLife { id: lease.parent, nth: u32::MAX },
            );
            let Some((parent, _)) = lives.last() else { break };
            at = *parent;
            lineage.push(at);
        }
        lineage
    }

    /// Whether somebody may have asked to end it, or one above it.
    pub fn is_voluntary(&self, life: LeaseLife, at: u64) -> bool {
        self.lineage(life).into_iter().any(|life| self.history.may_be_revoked(life, at))
    }

    /// Whether a request that may have been carried out can have made the deletions of this revision.
    pub fn deleted_by_client(&self, revision: i64) -> bool {
        let Some(commit) = self.history.commits.get(&revision) else { return false };
        let answered = self.deletes.get(&Some(revision)).into_iter().flatten();
        let unknown = self.deletes.get(&None).into_iter().flatten();
        answered.chain(unknown).filter(|(send, _)| *send <= commit.at).any(|(_, ranges)| {
            commit.records.iter().all(|record| ranges.iter().any(|range| range.contains(&record.key)))
        })
    }

    /// The last revision that was applied by this time.
    pub fn revision_at(&self, at: u64) -> i64 {
        let applied = self.history.commits.iter().rev().find(|(_, commit)| commit.at <= at);
        applied.map_or(1, |(revision, _)| *revision)
    }

    /// What a watch must be shown of these revisions.
    pub fn events(&self, watch: &WatchCreate, from: i64, to: i64) -> Vec<&Arc<Record>> {
        if from > to {
            return Vec::new();
        }
        self.history
            .commits
            .range(from..=to)
            .flat_map(|(_, commit)| &commit.records)
            .filter(|record| watch.range.contains(&record.key))
            .filter(|record| if record.is_tombstone() { watch.deletes } else { watch.puts })
            .collect()
    }

    /// The greatest revision that a compaction may have reached by this time.
    pub fn compacted_at_most(&self, by: u64) -> i64 {
        let compactions = self.history.ops.iter().filter(|op| op.send <= by && op.may_have_happened());
        compactions
            .filter_map(|op| match op.ask {
                Ask::Write(Write::Compact { revision, .. }) => Some(revision.0),
                _ => None,
            })
            .max()
            .unwrap_or(-1)
    }
}

fn deletes(history: &History) -> BTreeMap<Option<i64>, Vec<(u64, Vec<&KeyRange>)>> {
    let mut deletes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| op.may_have_happened()) {
        let ranges: Vec<&KeyRange> = match &op.ask {
            Ask::Write(Write::DeleteRange(delete)) => vec![&delete.range],
            Ask::Write(Write::Txn(txn)) => {
                let ops = txn.success.iter().chain(&txn.failure);
                ops.filter_map(|op| match op {
                    TxnOp::DeleteRange(delete) => Some(&delete.range),
                    _ => None,
                })
                .collect()
            }
            _ => Vec::new(),
        };
        if !ranges.is_empty() {
            deletes.entry(revision_of(op)).or_default().push((op.send, ranges));
        }
    }
    deletes
}

/// The revision that an answered request was carried out at.
pub fn revision_of(op: &Op) -> Option<i64> {
    let (header, answer) = op.ok()?;
    Some(match answer {
        Answer::Applied(Reply::Put(reply)) => reply.revision.0,
        Answer::Applied(Reply::DeleteRange(reply)) => reply.revision.0,
        Answer::Applied(Reply::Txn(reply)) => reply.revision.0,
        Answer::Txn(page) => page.at.0,
        Answer::Applied(Reply::Grant { revision, .. } | Reply::Revoke { revision }) => revision.0,
        Answer::Applied(_) => return None,
        Answer::Page(_) if matches!(&op.ask, Ask::Read(Read::Range(range), _) if range.revision > 0) => {
            header.revision.0
        }
        Answer::Page(page) => page.at.0,
        _ => return None,
    })
}
