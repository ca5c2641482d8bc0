//! Known bugs, put back for the simulator: what of them does not fit into a line where the right code stands.
//!
//! Without the feature `planted-bugs` none can be planted, and all of this comes to nothing at compile time.

use tenure_state::applied::{Meta, Renewed};
use tenure_state::bugs::Bug;
use tenure_state::command::Command;
use tenure_state::ids::Nanos;

use crate::Replica;
use crate::effect::Append;
use crate::lease_clock::LeaseClock;
use crate::steps::LeaseEntry;

impl Replica {
    /// Puts a known bug back.
    #[cfg(feature = "planted-bugs")]
    pub fn set_bugs(&mut self, bugs: tenure_state::bugs::Bugs) {
        self.bugs = bugs;
        self.state.set_bugs(bugs);
        self.steps.set_bugs(bugs);
        self.hub.set_bugs(bugs);
    }

    pub(crate) fn persist_early(&mut self, append: &Append) {
        if self.bugs.has(Bug::AnswerBeforeFsync) {
            self.consensus.appended(append.batch);
        }
    }

    pub(crate) fn checkpoint_meta(&self, applied_before: u64) -> Meta {
        let mut meta = self.state.meta();
        if self.bugs.has(Bug::CheckpointApart) {
            meta.applied = applied_before;
        }
        meta
    }

    pub(crate) fn answer_early(&mut self, entries: &[LeaseEntry]) {
        if !self.bugs.has(Bug::AnswerRenewalEarly) {
            return;
        }
        let mut answers = Vec::new();
        for entry in entries {
            let Command::LeaseStep(step) = &entry.command else { continue };
            let remaining = |id| self.state.lease(id).map(|row| row.ttl);
            let renewed: Vec<Renewed> =
                step.renew.iter().map(|id| Renewed { id: *id, remaining: remaining(*id) }).collect();
            self.renewals.answer(&entry.batches, &renewed, |ticket, answer| answers.push((ticket, answer)));
        }
        for (ticket, answer) in answers {
            self.answer(ticket, Ok(answer));
        }
    }

    pub(crate) fn activate_early(&mut self, now: Nanos) {
        if self.bugs.has(Bug::ActiveBeforeTakeOver) && self.role.is_leader {
            self.steps.activate(LeaseClock::resume(self.state.clock(), now));
        }
    }
}
