//! Writes from the moment they are taken until they are answered: admission, numbers, and who waits for what.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tenure_state::command::{Command, Grant, Op, Put, Stamp, Txn};
use tenure_state::ids::{MemberId, Nanos};

use crate::consensus::USER_UNCOMMITTED_MAX;
use crate::effect::Failure;
use crate::entry::{Origin, Proposal};
use crate::input::{Ticket, Write};

/// Writes that may wait at once. etcd's bound on the gap between commit and apply.
const PENDING_MAX: usize = 5000;
/// What an entry weighs beside keys and values.
const ENTRY_OVERHEAD: usize = 128;

/// A write that somebody waits for.
#[derive(Debug)]
pub(crate) struct Pending {
    /// `None` for what the replica itself proposed.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) since: Nanos,
    /// Answer a compaction only when its records are gone and the checkpoint knows.
    pub(crate) physical: bool,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Proposals {
    member: MemberId,
    incarnation: u64,
    next_number: u64,
    /// Taken but not proposed: there was no active leader yet.
    outgoing: VecDeque<(u64, Write)>,
    /// Proposed and dropped by Raft, which took none of them into its log. Their stamps stay good while the term
    /// lasts: an older reading of the clock is one that the sender has been waiting since.
    dropped: Vec<(u64, Bytes)>,
    /// Everything unanswered, by number, which is the order in which it came.
    pending: BTreeMap<u64, Pending>,
    pending_bytes: usize,
}

impl Proposals {
    pub(crate) fn new(member: MemberId, incarnation: u64) -> Proposals {
        Proposals {
            member,
            incarnation,
            next_number: 1,
            outgoing: VecDeque::new(),
            dropped: Vec::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
        }
    }

    /// Takes a write, or refuses it because too much waits already.
    pub(crate) fn add(&mut self, ticket: Option<Ticket>, write: Write, now: Nanos) -> Result<(), Failure> {
        let bytes = weight(&write);
        let own = ticket.is_none();
        if !own && (self.pending.len() >= PENDING_MAX || self.pending_bytes + bytes > USER_UNCOMMITTED_MAX) {
            return Err(Failure::TooManyRequests);
        }
        let number = self.next_number;
        self.next_number += 1;
        let physical = matches!(write, Write::Compact { physical: true, .. });
        self.pending.insert(number, Pending { ticket, since: now, physical, bytes });
        self.pending_bytes += bytes;
        self.outgoing.push_back((number, write));
        Ok(())
    }

    /// A proposal of the replica's own that nobody waits for.
    pub(crate) fn anonymous(&mut self, quota_bytes: u64, command: Command, batches: Vec<Origin>) -> Bytes {
        let number = self.next_number;
        self.next_number += 1;
        Proposal { origin: self.origin(number), quota_bytes, command, batches }.encode()
    }

    /// All that waits to be proposed, stamped with the leader's term and reading of the lease clock.
    pub(crate) fn take(&mut self, stamp: Stamp, quota_bytes: u64) -> Vec<(u64, Bytes)> {
        let mut entries = std::mem::take(&mut self.dropped);
        for (number, write) in std::mem::take(&mut self.outgoing) {
            let command = to_command(write, stamp);
            let proposal =
                Proposal { origin: self.origin(number), quota_bytes, command, batches: Vec::new() };
            entries.push((number, proposal.encode()));
        }
        entries
    }

    /// Raft took none of these: they are proposed again next turn, in front of what came later.
    pub(crate) fn put_back(&mut self, dropped: Vec<(u64, Bytes)>) {
        self.dropped = dropped;
    }

    /// The term is over: what Raft dropped in it is stamped with it, and was not done.
    pub(crate) fn give_up_dropped(&mut self, mut give_up: impl FnMut(Ticket)) {
        for (number, _) in std::mem::take(&mut self.dropped) {
            if let Some(pending) = self.pending.remove(&number) {
                self.pending_bytes -= pending.bytes;
                pending.ticket.map(&mut give_up);
            }
        }
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty() || !self.dropped.is_empty()
    }

    /// The waiter of an applied entry, if it is one of this life's.
    pub(crate) fn applied(&mut self, origin: Origin) -> Option<Pending> {
        if origin.member != self.member || origin.incarnation != self.incarnation {
            return None;
        }
        let pending = self.pending.remove(&origin.number)?;
        self.pending_bytes -= pending.bytes;
        Some(pending)
    }

    /// Gives up on those that have waited since before `since`. They may still be applied, or not at all.
    pub(crate) fn expire(&mut self, since: Nanos, mut give_up: impl FnMut(Ticket)) {
        while let Some(first) = self.pending.first_entry() {
            if first.get().since >= since {
                break;
            }
            let (number, pending) = first.remove_entry();
            self.pending_bytes -= pending.bytes;
            // What is not proposed yet never will be: nothing may happen after it was said to be over.
            self.outgoing.retain(|(outgoing, _)| *outgoing != number);
            self.dropped.retain(|(dropped, _)| *dropped != number);
            if let Some(ticket) = pending.ticket {
                give_up(ticket);
            }
        }
    }

    pub(crate) fn waiting_since(&self) -> Option<Nanos> {
        self.pending.first_key_value().map(|(_, pending)| pending.since)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    fn origin(&self, number: u64) -> Origin {
        Origin { member: self.member, incarnation: self.incarnation, number }
    }
}

fn to_command(write: Write, stamp: Stamp) -> Command {
    match write {
        Write::Put(put) => Command::Put(put),
        Write::DeleteRange(delete) => Command::DeleteRange(delete),
        Write::Txn(txn) => Command::Txn(txn),
        Write::Compact { revision, .. } => Command::Compact { revision },
        Write::Grant { id, ttl, parent } => Command::Grant(Grant { stamp, id, ttl, parent }),
        Write::Revoke { id } => Command::Revoke { id },
        Write::Alarm { action, member, alarm } => Command::Alarm { action, member, alarm },
    }
}

fn weight(write: &Write) -> usize {
    ENTRY_OVERHEAD
        + match write {
            Write::Put(put) => put_weight(put),
            Write::Txn(txn) => txn_weight(txn),
            Write::DeleteRange(_)
            | Write::Compact { .. }
            | Write::Grant { .. }
            | Write::Revoke { .. }
            | Write::Alarm { .. } => 0,
        }
}

fn put_weight(put: &Put) -> usize {
    put.key.len() + put.value.as_ref().map_or(0, Bytes::len)
}

fn txn_weight(txn: &Txn) -> usize {
    txn.success
        .iter()
        .chain(&txn.failure)
        .map(|op| match op {
            Op::Put(put) => ENTRY_OVERHEAD + put_weight(put),
            Op::Txn(txn) => ENTRY_OVERHEAD + txn_weight(txn),
            Op::Range(_) | Op::DeleteRange(_) => ENTRY_OVERHEAD,
        })
        .sum()
}
