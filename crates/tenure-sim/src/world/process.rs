//! The member as a process: starts, turns, and carrying out what a turn asks for.

use super::*;

impl World {
    pub(super) fn start(&mut self) {
        let h = self.h;
        self.trace.event(h, "start", 0);
        let damage_chance = self.damage_chance;
        let member = self.member();
        if member.process.is_some() {
            return;
        }
        let (disk, bugs) = (member.disk.clone(), member.shape.bugs());
        let recovered = match disk.recover(bugs) {
            Ok(recovered) => recovered,
            Err(error) => {
                self.history.findings.push(Finding::Refused { why: error.to_string() });
                self.end_at = h;
                return;
            }
        };
        let applied = recovered.state.meta().applied;
        let differs = member
            .digests
            .iter()
            .rev()
            .find(|(at, _)| *at == applied)
            .is_some_and(|(_, digest)| *digest != recovered.state.digest());
        recovered.state.assert_invariants();
        let mut accepted = None;
        if member.rng.chance(damage_chance) {
            let mut damaged = disk;
            let mut rng = member.rng.fork();
            if let Some(what) = damaged.damage(&mut rng)
                && let Ok(other) = damaged.recover(bugs)
                && (other.entries != recovered.entries
                    || other.hard_state != recovered.hard_state
                    || other.state.digest() != recovered.state.digest())
            {
                accepted = Some(what);
            }
        }
        let settings = member.settings();
        let restart = recovered.restart(settings);
        let segment = restart.segment;
        let Some(left) = member.disk.begin(&restart) else {
            // Not even the first segment fits; whoever watches the process tries again.
            self.push(h + SEC, Event::Start);
            return;
        };
        // The machine may go down between any two steps of a start.
        if member.rng.chance(30) {
            let again = member.rng.between(10 * MS, 500 * MS);
            if member.rng.chance(500) {
                member.disk.started(segment);
            }
            let mut rng = member.rng.fork();
            member.disk.lose_power(&mut rng);
            self.push(h + again, Event::Start);
            return;
        }
        member.disk.started(segment);
        member.disk.recycle(left);
        member.disk.make_spares();
        let first = Membership { voters: vec![member.id.0], ..Membership::default() };
        let mut start = recovered.into_start(first);
        if member.shape.slice_max > 0 {
            start.state.set_slice_max(member.shape.slice_max);
        }
        self.tap.restarted(&start.state);
        let member = self.member();
        // Another boot, another epoch of the monotonic clock.
        let fast_ppm = member.rng.between(0, 1000) as i64 - 500;
        member.clock = Clock::new(member.rng.below(1 << 50), fast_ppm);
        let mut config = member.shape.config.clone();
        config.incarnation = member.disk.boot;
        let mut replica = Replica::new(config, start, member.clock.at(h));
        replica.set_bugs(bugs);
        let skip_sync = bugs.has(Bug::SkipFsync);
        member.process = Some(Process::new(replica, restart.writer, skip_sync));
        if differs {
            self.history.findings.push(Finding::CheckpointDiffers { applied });
        }
        if let Some(what) = accepted {
            self.history.findings.push(Finding::DamageAccepted { what });
        }
        self.ask_whether_active();
    }

    /// A linearizable read is served once this life's take-over is applied.
    pub(super) fn ask_whether_active(&mut self) {
        let consistency = Consistency::Linearizable;
        self.input(Input::Read { ticket: OWN_TICKET, read: Read::Barrier, consistency });
    }

    pub(super) fn schedule_turn(&mut self, at: u64) {
        let h = self.h;
        let member = self.member();
        let paused_until = member.paused_until;
        let Some(process) = &mut member.process else { return };
        let at = at.max(process.busy_until).max(paused_until).max(h);
        if process.turn_at.is_none_or(|scheduled| scheduled > at) {
            process.turn_at = Some(at);
            self.push(at, Event::Turn);
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        if let Some(process) = &mut self.member().process {
            process.inbox.push_back(input);
            self.schedule_turn(self.h);
        }
    }

    pub(super) fn turn(&mut self) {
        let h = self.h;
        let pausing = h < self.heal_at && self.faults.kinds.iter().any(|(fault, _)| *fault == Fault::Pause);
        let member = self.member();
        let paused_until = member.paused_until;
        let Some(process) = &mut member.process else { return };
        if process.turn_at != Some(h) {
            return;
        }
        process.turn_at = None;
        if h < paused_until.max(process.busy_until) {
            self.schedule_turn(h);
            return;
        }
        let count = process.inbox.len().min(TURN_INPUTS_MAX);
        let inputs: Vec<Input> = process.inbox.drain(..count).collect();
        process.turn_count += 1;
        let effects = process.replica.step(member.clock.at(h), inputs);
        if process.turn_count.is_multiple_of(512) {
            process.replica.state().assert_invariants();
        }
        let mut busy = member.rng.between(10_000, 80_000) + 500 * effects.len() as u64;
        // A pause may come between a turn and its effects.
        let held = pausing && !effects.is_empty() && member.rng.below(4000) == 0;
        if held {
            busy = member.rng.between(MS, 3 * SEC);
            member.paused_until = h + busy;
        }
        let next = process.replica.next_deadline(member.clock.at(h));
        let next = if next == tenure_state::ids::Nanos::MAX { u64::MAX } else { member.clock.when(next) };
        process.busy_until = h + busy;
        let more = !process.inbox.is_empty();
        self.note_stamps(&effects);
        if held {
            self.history.outages.push((h, h + busy, Outage::Paused));
            self.push(h + busy, Event::Effects(effects));
        } else {
            self.carry_out(effects);
        }
        self.schedule_turn(if more { h } else { next });
    }

    /// What the leader stamped, at the very moment when it did.
    pub(super) fn note_stamps(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Append(append) = effect else { continue };
            for entry in append.entries.iter().filter(|entry| entry.kind == EntryKind::Command) {
                let proposal = Proposal::decode(entry.data.clone()).expect("the replica made it");
                if let Command::LeaseStep(step) = proposal.command {
                    self.history.stamps.push(Stamp { at: self.h, clock: step.stamp.clock });
                }
            }
        }
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        let h = self.h;
        for effect in effects {
            match effect {
                Effect::Append(append) => {
                    self.trace.event(h, "append", append.batch);
                    for entry in &append.entries {
                        self.trace.bytes(&entry.data);
                    }
                    if let Some(process) = &mut self.member().process {
                        process.log.append(append);
                    }
                }
                Effect::Answer { ticket: OWN_TICKET, answer, .. } => self.own_answer(answer),
                Effect::Answer { ticket, header, answer } => self.answer(ticket, header, answer),
                Effect::Watch { stream, output } => self.watch_output(stream, output),
                Effect::Checkpoint(checkpoint) => {
                    self.trace.event(h, "applied", checkpoint.meta.applied);
                    self.trace.number(checkpoint.meta.clock.0);
                    self.trace.number(checkpoint.changes.len() as u64);
                    self.tap.applied(h, &checkpoint, &mut self.history);
                    let member = self.member();
                    let (interval, rows) = (member.shape.checkpoint_interval, member.shape.checkpoint_rows);
                    let Some(process) = &mut member.process else { continue };
                    process.checkpoint.folded.add(checkpoint);
                    let many = process.checkpoint.folded.change_count() >= rows && !process.told_full;
                    let at = if many { h } else { h + interval };
                    self.checkpoint_at(at);
                }
                Effect::FlushCheckpoint => {
                    if let Some(process) = &mut self.member().process {
                        process.checkpoint.flush = true;
                    }
                    self.checkpoint_at(h);
                }
                Effect::CutLog { through } => {
                    let member = self.member();
                    if let Some(process) = &mut member.process {
                        process.log.cut(through);
                        process.log.cut_now(&mut member.disk);
                    }
                }
            }
        }
        self.log_next();
    }

    pub(super) fn own_answer(&mut self, answer: Result<Answer, Failure>) {
        let h = self.h;
        if answer.is_err() {
            self.ask_whether_active();
            return;
        }
        let member = self.member();
        let Some(process) = &mut member.process else { return };
        process.active = true;
        let down_since = member.down_since;
        self.history.take_overs.push(h);
        self.history.outages.push((down_since, h, Outage::Down));
    }
}
