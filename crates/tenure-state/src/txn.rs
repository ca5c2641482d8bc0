//! Transactions: compare, then one branch or the other, all at one revision.
//!
//! All decisions, those of nested transactions included, fall on the state before the first write; so do all
//! checks that can refuse. After that nothing can fail, and a transaction needs no way back.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;

use bytes::Bytes;
use thiserror::Error;

use crate::State;
use crate::applied::{DeleteReply, OpReply, PutReply, TxnReply};
use crate::command::{Compare, CompareResult, CompareTarget, Op, Put, PutLease, Txn};
use crate::ids::Revision;
use crate::key::KeyRange;
use crate::mvcc::Mvcc;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::write::Draft;

/// What is wrong with a transaction whatever the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TxnError {
    #[error("key is not provided")]
    EmptyKey,
    #[error("too many operations in txn request")]
    TooManyOps,
    #[error("duplicate key given in txn request")]
    DuplicateKey,
}

/// Checks what can be checked without the state: the edge does so before it proposes a transaction.
///
/// A level may have `ops_max` compares, as many operations in each branch, and its nested transactions only
/// what its longest list leaves of that. So `ops_max` bounds the depth as well.
pub fn check(txn: &Txn, ops_max: usize) -> Result<(), TxnError> {
    check_sizes(txn, ops_max)?;
    written(&txn.success)?;
    written(&txn.failure)?;
    Ok(())
}

fn check_sizes(txn: &Txn, ops_max: usize) -> Result<(), TxnError> {
    let longest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    let left = ops_max.checked_sub(longest).ok_or(TxnError::TooManyOps)?;
    let has_key = |key: &Bytes| if key.is_empty() { Err(TxnError::EmptyKey) } else { Ok(()) };
    for compare in &txn.compare {
        has_key(compare.range.start())?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => has_key(range.range.start())?,
            Op::Put(put) => has_key(&put.key)?,
            Op::DeleteRange(delete) => has_key(delete.range.start())?,
            Op::Txn(nested) => check_sizes(nested, left)?,
        }
    }
    Ok(())
}

/// What a list of operations may write. A request holds tens of thousands of operations in nested transactions, so
/// nothing here may look at each put for each deletion.
#[derive(Default)]
struct Written<'a> {
    puts: BTreeSet<&'a Bytes>,
    deletes: Spans<'a>,
}

impl<'a> Written<'a> {
    fn add_put(&mut self, key: &'a Bytes) -> Result<(), TxnError> {
        if self.deletes.contains(key) || !self.puts.insert(key) {
            Err(TxnError::DuplicateKey)
        } else {
            Ok(())
        }
    }

    /// As if each of `puts` was added.
    fn add_puts(&mut self, mut puts: BTreeSet<&'a Bytes>) -> Result<(), TxnError> {
        if self.deletes.is_empty() && self.puts.len() < puts.len() {
            core::mem::swap(&mut self.puts, &mut puts);
        }
        puts.into_iter().try_for_each(|key| self.add_put(key))
    }
}

/// A set of keys as spans that neither overlap nor touch, each by its first key.
#[derive(Default)]
struct Spans<'a>(BTreeMap<&'a [u8], End<'a>>);

/// Where a span ends: a key, and whether it is in the span itself. Orders as the ends do.
type End<'a> = (&'a [u8], bool);

impl<'a> Spans<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.0.range(..=key).next_back().is_some_and(|(_, end)| *end > (key, false))
    }

    fn add(&mut self, range: &'a KeyRange) {
        match range {
            KeyRange::One(key) => self.add_span(key, (key, true)),
            KeyRange::Span { start, end } => self.add_span(start, (end, false)),
            // etcd reads the end of this one, a single zero byte, as a key like any other, before which nothing
            // is: it lets the delete stand beside any put, and so do we.
            KeyRange::From(_) => {}
        }
    }

    fn add_span(&mut self, mut start: &'a [u8], mut end: End<'a>) {
        if end <= (start, false) {
            return;
        }
        if let Some((before, before_end)) = self.0.range(..=start).next_back()
            && *before_end >= (start, false)
        {
            start = before;
            end = end.max(*before_end);
        }
        // What begins within it goes up in it.
        while let Some((&next, &next_end)) = self.0.range(start..).next()
            && (next, false) <= end
        {
            self.0.remove(next);
            end = end.max(next_end);
        }
        self.0.insert(start, end);
    }

    fn add_all(&mut self, mut other: Spans<'a>) {
        if self.0.len() < other.0.len() {
            core::mem::swap(self, &mut other);
        }
        for (start, end) in other.0 {
            self.add_span(start, end);
        }
    }
}

/// Collects what `ops` may write; refuses a key that two puts or a put and a delete could touch. The branches
/// of one nested transaction may touch the same key, since only one of them is taken. Like etcd, this looks
/// at nested transactions in their order and lets a later one delete what an earlier one put.
fn written(ops: &[Op]) -> Result<Written<'_>, TxnError> {
    let mut all = Written::default();
    for op in ops {
        if let Op::DeleteRange(delete) = op {
            all.deletes.add(&delete.range);
        }
    }
    for op in ops {
        let Op::Txn(nested) = op else { continue };
        let success = written(&nested.success)?;
        let mut failure = written(&nested.failure)?;
        failure.puts.retain(|key| !success.puts.contains(key));
        all.add_puts(success.puts)?;
        all.add_puts(failure.puts)?;
        all.deletes.add_all(success.deletes);
        all.deletes.add_all(failure.deletes);
    }
    for op in ops {
        if let Op::Put(put) = op {
            all.add_put(&put.key)?;
        }
    }
    Ok(all)
}

impl Txn {
    /// Whether it can write nothing, whichever branch is taken. A nested transaction counts as a write, as on
    /// etcd.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }

    pub fn branch(&self, succeeded: bool) -> &[Op] {
        if succeeded { &self.success } else { &self.failure }
    }
}

/// Which branch is taken: of the transaction itself first, then of those nested in that branch, depth first.
type Path = alloc::vec::IntoIter<bool>;

impl State {
    /// Carries out a transaction, deletes of any size at once: a transaction is bounded by the size of its
    /// request except for the ranges that it deletes, and slicing those would need a second interpreter.
    pub(crate) fn txn(&mut self, txn: &Txn, draft: &mut Draft) -> Result<TxnReply, Refusal> {
        let path = self.decide(txn)?;
        Ok(self.execute(txn, &mut path.into_iter(), draft))
    }

    /// Evaluates a transaction of ranges on the visible state.
    pub(crate) fn evaluate(&self, txn: &Txn) -> Result<TxnReply, Refusal> {
        assert!(txn.is_read_only(), "a transaction that writes goes through the log");
        let succeeded = self.decide(txn)?.first() == Some(&true);
        let revision = self.mvcc.revision();
        let mut responses = Vec::new();
        for op in txn.branch(succeeded) {
            if let Op::Range(range) = op {
                responses.push(OpReply::Range(self.mvcc.range(range, revision)?));
            }
        }
        Ok(TxnReply { revision, succeeded, responses })
    }

    fn decide(&self, txn: &Txn) -> Result<Vec<bool>, Refusal> {
        let mut path = Vec::new();
        compare_all(txn, &self.mvcc, &mut path);
        self.check_ops(txn, &mut path.clone().into_iter())?;
        Ok(path)
    }

    /// Refuses what could fail in the branches that are taken, in the order of the operations.
    fn check_ops(&self, txn: &Txn, path: &mut Path) -> Result<(), Refusal> {
        let succeeded = path.next().expect("the path was made from this transaction");
        for op in txn.branch(succeeded) {
            match op {
                Op::Range(range) => {
                    check_revision(range.revision, self.mvcc.revision(), self.mvcc.compacted())?;
                }
                Op::Put(put) => self.check_put(put)?,
                Op::DeleteRange(_) => {}
                Op::Txn(nested) => self.check_ops(nested, path)?,
            }
        }
        Ok(())
    }

    /// A lease that does not live is told before a key that does not, as in a plain put.
    fn check_put(&self, put: &Put) -> Result<(), Refusal> {
        if let PutLease::Set(id) = put.lease
            && !id.is_none()
            && !self.leases.contains(id)
        {
            return Err(Refusal::LeaseNotFound);
        }
        let keeps = put.value.is_none() || put.lease == PutLease::Keep;
        if keeps && self.mvcc.get(&put.key, self.mvcc.revision()).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        Ok(())
    }

    fn execute(&mut self, txn: &Txn, path: &mut Path, draft: &mut Draft) -> TxnReply {
        let succeeded = path.next().expect("the path was made from this transaction");
        let branch = txn.branch(succeeded);
        let mut responses = Vec::with_capacity(branch.len());
        for op in branch {
            let response = match op {
                Op::Range(range) => {
                    let reply = self.mvcc.range(range, draft.revision());
                    OpReply::Range(reply.expect("the revision of each range was checked"))
                }
                Op::Put(put) => {
                    let before = self.put(put, draft).expect("the lease and key of each put were checked");
                    OpReply::Put(PutReply { revision: draft.revision(), prev: before.filter(|_| put.prev) })
                }
                Op::DeleteRange(delete) => {
                    let gone = self.delete_range(&delete.range, draft);
                    let deleted = gone.len() as i64;
                    let prevs = if delete.prev { gone } else { Vec::new() };
                    OpReply::DeleteRange(DeleteReply { revision: draft.revision(), deleted, prevs })
                }
                Op::Txn(nested) => OpReply::Txn(self.execute(nested, path, draft)),
            };
            responses.push(response);
        }
        TxnReply { revision: draft.revision(), succeeded, responses }
    }
}

/// Adds the decision on `txn`, then those on what is nested in the branch that it takes.
fn compare_all(txn: &Txn, mvcc: &Mvcc, path: &mut Vec<bool>) {
    let succeeded = txn.compare.iter().all(|compare| holds(compare, mvcc));
    path.push(succeeded);
    for op in txn.branch(succeeded) {
        if let Op::Txn(nested) = op {
            compare_all(nested, mvcc, path);
        }
    }
}

/// Whether a range of a transaction may be read, when the store is at `current` and compacted up to `compacted`. A
/// negative revision is compared as it is, so it is refused once the store was compacted, while a plain read takes it
/// for "now".
pub fn check_revision(asked: i64, current: Revision, compacted: Revision) -> Result<(), Refusal> {
    if asked == 0 {
        Ok(())
    } else if Revision(asked) > current {
        Err(Refusal::FutureRevision)
    } else if Revision(asked) < compacted {
        Err(Refusal::Compacted)
    } else {
        Ok(())
    }
}

/// Whether a comparison holds for every living key of its range.
fn holds(compare: &Compare, mvcc: &Mvcc) -> bool {
    let mut living = mvcc.living_in(&compare.range, mvcc.revision()).peekable();
    if living.peek().is_none() {
        return holds_for(None, compare);
    }
    living.all(|record| holds_for(Some(record), compare))
}

/// Whether a comparison holds for a living key of its range; `None` stands for the one that is compared if none lives.
pub fn holds_for(record: Option<&Record>, compare: &Compare) -> bool {
    // A key that does not live has no value at all, so nothing holds for that; its numbers are 0.
    ordering(&compare.target, record).is_some_and(|order| is_wanted(compare.result, order))
}

/// How what the record has compares to what it is compared to.
fn ordering(target: &CompareTarget, record: Option<&Record>) -> Option<Ordering> {
    let number = |of: fn(&Record) -> i64, wanted: &i64| Some(record.map_or(0, of).cmp(wanted));
    match target {
        CompareTarget::Version(wanted) => number(|record| record.version, wanted),
        CompareTarget::Create(wanted) => number(|record| record.create.0, wanted),
        CompareTarget::Mod(wanted) => number(|record| record.at.main.0, wanted),
        CompareTarget::Lease(wanted) => number(|record| record.lease.0, wanted),
        CompareTarget::Value(wanted) => record.map(|record| record.value.cmp(wanted)),
    }
}

fn is_wanted(result: CompareResult, order: Ordering) -> bool {
    match result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
