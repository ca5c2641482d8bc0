//! One member of a cluster as a plain struct: inputs and the time go in, effects come out.
//!
//! [`Replica::step`] is one turn of the loop: what waits, one round of proposals, one Raft Ready. Nothing here
//! awaits, opens, sleeps or reads a clock; the simulator runs this very code. The way of a write: `propose` takes
//! it, `consensus` agrees on it, `commit` applies it and answers. A renewal goes by `renewals` and `steps` into the
//! same log. A read goes by `read`, what watchers see by `watch`.

pub mod checksum;
mod commit;
mod consensus;
pub mod effect;
pub mod entry;
pub mod input;
mod lease_clock;
mod planted;
mod propose;
mod read;
pub mod recover;
mod renewals;
pub mod row;
mod scrub;
pub mod snapshot;
mod steps;
pub mod wal;
pub mod watch;

use tenure_state::State;
use tenure_state::applied::{Applied, Reply};
use tenure_state::bugs::Bugs;
use tenure_state::command::{Alarm, AlarmAction, Command, Stamp};
use tenure_state::ids::{MemberId, Nanos};
use tenure_state::refusal::Refusal;

use crate::commit::{Commits, Kind, Outcome, Running};
use crate::consensus::{Consensus, Role, TICKS_PER_ELECTION};
use crate::effect::{
    Answer, Checkpoint, Counters, Failure, HardState, Header, LATENESS_BOUNDS_MS, LogEntry, Membership,
    Status, TTL_BOUNDS_S,
};
use crate::input::{Consistency, Read, Ticket, Write};
use crate::propose::{Pending, Proposals};
use crate::read::Reads;
use crate::renewals::Renewals;
use crate::scrub::Scrub;
use crate::steps::Steps;
use crate::watch::{Hub, WatchConfig};

pub use effect::Effect;
pub use input::Input;

/// How many superseded records one Scrub entry looks at.
const SCRUB_LIMIT: u32 = 2000;

/// Fixed for the life of a replica.
#[derive(Clone, Debug)]
pub struct Config {
    pub member: MemberId,
    /// Counted up in the data directory at each start: what an earlier life asked for is never answered to this one.
    pub incarnation: u64,
    /// Settles the draws of election timeouts, the only chance in here.
    pub seed: u64,
    pub election_timeout: Nanos,
    /// How long a request waits for its answer; etcd: 5 s and two election timeouts.
    pub request_timeout: Nanos,
    /// What a take-over gives every lease, so that clients find the new leader.
    pub grace: Nanos,
    /// 0: no limit.
    pub quota_bytes: u64,
    pub watch: WatchConfig,
}

/// What a member knows when it starts: the checkpoint and the log behind it.
pub struct Start {
    pub state: State,
    /// The term of the entry at the applied index of `state`.
    pub applied_term: u64,
    pub membership: Membership,
    pub hard_state: HardState,
    /// Behind the applied index, without a gap.
    pub entries: Vec<LogEntry>,
}

impl Start {
    /// A new cluster of one.
    pub fn fresh(member: MemberId) -> Start {
        Start {
            state: State::new(),
            applied_term: 0,
            membership: Membership { voters: vec![member.0], ..Membership::default() },
            hard_state: HardState::default(),
            entries: Vec::new(),
        }
    }
}

/// One member of a cluster.
pub struct Replica {
    config: Config,
    state: State,
    consensus: Consensus,
    role: Role,
    proposals: Proposals,
    renewals: Renewals,
    steps: Steps,
    commits: Commits,
    reads: Reads,
    hub: Hub,
    scrub: Scrub,
    counters: Counters,
    /// Index up to which the checkpoint is durable.
    checkpointed: u64,
    next_tick: Nanos,
    /// An alarm that this member raised for its own disk, which it takes back by itself.
    disk_alarm: bool,
    /// An alarm for the quota was proposed and is not applied yet.
    quota_alarm_proposed: bool,
    /// Refused for want of space: told so when the alarm that they raised is there, as on etcd.
    out_of_space: Vec<Ticket>,
    stalled: bool,
    /// The hub has more to do than one turn takes.
    hub_work: bool,
    /// The turn ended with something new that its earlier parts have to see.
    turn_again: bool,
    effects: Vec<Effect>,
    bugs: Bugs,
}

impl Replica {
    /// A member that starts at `now`. It knows what `start` says and has no leader yet.
    pub fn new(config: Config, start: Start, now: Nanos) -> Replica {
        let Start { state, applied_term, membership, hard_state, entries } = start;
        let applied = state.applied();
        let log = consensus::Start { hard_state, checkpoint: (applied, applied_term), membership, entries };
        let consensus = Consensus::new(config.member, config.seed, log);
        let meta = state.meta();
        let mut replica = Replica {
            role: consensus.role(),
            consensus,
            proposals: Proposals::new(config.member, config.incarnation),
            renewals: Renewals::new(config.member, config.incarnation),
            steps: Steps::new(now),
            commits: Commits::default(),
            reads: Reads::new(),
            hub: Hub::new(config.watch.clone()),
            // Where the last life left off is not worth knowing: one Scrub entry finds out.
            scrub: Scrub::new(meta.compacted.0 > 0),
            counters: Counters::default(),
            checkpointed: applied,
            next_tick: now,
            disk_alarm: false,
            quota_alarm_proposed: false,
            out_of_space: Vec::new(),
            stalled: false,
            hub_work: false,
            turn_again: true,
            effects: Vec::new(),
            bugs: Bugs::default(),
            state,
            config,
        };
        replica.consensus.campaign_if_alone();
        replica
    }

    /// One turn at `now`, which was read after the last of `inputs` came. Returns what is to be done, in order.
    pub fn step(&mut self, now: Nanos, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
        self.turn_again = false;
        self.steps.turn_begins(now);
        for input in inputs {
            self.input(now, input);
        }
        self.tick(now);
        self.notice_role(now);
        self.ask_reads(now);
        self.propose(now);
        self.round();
        self.apply(now);
        self.notice_role(now);
        self.serve_reads(now);
        self.expire(now);
        self.watch_turn(now);
        std::mem::take(&mut self.effects)
    }

    /// When to take the next turn although nothing came; at once while there is work left.
    pub fn next_deadline(&self, now: Nanos) -> Nanos {
        let work = self.commits.has_work() || self.reads.has_work() || self.hub_work;
        if work || self.turn_again || self.consensus.has_ready() {
            return now;
        }
        let alone = self.consensus.is_sole_voter() && self.role.is_leader;
        let tick = if alone { now + self.config.election_timeout } else { self.next_tick };
        let waiting =
            [self.proposals.waiting_since(), self.renewals.waiting_since(), self.reads.waiting_since()]
                .into_iter()
                .flatten()
                .map(|since| self.steps.not_before(since + self.patience()));
        let steps = self.steps.next_deadline(now, &self.state, &self.renewals);
        // Raft dropped them, or a long read holds the scrub up: try again soon, but not in a busy loop.
        let scrub = self.scrub.wanted && !self.scrub.in_flight && self.steps.is_active();
        if scrub && !self.reads.pins(self.state.compacted(), now) {
            return now;
        }
        let again = (scrub || self.proposals.has_outgoing()).then(|| now + Nanos::from_millis(10));
        [Some(tick), self.hub.next_deadline(), steps, again]
            .into_iter()
            .flatten()
            .chain(waiting)
            .min()
            .expect("the tick is always there")
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    fn input(&mut self, now: Nanos, input: Input) {
        match input {
            Input::Write { ticket, write } => self.write(now, ticket, write),
            Input::Renew { ticket, ids } => self.renewals.add(ticket, ids, now),
            Input::Read { ticket, read: Read::Status, .. } => {
                let status = Box::new(self.status(now));
                self.answer(ticket, Ok(Answer::Status(status)));
            }
            Input::Read { ticket, read, consistency: Consistency::Linearizable } => {
                let clock = self.steps.peek(now).unwrap_or(self.state.clock());
                self.reads.add(ticket, read, now, clock);
            }
            Input::Read { ticket, read, consistency: Consistency::Serializable } => {
                let clock = self.steps.peek(now).unwrap_or(self.state.clock());
                self.with_reads(|reads, state, out| reads.serve(state, ticket, read, now, clock, out));
            }
            Input::NextPage { ticket } => {
                if let Err(failure) = self.reads.next_page(ticket) {
                    self.answer(ticket, Err(failure));
                }
            }
            Input::Forget { ticket } => self.reads.forget(ticket),
            Input::Watch { stream, request } => {
                let mut outputs = watch::Outputs::new();
                self.hub.request(&self.state, now, stream, request, &mut outputs);
                self.tell_watchers(outputs);
            }
            Input::Appended { batch } => self.consensus.appended(batch),
            Input::Checkpointed { applied } => self.checkpointed(applied),
            Input::DiskSpace { full } => self.disk_space(now, full),
        }
    }

    fn write(&mut self, now: Nanos, ticket: Ticket, write: Write) {
        if let Err(failure) = self.proposals.add(Some(ticket), write, now) {
            self.counters.proposals_failed += 1;
            self.answer(ticket, Err(failure));
        }
    }

    fn disk_space(&mut self, now: Nanos, full: bool) {
        if full == self.disk_alarm {
            return;
        }
        self.disk_alarm = full;
        let action = if full { AlarmAction::Activate } else { AlarmAction::Deactivate };
        self.propose_alarm(now, action);
    }

    fn propose_alarm(&mut self, now: Nanos, action: AlarmAction) {
        let write = Write::Alarm { action, member: self.config.member, alarm: Alarm::NoSpace };
        self.proposals.add(None, write, now).expect("the replica's own writes are always taken");
    }

    fn checkpointed(&mut self, applied: u64) {
        self.checkpointed = self.checkpointed.max(applied);
        self.consensus.cut(self.checkpointed);
        self.effects.push(Effect::CutLog { through: self.checkpointed });
        for (ticket, reply) in self.scrub.checkpointed(self.checkpointed) {
            self.answer(ticket, reply.map(Answer::Applied).map_err(Failure::from));
        }
    }

    /// Ticks that a pause swallowed are not made up: they would depose a leader whose answers wait in the sockets.
    fn tick(&mut self, now: Nanos) {
        if now < self.next_tick {
            return;
        }
        self.consensus.tick();
        self.next_tick = now + Nanos(self.config.election_timeout.0 / TICKS_PER_ELECTION as u64);
    }

    /// How long this member lets a request wait. While its own disk or quorum is stalled it says so early.
    fn patience(&self) -> Nanos {
        if self.stalled { self.config.election_timeout } else { self.config.request_timeout }
    }

    /// Gives up on what waited too long. Comes after apply, so that what this turn brought is answered; and not
    /// right after a pause of the process, in which nothing could have been answered.
    fn expire(&mut self, now: Nanos) {
        if self.steps.is_expiry_held(now) {
            return;
        }
        // What takes long to apply is no stall: it gets on, and its own waiter knows that it is large.
        if self.commits.has_work() {
            return;
        }
        let oldest = self.proposals.waiting_since().into_iter().chain(self.renewals.waiting_since()).min();
        self.stalled = oldest.is_some_and(|since| since + self.config.election_timeout < now);
        let since = now.saturating_sub(self.patience());
        let failure = if self.role.leader == 0 { Failure::NoLeader } else { Failure::TimedOut };
        let mut gone = Vec::new();
        self.proposals.expire(since, |ticket| gone.push((ticket, Failure::TimedOut)));
        self.renewals.expire(since, |ticket| gone.push((ticket, failure)));
        self.with_reads(|reads, _, out| reads.expire(since, failure, out));
        self.counters.proposals_failed += gone.len() as u64;
        for (ticket, failure) in gone {
            self.answer(ticket, Err(failure));
        }
    }

    /// Follows Raft's idea of who leads. On any change what waits is tried again.
    fn notice_role(&mut self, now: Nanos) {
        let role = self.consensus.role();
        if role == self.role {
            return;
        }
        if role.leader != self.role.leader && role.leader != 0 {
            self.counters.leader_changes += 1;
        }
        self.role = role;
        self.turn_again = true;
        let mut gone = Vec::new();
        self.proposals.give_up_dropped(|ticket| gone.push(ticket));
        for ticket in gone {
            self.answer(ticket, Err(Failure::LeaderChanged));
        }
        // The alarm may be lost with the leader; what it was for is true all the same.
        self.alarm_applied();
        self.renewals.requeue_all();
        self.reads.restart();
        self.steps.new_role(now);
        self.activate_early(now);
        self.scrub.in_flight = false;
    }

    fn ask_reads(&mut self, now: Nanos) {
        if self.role.is_leader && !self.steps.is_active() {
            // Before the take-over is applied this member cannot tell what is due.
            return;
        }
        let due = self.steps.is_due(now, &mut self.state);
        let steps = self.steps.expiring_proposed();
        let clock = self.steps.peek(now).unwrap_or(self.state.clock());
        self.reads.ask(&mut self.consensus, now, clock, due, steps, self.config.election_timeout);
    }

    /// One round of proposals: lease steps first, then what users want, all in one message to Raft.
    fn propose(&mut self, now: Nanos) {
        if !self.role.is_leader {
            return;
        }
        let quota = self.config.quota_bytes;
        let lease_entries = self.steps.propose(
            now,
            self.role.term,
            self.config.grace,
            self.consensus.is_sole_voter(),
            &mut self.state,
            &mut self.renewals,
        );
        if !lease_entries.is_empty() {
            let data = lease_entries
                .iter()
                .map(|entry| self.proposals.anonymous(quota, entry.command.clone(), entry.batches.clone()))
                .collect();
            let accepted = self.consensus.propose(data);
            self.answer_early(&lease_entries);
            self.steps.proposed(now, lease_entries, accepted, &mut self.renewals);
        }
        let Some(clock) = self.steps.peek(now) else {
            return;
        };
        self.propose_scrub(now);
        if self.proposals.has_outgoing() {
            let entries = self.proposals.take(Stamp { term: self.role.term, clock }, quota);
            if !self.consensus.propose(entries.iter().map(|(_, data)| data.clone()).collect()) {
                self.proposals.put_back(entries);
            }
        }
    }

    fn propose_scrub(&mut self, now: Nanos) {
        if !self.scrub.wanted || self.scrub.in_flight || self.reads.pins(self.state.compacted(), now) {
            return;
        }
        let command = Command::Scrub { limit: SCRUB_LIMIT };
        let data = self.proposals.anonymous(self.config.quota_bytes, command, Vec::new());
        self.scrub.in_flight = self.consensus.propose(vec![data]);
    }

    /// One Raft Ready.
    fn round(&mut self) {
        let Some(round) = self.consensus.round() else { return };
        if let Some(append) = round.append {
            self.persist_early(&append);
            self.effects.push(Effect::Append(append));
        }
        self.commits.add(round.committed);
        for (context, index) in round.reads {
            self.reads.confirmed(context, index);
        }
    }

    fn apply(&mut self, now: Nanos) {
        if !self.commits.has_work() {
            return;
        }
        let applied_before = self.state.applied();
        let mut done = Vec::new();
        let mut outcome = Outcome::default();
        self.commits.apply(&mut self.state, |running, applied| done.push((running, applied)));
        for (running, mut applied) in done {
            outcome.term = Some(running.term);
            outcome.events.append(&mut applied.events);
            outcome.changes.append(&mut applied.changes);
            self.applied(now, running, applied);
        }
        let mut outputs = watch::Outputs::new();
        self.hub.publish(&self.state, &outcome.events, &mut outputs);
        self.tell_watchers(outputs);
        if let Some(term) = outcome.term {
            self.consensus.applied(self.state.applied());
            self.effects.push(Effect::Checkpoint(Checkpoint {
                meta: self.checkpoint_meta(applied_before),
                term,
                membership: self.consensus.membership().clone(),
                changes: outcome.changes,
            }));
        }
        // After the rows that are to be in it, or it would wait for the next one.
        if self.scrub.take_flush() {
            self.effects.push(Effect::FlushCheckpoint);
        }
    }

    /// An entry is applied: answer who waits for it, and go on with what it makes possible.
    fn applied(&mut self, now: Nanos, running: Running, applied: Applied) {
        let pending = self.proposals.applied(running.origin);
        self.count(&running, &applied);
        match (running.kind, &applied.reply) {
            (Kind::LeaseStep { stamp, last }, Ok(Reply::LeaseStep(reply))) => {
                self.steps.applied(stamp, self.role.term, last, reply.more);
                let mut answers = Vec::new();
                self.renewals.answer(&running.batches, &reply.renewed, |ticket, answer| {
                    answers.push((ticket, answer))
                });
                for (ticket, answer) in answers {
                    self.answer(ticket, Ok(answer));
                }
            }
            (Kind::TakeOver { stamp }, Ok(_)) => {
                self.steps.taken_over(stamp, self.role.term, self.state.clock(), now);
                // What waited for an active leader goes on.
                self.turn_again = true;
            }
            (Kind::Compact, Ok(_)) => self.scrub.wanted = true,
            (Kind::Scrub, Ok(Reply::Scrub { more })) => self.scrub.applied(*more, running.index),
            (Kind::Alarm, _) => self.alarm_applied(),
            (_, Err(Refusal::NoSpace)) if !running.alarmed => self.raise_quota_alarm(now),
            _ => {}
        }
        if let Some(Pending { ticket: Some(ticket), physical, .. }) = pending {
            if self.quota_alarm_proposed && applied.reply == Err(Refusal::NoSpace) {
                self.out_of_space.push(ticket);
            } else if physical {
                self.scrub.wait(ticket, applied.reply);
            } else {
                self.answer(ticket, applied.reply.map(Answer::Applied).map_err(Failure::from));
            }
        }
    }

    fn raise_quota_alarm(&mut self, now: Nanos) {
        let raised = self.state.meta().alarms.contains(&(self.config.member, Alarm::NoSpace));
        if self.role.is_leader && !raised && !self.quota_alarm_proposed {
            self.quota_alarm_proposed = true;
            self.propose_alarm(now, AlarmAction::Activate);
        }
    }

    fn alarm_applied(&mut self) {
        self.quota_alarm_proposed = false;
        for ticket in std::mem::take(&mut self.out_of_space) {
            self.answer(ticket, Err(Refusal::NoSpace.into()));
        }
    }

    fn count(&mut self, running: &Running, applied: &Applied) {
        let counters = &mut self.counters;
        let Ok(reply) = &applied.reply else { return };
        match (running.kind, reply) {
            (Kind::Put { bytes }, _) => {
                counters.puts += 1;
                counters.put_bytes += bytes;
            }
            (Kind::DeleteRange, _) => counters.deletes += 1,
            (Kind::Txn, _) => counters.txns += 1,
            (Kind::Grant, Reply::Grant { ttl, .. }) => {
                counters.leases_granted += 1;
                counters.ttls.observe(&TTL_BOUNDS_S, ttl.as_secs());
            }
            (Kind::Revoke, _) => counters.leases_revoked += 1,
            (Kind::TakeOver { .. }, _) => counters.take_overs += 1,
            (Kind::LeaseStep { .. }, Reply::LeaseStep(step)) => {
                counters.lease_steps += 1;
                counters.leases_renewed +=
                    step.renewed.iter().filter(|renewed| renewed.remaining.is_some()).count() as u64;
                counters.leases_expired += step.ended.len() as u64;
                let clock = self.state.clock();
                for (_, deadline) in &step.ended {
                    let late = clock.saturating_sub(*deadline);
                    counters.lateness.observe(&LATENESS_BOUNDS_MS, late.as_millis());
                }
            }
            (Kind::Scrub, _) => {
                let gone = |change: &&tenure_state::applied::Change| {
                    matches!(change, tenure_state::applied::Change::RecordGone(_))
                };
                counters.compacted_keys += applied.changes.iter().filter(gone).count() as u64;
            }
            _ => {}
        }
    }

    fn serve_reads(&mut self, now: Nanos) {
        let steps_applied = self.steps.expiring_applied();
        self.with_reads(|reads, state, out| {
            reads.answer(state, now, steps_applied, out);
            reads.turn(state, out);
        });
    }

    fn watch_turn(&mut self, now: Nanos) {
        let mut outputs = watch::Outputs::new();
        self.hub_work = self.hub.turn(&self.state, now, &mut outputs);
        self.tell_watchers(outputs);
    }

    fn tell_watchers(&mut self, outputs: watch::Outputs) {
        self.effects.extend(outputs.into_iter().map(|(stream, output)| Effect::Watch { stream, output }));
    }

    fn with_reads(&mut self, work: impl FnOnce(&mut Reads, &State, read::Out<'_>)) {
        let header = self.header();
        let effects = &mut self.effects;
        work(&mut self.reads, &self.state, &mut |ticket, answer| {
            effects.push(Effect::Answer { ticket, header, answer });
        });
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<Answer, Failure>) {
        let header = self.header();
        self.effects.push(Effect::Answer { ticket, header, answer });
    }

    fn header(&self) -> Header {
        Header { revision: self.state.revision(), term: self.role.term }
    }

    fn status(&mut self, now: Nanos) -> Status {
        let meta = self.state.meta();
        let clock = self.steps.peek(now).unwrap_or(meta.clock);
        let reads = self.reads.counts();
        Status {
            member: self.config.member,
            leader: self.role.leader,
            is_leader: self.role.is_leader,
            is_learner: self.role.is_learner,
            term: self.role.term,
            committed: self.consensus.committed(),
            applied: meta.applied,
            revision: meta.revision,
            compacted: meta.compacted,
            clock,
            alarms: meta.alarms,
            stats: self.state.stats(),
            counters: Counters {
                ranges: reads.ranges,
                read_index_batches: reads.batches,
                read_index_batches_again: reads.batches_again,
                read_indexes_failed: reads.failed,
                ..self.counters.clone()
            },
            watch: self.hub.stats(),
            proposals_pending: self.proposals.len() as u64,
            stalled: self.stalled,
            overdue_oldest: self
                .state
                .lease_due(clock)
                .map_or(Nanos::ZERO, |deadline| clock.saturating_sub(deadline)),
        }
    }
}
