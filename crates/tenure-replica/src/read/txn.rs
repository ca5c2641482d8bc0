//! A transaction that only reads, in pages: first its comparisons, then the ranges of the branch that they choose, all
//! at the revision at which it began.
//!
//! It comes to what `State::read_txn` says at that moment. Nothing that it finds is kept here beyond a page, however
//! much its ranges hold.

use std::sync::Arc;

use bytes::Bytes;
use tenure_state::State;
use tenure_state::command::{Compare, CompareTarget, Op, Txn};
use tenure_state::ids::{Nanos, Revision};
use tenure_state::record::Record;
use tenure_state::refusal::Refusal;
use tenure_state::txn::{check_revision, holds_for};

use super::{RangeRead, Room};
use crate::effect::{RangePage, TxnPage};

/// So many bytes compared take as long as a look.
const LOOK_BYTES: usize = 256;

pub(super) struct TxnRead {
    at: Revision,
    /// The compact revision at the beginning: what may be read is decided by that moment too.
    compacted: Revision,
    /// The oldest revision that it may have to read.
    pub(super) oldest: Revision,
    pub(super) since: Nanos,
    phase: Phase,
    page: Vec<RangePage>,
    page_records: usize,
    page_bytes: usize,
    /// The page was sent; nothing is done until the next one is asked for.
    pub(super) sent: bool,
}

enum Phase {
    Compare(Comparing),
    Read(Reading),
}

struct Comparing {
    txn: Txn,
    /// The comparison that is looked at, from which key on, and whether a key of its range lives.
    place: usize,
    next: Option<Bytes>,
    found: bool,
}

struct Reading {
    succeeded: bool,
    current: Option<RangeRead>,
    /// Behind the current one, in reverse.
    rest: Vec<RangeRead>,
}

impl TxnRead {
    pub(super) fn new(txn: Txn, state: &State, since: Nanos) -> TxnRead {
        assert!(txn.is_read_only(), "a transaction that writes goes through the log");
        let (at, compacted) = (state.revision(), state.compacted());
        let ops = txn.success.iter().chain(&txn.failure);
        let asked = ops.filter_map(|op| match op {
            Op::Range(range) if range.revision > 0 => Some(Revision(range.revision)),
            _ => None,
        });
        TxnRead {
            at,
            compacted,
            oldest: asked.filter(|asked| *asked >= compacted).fold(at, Revision::min),
            since,
            phase: Phase::Compare(Comparing { txn, place: 0, next: None, found: false }),
            page: Vec::new(),
            page_records: 0,
            page_bytes: 0,
            sent: false,
        }
    }

    /// Works on until a page is full or the turn's share is used up. `None`: go on next turn.
    pub(super) fn advance(
        &mut self,
        state: &State,
        room: Room,
        looks: &mut usize,
    ) -> Result<Option<TxnPage>, Refusal> {
        if let Phase::Compare(comparing) = &mut self.phase {
            let Some(succeeded) = comparing.advance(state, self.at, room, looks)? else { return Ok(None) };
            let txn = std::mem::take(&mut comparing.txn);
            self.phase = Phase::Read(self.begin_reading(txn, succeeded)?);
        }
        let Phase::Read(reading) = &mut self.phase else { unreachable!("the comparisons are decided") };
        while let Some(range) = &mut reading.current {
            let Some(part) = range.advance(state, room, looks)? else { return Ok(None) };
            if part.count.is_some() {
                reading.current = reading.rest.pop();
            }
            self.page_records += part.records.len();
            self.page_bytes += bytes_of(&part.records);
            self.page.push(part);
            let full = self.page_records >= room.records || self.page_bytes >= room.bytes;
            if full && reading.current.is_some() {
                break;
            }
        }
        self.page_records = 0;
        self.page_bytes = 0;
        self.sent = true;
        Ok(Some(TxnPage {
            at: self.at,
            succeeded: reading.succeeded,
            ranges: std::mem::take(&mut self.page),
            done: reading.current.is_none(),
        }))
    }

    fn begin_reading(&self, txn: Txn, succeeded: bool) -> Result<Reading, Refusal> {
        let mut rest = Vec::new();
        let branch = if succeeded { txn.success } else { txn.failure };
        for op in branch {
            let Op::Range(range) = op else { unreachable!("a transaction that only reads has only ranges") };
            check_revision(range.revision, self.at, self.compacted)?;
            let at = if range.revision > 0 { Revision(range.revision) } else { self.at };
            rest.push(RangeRead::new(range, at, self.since));
        }
        rest.reverse();
        Ok(Reading { succeeded, current: rest.pop(), rest })
    }
}

impl Comparing {
    /// Whether all comparisons hold; `None` if that is not known yet.
    fn advance(
        &mut self,
        state: &State,
        at: Revision,
        room: Room,
        looks: &mut usize,
    ) -> Result<Option<bool>, Refusal> {
        while let Some(compare) = self.txn.compare.get(self.place) {
            if *looks == 0 {
                return Ok(None);
            }
            // A comparison of values may take much longer than a look.
            let look_cost = 1 + value_bytes(compare) / LOOK_BYTES;
            let limit = room.records.min(*looks / look_cost).max(1);
            let page = state.range_page(&compare.range, self.next.as_ref(), at, limit)?;
            *looks = looks.saturating_sub(page.looks.max(1) + page.records.len() * (look_cost - 1));
            if !page.records.iter().all(|record| holds_for(Some(record), compare)) {
                return Ok(Some(false));
            }
            self.found |= !page.records.is_empty();
            self.next = page.next;
            if self.next.is_none() {
                if !self.found && !holds_for(None, compare) {
                    return Ok(Some(false));
                }
                self.place += 1;
                self.found = false;
            }
        }
        Ok(Some(true))
    }
}

fn value_bytes(compare: &Compare) -> usize {
    match &compare.target {
        CompareTarget::Value(value) => value.len(),
        _ => 0,
    }
}

fn bytes_of(records: &[Arc<Record>]) -> usize {
    records.iter().map(|record| record.key.len() + record.value.len()).sum()
}

#[cfg(test)]
mod tests;
