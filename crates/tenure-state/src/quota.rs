//! What is counted against the quota, and what alarms forbid.
//!
//! Logical bytes are a function of the log alone: what a record or lease costs is fixed here and does not ask
//! the allocator or the disk, or members would disagree on what still fits.

use crate::State;
use crate::command::{Alarm, Command, Entry, Op, Txn};
use crate::record::Record;
use crate::refusal::Refusal;

/// What a record costs beside its key and value: about what its numbers, its place in the index and in
/// history and its row on disk take.
const RECORD_OVERHEAD_BYTES: u64 = 128;

/// What a lease costs. Its keys are counted as records.
const LEASE_BYTES: u64 = 150;

pub(crate) fn record_bytes(record: &Record) -> u64 {
    put_bytes(record.key.len(), record.value.len())
}

fn put_bytes(key_len: usize, value_len: usize) -> u64 {
    RECORD_OVERHEAD_BYTES + key_len as u64 + value_len as u64
}

impl State {
    pub(crate) fn logical_bytes(&self) -> u64 {
        self.mvcc.bytes() + self.leases.len() as u64 * LEASE_BYTES
    }

    /// Refuses what alarms and the quota forbid.
    pub(crate) fn admit(&self, entry: &Entry) -> Result<(), Refusal> {
        if self.has_alarm(Alarm::Corrupt) && is_write(&entry.command) {
            return Err(Refusal::Corrupt);
        }
        let cost = cost(&entry.command);
        if cost == 0 {
            return Ok(());
        }
        let over = entry.quota_bytes > 0 && self.logical_bytes().saturating_add(cost) > entry.quota_bytes;
        if over || self.has_alarm(Alarm::NoSpace) { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    pub fn has_alarm(&self, alarm: Alarm) -> bool {
        self.alarms.iter().any(|(_, active)| *active == alarm)
    }
}

/// What a client asked to change. Expiry, take-over, scrubbing and alarms are not: they go on when a member
/// is known to be corrupt, or nothing would ever end.
fn is_write(command: &Command) -> bool {
    match command {
        Command::Put(_)
        | Command::DeleteRange(_)
        | Command::Compact { .. }
        | Command::Grant(_)
        | Command::Revoke { .. } => true,
        Command::Txn(txn) => !txn.is_read_only(),
        Command::Nothing
        | Command::Scrub { .. }
        | Command::LeaseStep(_)
        | Command::TakeOver(_)
        | Command::Alarm { .. } => false,
    }
}

/// How many bytes the command may add; 0 for what frees or keeps space.
fn cost(command: &Command) -> u64 {
    match command {
        Command::Put(put) => put_bytes(put.key.len(), put.value.as_ref().map_or(0, |value| value.len())),
        Command::Txn(txn) => txn_cost(txn),
        Command::Grant(_) => LEASE_BYTES,
        _ => 0,
    }
}

/// The dearer branch, whichever is taken: as on etcd, a transaction that may put is refused as a whole.
fn txn_cost(txn: &Txn) -> u64 {
    let branch = |ops: &[Op]| {
        ops.iter()
            .map(|op| match op {
                Op::Put(put) => put_bytes(put.key.len(), put.value.as_ref().map_or(0, |value| value.len())),
                Op::Txn(txn) => txn_cost(txn),
                Op::Range(_) | Op::DeleteRange(_) => 0,
            })
            .sum()
    };
    u64::max(branch(&txn.success), branch(&txn.failure))
}
