//! Committed entries on their way through apply: to the waiters, to the watchers, to the checkpoint.

use std::collections::VecDeque;

use tenure_state::State;
use tenure_state::applied::{Applied, Change, Progress};
use tenure_state::command::{Alarm, Command, Entry};
use tenure_state::record::Event;

use crate::effect::{EntryKind, LogEntry};
use crate::entry::{Origin, Proposal};

/// What one turn may apply: an entry weighs one, and each event, ended lease and sixteenth renewal one more.
const TURN_WEIGHT_MAX: usize = 2000;

/// What is committed and not applied yet.
#[derive(Default)]
pub(crate) struct Commits {
    queue: VecDeque<LogEntry>,
    /// The entry that apply has begun and not finished.
    unfinished: Option<Running>,
}

/// An entry that is being applied.
pub(crate) struct Running {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) origin: Origin,
    pub(crate) batches: Vec<Origin>,
    pub(crate) kind: Kind,
    /// An alarm for want of space was up before it: what it is refused says nothing of the quota.
    pub(crate) alarmed: bool,
}

/// What matters of a command after it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put {
        bytes: u64,
    },
    DeleteRange,
    Txn,
    Compact,
    Scrub,
    Grant,
    Revoke,
    /// `stamp` is the term of the leader that proposed it; `last` if leases could end in it.
    LeaseStep {
        stamp: u64,
        last: bool,
    },
    TakeOver {
        stamp: u64,
    },
    Alarm,
    Nothing,
}

impl Commits {
    pub(crate) fn add(&mut self, entries: Vec<LogEntry>) {
        self.queue.extend(entries);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.unfinished.is_some() || !self.queue.is_empty()
    }

    /// Applies what a turn may, handing each finished entry on.
    ///
    /// # Panics
    ///
    /// On an entry that does not decode. It was checksummed, so it is a newer version's or a bug, and this member
    /// must not go on without it.
    pub(crate) fn apply(&mut self, state: &mut State, mut done: impl FnMut(Running, Applied)) {
        let mut weight = 0;
        while weight < TURN_WEIGHT_MAX {
            let (running, progress) = if let Some(running) = self.unfinished.take() {
                (running, state.resume())
            } else if let Some(entry) = self.queue.pop_front() {
                begin(state, entry)
            } else {
                return;
            };
            match progress {
                Progress::Done(applied) => {
                    weight += 1 + applied.events.len() + applied.changes.len() / 16;
                    done(running, applied);
                }
                Progress::Unfinished => {
                    self.unfinished = Some(running);
                    return;
                }
            }
        }
    }
}

fn begin(state: &mut State, entry: LogEntry) -> (Running, Progress) {
    let LogEntry { term, index, kind, data } = entry;
    assert!(
        kind == EntryKind::Command,
        "log entry {index} changes the membership, which this version does not do"
    );
    let proposal = match Proposal::decode(data) {
        Ok(proposal) => proposal,
        Err(error) => panic!("log entry {index} cannot be applied: {error}"),
    };
    let running = Running {
        index,
        term,
        origin: proposal.origin,
        batches: proposal.batches,
        kind: kind_of(&proposal.command),
        alarmed: state.has_alarm(Alarm::NoSpace),
    };
    let entry = Entry { index, term, quota_bytes: proposal.quota_bytes, command: proposal.command };
    (running, state.apply(&entry))
}

fn kind_of(command: &Command) -> Kind {
    match command {
        Command::Nothing => Kind::Nothing,
        Command::Put(put) => {
            Kind::Put { bytes: (put.key.len() + put.value.as_ref().map_or(0, bytes::Bytes::len)) as u64 }
        }
        Command::DeleteRange(_) => Kind::DeleteRange,
        Command::Txn(_) => Kind::Txn,
        Command::Compact { .. } => Kind::Compact,
        Command::Scrub { .. } => Kind::Scrub,
        Command::Grant(_) => Kind::Grant,
        Command::Revoke { .. } => Kind::Revoke,
        Command::LeaseStep(step) => Kind::LeaseStep { stamp: step.stamp.term, last: step.last },
        Command::TakeOver(take_over) => Kind::TakeOver { stamp: take_over.term },
        Command::Alarm { .. } => Kind::Alarm,
    }
}

/// What one turn's applied entries leave for the end of the turn.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) events: Vec<Event>,
    pub(crate) changes: Vec<Change>,
    /// Term of the last applied entry, if any was.
    pub(crate) term: Option<u64>,
}
