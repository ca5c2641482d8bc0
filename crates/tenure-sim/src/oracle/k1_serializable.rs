//! K1: every operation is strictly serializable, and the order of revisions is that of real time.
//!
//! All revisions are replayed through the versions of each key. Each answer must be what its revision says, each
//! revision must be somebody's, and nobody may be answered from before what was answered to others already.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tenure_replica::effect::{Answer, RangePage, TxnPage};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::applied::{OpReply, RangeReply, Reply, TxnReply};
use tenure_state::command::{Compare, CompareResult, CompareTarget, Op as TxnOp, Put, Txn};
use tenure_state::key::KeyRange;
use tenure_state::range;
use tenure_state::record::Record;

use super::{Evidence, Report, broken, revision_of};
use crate::history::{Ask, Op};

const PROMISE: &str = "K1";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    answers(evidence, report);
    real_time(evidence, report);
    everything_was_asked_for(evidence, report);
}

/// Each answer is what the history of revisions says.
fn answers(evidence: &Evidence<'_>, report: &mut Report) {
    for op in &evidence.history.ops {
        let Some((_, answer)) = op.ok() else { continue };
        let wrong = match (&op.ask, answer) {
            (Ask::Write(Write::Put(put)), Answer::Applied(Reply::Put(reply))) => {
                let revision = reply.revision.0;
                let prev = evidence.versions.get(&put.key, revision - 1);
                if put.prev && reply.prev.as_ref() != prev {
                    Some(format!("the version before was {prev:?}, answered {:?}", reply.prev))
                } else {
                    is_put(evidence, put, revision)
                }
            }
            (Ask::Write(Write::DeleteRange(delete)), Answer::Applied(Reply::DeleteRange(reply))) => {
                let wrote = reply.deleted > 0;
                let before = if wrote { reply.revision.0 - 1 } else { reply.revision.0 };
                let living = evidence.versions.range(&delete.range, before);
                let wrong = living.len() as i64 != reply.deleted
                    || (delete.prev && living != reply.prevs)
                    || living
                        .iter()
                        .any(|record| evidence.versions.get(&record.key, reply.revision.0).is_some());
                wrong.then(|| format!("{living:?} lived, {} were deleted", reply.deleted))
            }
            (Ask::Write(Write::Txn(txn)), Answer::Applied(Reply::Txn(reply))) => txn_is(evidence, txn, reply),
            (Ask::Read(Read::Txn(txn), _), Answer::Txn(page)) => txn_is(evidence, txn, &finished(txn, page)),
            (Ask::Read(Read::Range(range), Consistency::Linearizable), Answer::Page(page))
                if range.revision <= 0 =>
            {
                let living = evidence.versions.range(&range.range, page.at.0);
                (living != page.records).then(|| differ(&living, &page.records))
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            broken(report, PROMISE, format!("{:?} sent at {}: {wrong}", op.ask, op.send));
        }
    }
}

/// What the edge makes of the only page of a transaction that only reads.
fn finished(txn: &Txn, page: &TxnPage) -> TxnReply {
    assert!(page.done, "a store of a few keys fits into a page");
    let finish = |(op, part): (&TxnOp, &RangePage)| {
        let TxnOp::Range(range) = op else { unreachable!("a transaction that only reads has only ranges") };
        let (records, more) = range::finish(part.records.clone(), range);
        let count = part.count.expect("the last page holds the end of each range");
        OpReply::Range(RangeReply { revision: page.at, records, count, more, shown: range::shown(range) })
    };
    let responses = txn.branch(page.succeeded).iter().zip(&page.ranges).map(finish).collect();
    TxnReply { revision: page.at, succeeded: page.succeeded, responses }
}

fn differ(living: &[Arc<Record>], answered: &[Arc<Record>]) -> String {
    let missing: Vec<_> = living.iter().filter(|record| !answered.contains(record)).collect();
    let extra: Vec<_> = answered.iter().filter(|record| !living.contains(record)).collect();
    format!("missing {missing:?}, too much {extra:?}")
}

fn is_put(evidence: &Evidence<'_>, put: &Put, revision: i64) -> Option<String> {
    let commit = evidence.history.commits.get(&revision);
    let record = commit.and_then(|commit| commit.records.iter().find(|record| record.key == put.key));
    let Some(record) = record else { return Some(format!("revision {revision} has no such key")) };
    let before = evidence.versions.get(&put.key, revision - 1);
    let create = before.map_or(revision, |before| before.create.0);
    let version = before.map_or(1, |before| before.version + 1);
    let right = Some(&record.value) == put.value.as_ref()
        && tenure_state::command::PutLease::Set(record.lease) == put.lease
        && (record.create.0, record.version) == (create, version);
    (!right).then(|| format!("{record:?} after {before:?}"))
}

fn txn_is(evidence: &Evidence<'_>, txn: &Txn, reply: &TxnReply) -> Option<String> {
    let revision = reply.revision.0;
    let wrote = reply.responses.iter().any(|response| match response {
        OpReply::Put(_) => true,
        OpReply::DeleteRange(reply) => reply.deleted > 0,
        OpReply::Range(_) | OpReply::Txn(_) => false,
    });
    let before = if wrote { revision - 1 } else { revision };
    let succeeded = txn.compare.iter().all(|compare| holds(evidence, compare, before));
    if succeeded != reply.succeeded {
        return Some(format!("at revision {before} the comparison says {succeeded}"));
    }
    let branch = if succeeded { &txn.success } else { &txn.failure };
    if branch.len() != reply.responses.len() {
        return Some(format!("{} operations, {} responses", branch.len(), reply.responses.len()));
    }
    let mut own: BTreeMap<Bytes, Option<Arc<Record>>> = BTreeMap::new();
    for (op, response) in branch.iter().zip(&reply.responses) {
        let living = |range: &KeyRange, own: &BTreeMap<Bytes, Option<Arc<Record>>>| {
            let mut living: BTreeMap<Bytes, Arc<Record>> = evidence
                .versions
                .range(range, before)
                .into_iter()
                .map(|record| (record.key.clone(), record))
                .collect();
            for (key, record) in own.iter().filter(|(key, _)| range.contains(key)) {
                match record {
                    Some(record) => living.insert(key.clone(), Arc::clone(record)),
                    None => living.remove(key),
                };
            }
            living.into_values().collect::<Vec<_>>()
        };
        match (op, response) {
            (TxnOp::Range(range), OpReply::Range(reply)) => {
                let living = living(&range.range, &own);
                if living != reply.records {
                    return Some(differ(&living, &reply.records));
                }
            }
            (TxnOp::Put(put), OpReply::Put(reply)) => {
                let living = living(&KeyRange::One(put.key.clone()), &own);
                if put.prev && living.first() != reply.prev.as_ref() {
                    return Some(format!("the version before was {living:?}, answered {:?}", reply.prev));
                }
                if let Some(wrong) = is_put(evidence, put, revision) {
                    return Some(wrong);
                }
                let record = evidence.versions.get(&put.key, revision).cloned();
                own.insert(put.key.clone(), record);
            }
            (TxnOp::DeleteRange(delete), OpReply::DeleteRange(reply)) => {
                let living = living(&delete.range, &own);
                if living.len() as i64 != reply.deleted {
                    return Some(format!("{living:?} lived, {} were deleted", reply.deleted));
                }
                own.extend(living.into_iter().map(|record| (record.key.clone(), None)));
            }
            _ => return Some("a response of another kind".to_owned()),
        }
    }
    None
}

fn holds(evidence: &Evidence<'_>, compare: &Compare, revision: i64) -> bool {
    let wanted = |order: std::cmp::Ordering| match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    };
    let one = |record: Option<&Record>| match &compare.target {
        CompareTarget::Version(of) => wanted(record.map_or(0, |record| record.version).cmp(of)),
        CompareTarget::Create(of) => wanted(record.map_or(0, |record| record.create.0).cmp(of)),
        CompareTarget::Mod(of) => wanted(record.map_or(0, |record| record.at.main.0).cmp(of)),
        CompareTarget::Lease(of) => wanted(record.map_or(0, |record| record.lease.0).cmp(of)),
        CompareTarget::Value(of) => record.is_some_and(|record| wanted(record.value.cmp(of))),
    };
    let living = evidence.versions.range(&compare.range, revision);
    if living.is_empty() { one(None) } else { living.iter().all(|record| one(Some(record))) }
}

/// Nobody is answered from before what was answered already, or with what was not there yet.
fn real_time(evidence: &Evidence<'_>, report: &mut Report) {
    let linearizable =
        |op: &&Op| !matches!(op.ask, Ask::Read(_, Consistency::Serializable)) && op.recv.is_some();
    let mut by_recv: Vec<(u64, i64)> = Vec::new();
    let mut by_send: Vec<(u64, u64, i64)> = Vec::new();
    for op in evidence.history.ops.iter().filter(linearizable) {
        let Some(revision) = revision_of(op) else { continue };
        let recv = op.recv.expect("only those that ended were kept");
        by_recv.push((recv, revision));
        by_send.push((op.send, recv, revision));
    }
    by_recv.sort_unstable();
    by_send.sort_unstable();
    let mut seen = 0;
    let mut answered = by_recv.into_iter().peekable();
    for (send, recv, revision) in by_send {
        while let Some((_, before)) = answered.next_if(|(at, _)| *at < send) {
            seen = seen.max(before);
        }
        if revision < seen {
            let what =
                format!("sent at {send}, answered at revision {revision}, but {seen} was answered before");
            broken(report, PROMISE, what);
        }
        if evidence.history.commits.get(&revision).is_some_and(|commit| commit.at > recv) {
            broken(
                report,
                PROMISE,
                format!("revision {revision} was answered at {recv}, before it was made"),
            );
        }
    }
}

/// Each revision was asked for by somebody, or is the end of leases.
fn everything_was_asked_for(evidence: &Evidence<'_>, report: &mut Report) {
    let history = evidence.history;
    let mut claimed: BTreeMap<i64, usize> = BTreeMap::new();
    let mut values: BTreeMap<(&Bytes, &Bytes), &Op> = BTreeMap::new();
    for op in &history.ops {
        let wrote = match op.ok() {
            Some((_, Answer::Applied(Reply::Put(_)))) => true,
            Some((_, Answer::Applied(Reply::DeleteRange(reply)))) => reply.deleted > 0,
            Some((_, Answer::Applied(Reply::Txn(reply)))) => {
                reply.responses.iter().any(|response| match response {
                    OpReply::Put(_) => true,
                    OpReply::DeleteRange(reply) => reply.deleted > 0,
                    OpReply::Range(_) | OpReply::Txn(_) => false,
                })
            }
            _ => false,
        };
        if let Some(revision) = revision_of(op).filter(|_| wrote) {
            *claimed.entry(revision).or_default() += 1;
        }
        for put in puts(op) {
            if let Some(value) = &put.value {
                values.insert((&put.key, value), op);
            }
        }
    }
    for (revision, commit) in &history.commits {
        let claims = claimed.get(revision).copied().unwrap_or(0);
        if claims > 1 {
            broken(
                report,
                PROMISE,
                format!("{claims} requests were told that revision {revision} is theirs"),
            );
        }
        if claims > 0 || !commit.ended.is_empty() {
            continue;
        }
        let put = commit.records.iter().find(|record| !record.is_tombstone());
        let asked = match put {
            Some(record) => values
                .get(&(&record.key, &record.value))
                .is_some_and(|op| op.send <= commit.at && op.is_unknown()),
            None => evidence.deleted_by_client(*revision),
        };
        if !asked {
            broken(report, PROMISE, format!("nobody asked for revision {revision}: {:?}", commit.records));
        }
    }
}

fn puts(op: &Op) -> Vec<&Put> {
    match &op.ask {
        Ask::Write(Write::Put(put)) => vec![put],
        Ask::Write(Write::Txn(txn)) => txn
            .success
            .iter()
            .chain(&txn.failure)
            .filter_map(|op| match op {
                TxnOp::Put(put) => Some(put),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    fn two_puts() -> Hand {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "a", "2", 0);
        hand
    }

    #[test]
    fn puts_and_a_read_of_them_are_good() {
        let mut hand = two_puts();
        hand.read(3 * SEC, 0, 3, Consistency::Linearizable, &["a"]);
        hand.is_good();
    }

    #[test]
    fn a_read_of_the_past_is_found() {
        let mut hand = two_puts();
        hand.read(3 * SEC, 0, 2, Consistency::Linearizable, &[]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_read_that_misses_a_key_is_found() {
        let mut hand = two_puts();
        hand.read(3 * SEC, 0, 3, Consistency::Linearizable, &[]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_write_of_nobody_is_found() {
        let mut hand = two_puts();
        hand.written(3 * SEC, &[("b", Some("stray"), 0)]);
        assert!(hand.breaks(PROMISE).what.contains("nobody asked"));
    }
}
