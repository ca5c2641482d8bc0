//! The superseded past on its way out: which part of it is asked for, and who waits until it is gone.

use tenure_state::applied::Reply;
use tenure_state::refusal::Refusal;

use crate::input::Ticket;

/// A physical compaction that is applied, with what it will be answered.
type Waiting = (Ticket, Result<Reply, Refusal>);

#[derive(Default)]
pub(crate) struct Scrub {
    pub(crate) wanted: bool,
    pub(crate) in_flight: bool,
    /// Until the records are gone.
    waiting: Vec<Waiting>,
    /// Until the checkpoint of this applied index is durable.
    flushing: Vec<(u64, Waiting)>,
    flush: bool,
}

impl Scrub {
    pub(crate) fn new(wanted: bool) -> Scrub {
        Scrub { wanted, ..Scrub::default() }
    }

    /// A physical compaction is applied: it waits for all that is wanted from now on.
    pub(crate) fn wait(&mut self, ticket: Ticket, reply: Result<Reply, Refusal>) {
        self.waiting.push((ticket, reply));
        self.wanted = true;
    }

    /// A Scrub entry is applied, at `index`; `more` is left for another one.
    pub(crate) fn applied(&mut self, more: bool, index: u64) {
        self.in_flight = false;
        self.wanted = more;
        if !more {
            self.flush |= !self.waiting.is_empty();
            self.flushing.extend(self.waiting.drain(..).map(|waiting| (index, waiting)));
        }
    }

    /// Whether somebody waits for the checkpoint since the last call.
    pub(crate) fn take_flush(&mut self) -> bool {
        std::mem::take(&mut self.flush)
    }

    /// The checkpoint is durable up to `applied`: who is to be answered now.
    pub(crate) fn checkpointed(&mut self, applied: u64) -> Vec<Waiting> {
        self.flushing.extract_if(.., |(index, _)| *index <= applied).map(|(_, waiting)| waiting).collect()
    }
}
