//! The only file that names the Raft library: the rest speaks of proposals, batches and committed entries.
//!
//! raft 0.7.0 is a pure state machine but for one thing, its random draw of the election timeout, which is
//! overruled after every step and tick, so that two runs with the same inputs are the same to the byte.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{
    ConfState, Entry as RaftEntry, EntryType, HardState as RaftHardState, Message, MessageType, Snapshot,
};
use raft::{GetEntriesContext, RaftState, RawNode, ReadOnlyOption, StateRole, Storage, StorageError};
use tenure_state::ids::MemberId;

use crate::effect::{Append, EntryKind, HardState, LogEntry, Membership};

/// One Raft tick is this part of the election timeout.
pub(crate) const TICKS_PER_ELECTION: usize = 50;
const TICKS_PER_HEARTBEAT: usize = 5;

/// Raft keeps at most so much uncommitted; user proposals may fill [`USER_UNCOMMITTED_MAX`] of it, so that lease
/// entries always fit.
const UNCOMMITTED_MAX: u64 = 64 << 20;
/// See [`UNCOMMITTED_MAX`].
pub(crate) const USER_UNCOMMITTED_MAX: usize = 48 << 20;

/// What the log and the checkpoint said at start.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub(crate) hard_state: HardState,
    /// Index and term of the last entry that the checkpoint holds.
    pub(crate) checkpoint: (u64, u64),
    pub(crate) membership: Membership,
    /// The entries behind the checkpoint.
    pub(crate) entries: Vec<LogEntry>,
}

/// What one Raft Ready asks for.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// To be made durable; [`Consensus::appended`] takes its number back.
    pub(crate) append: Option<Append>,
    pub(crate) committed: Vec<LogEntry>,
    /// Read-index contexts that are confirmed, each with the index to wait for.
    pub(crate) reads: Vec<(u64, u64)>,
}

/// Who leads, as far as this member knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) term: u64,
    /// 0 while there is none.
    pub(crate) leader: u64,
    pub(crate) is_leader: bool,
    pub(crate) is_learner: bool,
}

pub(crate) struct Consensus {
    node: RawNode<Log>,
    seed: u64,
    /// Numbers of readies that are not durable yet, each with the batch that makes it so; a ready that needs no
    /// disk still waits for those before it, or Raft would take these for durable too.
    unpersisted: VecDeque<(u64, Option<u64>)>,
    next_batch: u64,
}

impl Consensus {
    pub(crate) fn new(member: MemberId, seed: u64, start: Start) -> Consensus {
        let (index, term) = start.checkpoint;
        let config = raft::Config {
            id: member.0,
            election_tick: TICKS_PER_ELECTION,
            heartbeat_tick: TICKS_PER_HEARTBEAT,
            applied: index,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: UNCOMMITTED_MAX,
            max_committed_size_per_ready: 16 << 20,
            ..raft::Config::default()
        };
        let log = Log::new(start.hard_state, start.membership, index, term, start.entries);
        let logger = slog::Logger::root(ToTracing, slog::o!());
        let node = RawNode::new(&config, log, &logger)
            .expect("the configuration is constant, and recovery checked what the log says");
        let mut consensus = Consensus { node, seed, unpersisted: VecDeque::new(), next_batch: 1 };
        consensus.settle_election_draw();
        consensus
    }

    /// The only voter need not wait for an election timeout to find that nobody else leads.
    pub(crate) fn campaign_if_alone(&mut self) {
        if self.is_sole_voter() && self.node.raft.state != StateRole::Leader {
            // Refused only while a membership change waits to be applied; ticks try again.
            let _ = self.node.campaign();
            self.settle_election_draw();
        }
    }

    pub(crate) fn is_sole_voter(&self) -> bool {
        let membership = self.node.store().membership();
        membership.voters == [self.node.raft.id] && membership.voters_outgoing.is_empty()
    }

    pub(crate) fn role(&self) -> Role {
        let raft = &self.node.raft;
        Role {
            term: raft.term,
            leader: raft.leader_id,
            is_leader: raft.state == StateRole::Leader,
            is_learner: self.node.store().membership().learners.contains(&raft.id),
        }
    }

    pub(crate) fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    pub(crate) fn membership(&self) -> &Membership {
        self.node.store().membership()
    }

    pub(crate) fn tick(&mut self) {
        self.node.tick();
        self.settle_election_draw();
    }

    /// Proposes everything that waits in one message, so that Raft does its bookkeeping once. False if Raft dropped
    /// it all: nothing of it is in the log.
    #[must_use]
    pub(crate) fn propose(&mut self, data: Vec<Bytes>) -> bool {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        for data in data {
            message.entries.push(RaftEntry { data, ..RaftEntry::default() });
        }
        let accepted = self.node.raft.step(message).is_ok();
        self.settle_election_draw();
        accepted
    }

    /// Asks Raft to confirm the leadership. `context` must never have been used before. Raft drops the request
    /// without a word when there is no leader, or when nothing is committed in this term yet: the caller asks again.
    pub(crate) fn read_index(&mut self, context: u64) {
        self.node.read_index(context.to_le_bytes().to_vec());
        self.settle_election_draw();
    }

    /// Whether an entry of this term is committed, before which Raft answers no read index.
    pub(crate) fn committed_in_term(&self) -> bool {
        self.node.raft.commit_to_current_term()
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.node.has_ready()
    }

    /// One Ready: what must be written, and what is committed.
    pub(crate) fn round(&mut self) -> Option<Round> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let number = ready.number();
        let mut round = Round::default();

        let entries = ready.take_entries();
        let mut votes = false;
        let mut hard_state = None;
        if let Some(hs) = ready.hs() {
            let store = self.node.mut_store();
            votes = hs.term != store.hard_state.term || hs.vote != store.hard_state.vote;
            store.hard_state = hs.clone();
            hard_state = Some(HardState { term: hs.term, vote: hs.vote, commit: hs.commit });
        }
        // A commit index alone need not be durable: it rides with the next entries, and a restart that knows an
        // older one only has to learn it again.
        if !entries.is_empty() || votes {
            let batch = self.next_batch;
            self.next_batch += 1;
            let append = Append { batch, entries: entries.iter().map(to_log_entry).collect(), hard_state };
            round.append = Some(append);
            self.unpersisted.push_back((number, Some(batch)));
        } else {
            self.unpersisted.push_back((number, None));
        }
        self.node.mut_store().append(entries);

        round.committed = ready.take_committed_entries().iter().map(to_log_entry).collect();
        round.reads = ready
            .take_read_states()
            .into_iter()
            .map(|read| {
                let context =
                    read.request_ctx.as_slice().try_into().expect("every context is a number of ours");
                (u64::from_le_bytes(context), read.index)
            })
            .collect();
        self.node.advance_append_async(ready);
        self.persisted_through(None);
        Some(round)
    }

    /// Every batch up to this one is durable.
    pub(crate) fn appended(&mut self, batch: u64) {
        self.persisted_through(Some(batch));
        self.settle_election_draw();
    }

    fn persisted_through(&mut self, durable: Option<u64>) {
        let mut last = None;
        while let Some((number, batch)) = self.unpersisted.front() {
            match (batch, durable) {
                (None, _) => last = Some(*number),
                (Some(batch), Some(durable)) if *batch <= durable => last = Some(*number),
                _ => break,
            }
            self.unpersisted.pop_front();
        }
        if let Some(number) = last {
            self.node.on_persist_ready(number);
        }
    }

    pub(crate) fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
    }

    /// Forgets the entries up to `index`, which the checkpoint holds.
    pub(crate) fn cut(&mut self, index: u64) {
        self.node.mut_store().cut(index);
    }

    /// The library draws election timeouts from the system's randomness; this one is a function of what is known.
    fn settle_election_draw(&mut self) {
        let raft = &self.node.raft;
        let mut draw = self.seed ^ raft.id.rotate_left(17) ^ raft.term.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        draw ^= draw >> 30;
        draw = draw.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw ^= draw >> 27;
        draw = draw.wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^= draw >> 31;
        let ticks = TICKS_PER_ELECTION + (draw % (TICKS_PER_ELECTION as u64 / 2)) as usize;
        self.node.raft.set_randomized_election_timeout(ticks);
    }
}

fn to_log_entry(entry: &RaftEntry) -> LogEntry {
    LogEntry {
        term: entry.term,
        index: entry.index,
        kind: match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Command,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Members,
        },
        data: entry.data.clone(),
    }
}

fn from_log_entry(entry: LogEntry) -> RaftEntry {
    let mut raft_entry =
        RaftEntry { term: entry.term, index: entry.index, data: entry.data, ..RaftEntry::default() };
    raft_entry.set_entry_type(match entry.kind {
        EntryKind::Command => EntryType::EntryNormal,
        EntryKind::Members => EntryType::EntryConfChangeV2,
    });
    raft_entry
}

/// The log as Raft reads it: all entries behind the checkpoint, in memory.
struct Log {
    hard_state: RaftHardState,
    conf_state: ConfState,
    membership: Membership,
    /// The entry before the first one here: index and term.
    before: (u64, u64),
    entries: VecDeque<RaftEntry>,
}

impl Log {
    fn new(
        hard_state: HardState,
        membership: Membership,
        index: u64,
        term: u64,
        entries: Vec<LogEntry>,
    ) -> Log {
        let hs = RaftHardState {
            term: hard_state.term,
            vote: hard_state.vote,
            // Without this Raft panics on a log that starts behind what it believes to be committed.
            commit: hard_state.commit.max(index),
            ..RaftHardState::default()
        };
        let mut cs = ConfState::default();
        cs.voters.clone_from(&membership.voters);
        cs.learners.clone_from(&membership.learners);
        cs.voters_outgoing.clone_from(&membership.voters_outgoing);
        cs.learners_next.clone_from(&membership.learners_next);
        cs.auto_leave = membership.auto_leave;
        Log {
            hard_state: hs,
            conf_state: cs,
            membership,
            before: (index, term),
            entries: entries.into_iter().map(from_log_entry).collect(),
        }
    }

    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn append(&mut self, entries: Vec<RaftEntry>) {
        let Some(first) = entries.first().map(|entry| entry.index) else { return };
        assert!(self.before.0 < first && first <= self.last() + 1, "the log has no gap and no second past");
        self.entries.truncate((first - self.before.0 - 1) as usize);
        self.entries.extend(entries);
    }

    fn cut(&mut self, index: u64) {
        if index <= self.before.0 {
            return;
        }
        assert!(index <= self.last(), "a checkpoint is never ahead of the log");
        let count = (index - self.before.0) as usize;
        let term = self.entries[count - 1].term;
        self.entries.drain(..count);
        self.before = (index, term);
        if self.entries.capacity() > 1024 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.hard_state.clone(), conf_state: self.conf_state.clone() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low <= self.before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last() + 1, "Raft asks only for entries that it was given");
        let from = (low - self.before.0 - 1) as usize;
        let to = (high - self.before.0 - 1) as usize;
        let mut entries: Vec<RaftEntry> = self.entries.range(from..to).cloned().collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        if index < self.before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        match self.entries.get((index - self.before.0 - 1) as usize) {
            Some(entry) => Ok(entry.term),
            None => Err(raft::Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // A snapshot is for a follower; there are none yet.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// What Raft logs, in our log.
struct ToTracing;

impl slog::Drain for ToTracing {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _values: &slog::OwnedKVList) -> Result<(), slog::Never> {
        match record.level() {
            slog::Level::Critical | slog::Level::Error => tracing::error!(target: "raft", "{}", record.msg()),
            slog::Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
            // Raft tells of every step that it takes; people want to hear of those that we take.
            slog::Level::Info | slog::Level::Debug => tracing::debug!(target: "raft", "{}", record.msg()),
            slog::Level::Trace => tracing::trace!(target: "raft", "{}", record.msg()),
        }
        Ok(())
    }
}
