//! What the member's log and checkpoint do, one simulated operation after the other.

use super::*;

impl World {
    pub(super) fn log_next(&mut self) {
        let h = self.h;
        let member = self.member();
        let (sync_ns, stalled) = (member.sync_ns(), member.stalled_until);
        let Some(process) = &mut member.process else { return };
        if process.log.busy {
            return;
        }
        match process.log.next(&mut member.rng, sync_ns) {
            LogStep::Wait(span) => {
                let at = (h + span).max(stalled);
                self.push(at, Event::Log);
            }
            LogStep::Idle | LogStep::Full => {
                let turn = process.turn_count;
                self.push(h + LOG_IDLE, Event::LogIdle(turn));
            }
        }
    }

    pub(super) fn log_done(&mut self) {
        let h = self.h;
        let member = self.member();
        if h < member.stalled_until {
            let until = member.stalled_until;
            self.push(until, Event::Log);
            return;
        }
        let Some(process) = &mut member.process else { return };
        match process.log.done(&mut member.disk) {
            Ok(told) => {
                if let Some(input) = told {
                    self.input(input);
                }
                self.log_next();
            }
            Err(_) => {
                self.tell_full(true);
                self.push(h + FULL_RETRY, Event::Log);
            }
        }
    }

    pub(super) fn tell_full(&mut self, full: bool) {
        let Some(process) = &mut self.member().process else { return };
        process.was_full |= full;
        if std::mem::replace(&mut process.told_full, full) != full {
            self.trace.event(self.h, "disk full", u64::from(full));
            self.input(Input::DiskSpace { full });
        }
    }

    pub(super) fn checkpoint_at(&mut self, at: u64) {
        if let Some(process) = &mut self.member().process
            && process.checkpoint.due.is_none_or(|due| due > at)
        {
            process.checkpoint.due = Some(at);
            self.push(at, Event::CheckpointDue);
        }
    }

    pub(super) fn checkpoint_due(&mut self) {
        let h = self.h;
        let member = self.member();
        let sync_ns = member.sync_ns();
        let keep_digest = member.shape.slice_max == 0;
        let Some(process) = &mut member.process else { return };
        let checkpoint = &mut process.checkpoint;
        if checkpoint.due.is_none_or(|due| due > h) || checkpoint.committing.is_some() {
            return;
        }
        checkpoint.due = None;
        checkpoint.flush = false;
        if checkpoint.folded.is_empty() {
            return;
        }
        if member.disk.full && member.rng.chance(700) {
            // Its space is not there until the ballast is given up, and that may not be enough either.
            self.tell_full(true);
            self.checkpoint_at(h + CHECKPOINT_RETRY);
            return;
        }
        let folded = std::mem::take(&mut checkpoint.folded);
        if keep_digest && process.replica.state().applied() == folded.applied() {
            member.digests.push((folded.applied(), process.replica.state().digest()));
        }
        checkpoint.committing = Some(folded);
        let at = (h + 3 * member.rng.latency(sync_ns)).max(member.stalled_until);
        self.push(at, Event::CheckpointDone);
    }

    pub(super) fn checkpoint_done(&mut self) {
        let h = self.h;
        let member = self.member();
        let interval = member.shape.checkpoint_interval;
        let Some(process) = &mut member.process else { return };
        let folded = process.checkpoint.committing.take().expect("a commit was under way");
        folded.commit(member.disk.origin, &mut member.disk.rows);
        let applied = folded.applied();
        let flush = process.checkpoint.flush;
        let more = !process.checkpoint.folded.is_empty();
        // What was due meanwhile was not looked at.
        process.checkpoint.due = None;
        self.trace.event(h, "checkpoint", applied);
        self.input(Input::Checkpointed { applied });
        if more || flush {
            self.checkpoint_at(if flush { h } else { h + interval });
        }
    }
}
