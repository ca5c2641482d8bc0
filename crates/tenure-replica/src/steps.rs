//! The leader's lease steps: when the next one is due, what it carries, and what its way through the log means
//! for the lease clock.
//!
//! One step is on its way at a time. All renewals that come meanwhile go into the next, so the price of a renewal
//! does not grow with the price of a commit; and while a step does not come back, time does not pass for leases.

use tenure_state::State;
use tenure_state::bugs::{Bug, Bugs};
use tenure_state::command::{Command, LeaseStep, Stamp, TakeOver};
use tenure_state::ids::Nanos;

use crate::entry::Origin;
use crate::lease_clock::{CAP, LeaseClock};
use crate::renewals::Renewals;

/// Renewals wait so long for company: a fast disk would else make an entry of each few.
const COMPANY: Nanos = Nanos::from_millis(2);
/// The clock is stamped into the log at least this often while leases live; it bounds what a change of leader adds.
const STAMP_EVERY: Nanos = Nanos::from_millis(200);
/// The same where no other member could take over.
const STAMP_EVERY_ALONE: Nanos = Nanos::from_secs(1);
/// How soon a due lease is looked for again when the bound of the table was too early.
const LOOK_AGAIN: Nanos = Nanos::from_millis(1);
/// How many leases and keys may end in one step.
const EXPIRE_LIMIT: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Steps {
    /// There while this member is the active leader.
    clock: Option<LeaseClock>,
    take_over_proposed: bool,
    /// Entries of the step that is on its way and not applied yet.
    in_flight: usize,
    /// When the last step was proposed.
    stamped: Nanos,
    last_turn: Nanos,
    /// No lease ends before this: the loop came late, and what waits in the sockets is read first.
    expiry_held_until: Nanos,
    /// Steps that may expire, proposed and applied under this leadership.
    expiring_proposed: u64,
    expiring_applied: u64,
    /// Something due was left by the last step's limit.
    more: bool,
    bugs: Bugs,
}

/// An entry of this module's making.
#[derive(Debug)]
pub(crate) struct LeaseEntry {
    pub(crate) command: Command,
    pub(crate) batches: Vec<Origin>,
}

impl Steps {
    pub(crate) fn new(now: Nanos) -> Steps {
        Steps {
            clock: None,
            take_over_proposed: false,
            in_flight: 0,
            stamped: now,
            last_turn: now,
            expiry_held_until: now,
            expiring_proposed: 0,
            expiring_applied: 0,
            more: false,
            bugs: Bugs::default(),
        }
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn set_bugs(&mut self, bugs: Bugs) {
        self.bugs = bugs;
    }

    /// A turn that comes more than the cap after the last one holds expiry back for one cap more.
    pub(crate) fn turn_begins(&mut self, now: Nanos) {
        if now.saturating_sub(self.last_turn) > CAP && !self.bugs.has(Bug::CountPause) {
            self.expiry_held_until = now + CAP;
        }
        self.last_turn = self.last_turn.max(now);
    }

    /// Whether the loop came late a moment ago.
    pub(crate) fn is_expiry_held(&self, now: Nanos) -> bool {
        now < self.expiry_held_until
    }

    /// When what is due at `deadline` may really end.
    pub(crate) fn not_before(&self, deadline: Nanos) -> Nanos {
        deadline.max(self.expiry_held_until)
    }

    /// Whoever leads now, it begins passive.
    pub(crate) fn new_role(&mut self, now: Nanos) {
        *self = Steps {
            last_turn: self.last_turn,
            expiry_held_until: self.expiry_held_until,
            // Reads that wait for a step count on; they are asked anew anyway.
            expiring_proposed: self.expiring_proposed,
            expiring_applied: self.expiring_proposed,
            bugs: self.bugs,
            ..Steps::new(now)
        };
    }

    pub(crate) fn is_active(&self) -> bool {
        self.clock.is_some()
    }

    /// The lease clock without advancing it; `None` unless this member is the active leader.
    pub(crate) fn peek(&self, now: Nanos) -> Option<Nanos> {
        self.clock.as_ref().map(|clock| clock.peek(now))
    }

    pub(crate) fn is_due(&self, now: Nanos, state: &mut State) -> bool {
        self.peek(now).is_some_and(|clock| state.lease_due(clock).is_some())
    }

    pub(crate) fn expiring_proposed(&self) -> u64 {
        self.expiring_proposed
    }

    pub(crate) fn expiring_applied(&self) -> u64 {
        self.expiring_applied
    }

    /// What is to be proposed this turn by the leader of `term`.
    pub(crate) fn propose(
        &mut self,
        now: Nanos,
        term: u64,
        grace: Nanos,
        alone: bool,
        state: &mut State,
        renewals: &mut Renewals,
    ) -> Vec<LeaseEntry> {
        let Some(clock) = &mut self.clock else {
            if self.take_over_proposed {
                return Vec::new();
            }
            self.take_over_proposed = true;
            let command = Command::TakeOver(TakeOver { term, grace });
            return vec![LeaseEntry { command, batches: Vec::new() }];
        };
        // A step that Raft dropped is proposed again now.
        clock.release(now);
        // Read every turn, also when nothing is proposed, or dead leases would linger.
        let stamp = Stamp { term, clock: clock.clock(now) };
        if self.in_flight > 0 {
            return Vec::new();
        }
        let may_expire = !self.is_expiry_held(now);
        let due = may_expire && (self.more || state.lease_due(stamp.clock).is_some());
        let stamp_every = if alone { STAMP_EVERY_ALONE } else { STAMP_EVERY };
        let company = renewals.queued_since().is_some_and(|since| since + COMPANY <= now);
        let stamp_due = state.lease_count() > 0 && self.stamped + stamp_every <= now;
        if !(due || company || stamp_due) {
            return Vec::new();
        }
        let mut chunks = renewals.take();
        if chunks.is_empty() {
            chunks.push(crate::renewals::Chunk { ids: Vec::new(), batches: Vec::new() });
        }
        let count = chunks.len();
        chunks
            .into_iter()
            .enumerate()
            .map(|(at, chunk)| {
                let last = may_expire && at + 1 == count;
                let step = LeaseStep { stamp, renew: chunk.ids, limit: EXPIRE_LIMIT, last };
                LeaseEntry { command: Command::LeaseStep(step), batches: chunk.batches }
            })
            .collect()
    }

    /// Whether Raft took what [`Steps::propose`] made.
    pub(crate) fn proposed(
        &mut self,
        now: Nanos,
        entries: Vec<LeaseEntry>,
        accepted: bool,
        renewals: &mut Renewals,
    ) {
        let Some(clock) = &mut self.clock else {
            self.take_over_proposed = accepted;
            return;
        };
        if accepted {
            clock.step_proposed();
            self.in_flight = entries.len();
            self.stamped = now;
            self.more = false;
            self.expiring_proposed += entries.iter().filter(|entry| may_expire(entry)).count() as u64;
        } else {
            // Time stands still until it can be proposed.
            clock.hold(now);
            renewals.requeue(entries.into_iter().flat_map(|entry| entry.batches));
        }
    }

    /// An entry of a step was applied. `term` is its leader's; one of an earlier leader's changes nothing here.
    pub(crate) fn applied(&mut self, term: u64, role_term: u64, last: bool, more: bool) {
        let Some(clock) = &mut self.clock else { return };
        if term != role_term {
            return;
        }
        self.in_flight = self.in_flight.checked_sub(1).expect("a step of this leader was on its way");
        if self.in_flight == 0 {
            clock.step_applied();
        }
        if last {
            self.expiring_applied += 1;
            self.more = more;
        }
    }

    /// A take-over was applied: if it is this leadership's, the clock runs from here.
    pub(crate) fn taken_over(&mut self, term: u64, role_term: u64, replicated: Nanos, now: Nanos) {
        if term == role_term && self.take_over_proposed && self.clock.is_none() {
            self.activate(LeaseClock::resume(replicated, now));
            self.stamped = now;
        }
    }

    pub(crate) fn activate(&mut self, clock: LeaseClock) {
        self.clock = Some(clock.with(self.bugs));
        self.take_over_proposed = true;
    }

    /// When a turn is needed for leases. While any live the clock is read often enough that its cap bites only on
    /// stalls.
    pub(crate) fn next_deadline(&self, now: Nanos, state: &State, renewals: &Renewals) -> Option<Nanos> {
        let clock = self.clock.as_ref()?;
        let company =
            if self.in_flight == 0 { renewals.queued_since().map(|since| since + COMPANY) } else { None };
        let wanted = state.lease_count() > 0 && !self.bugs.has(Bug::SlowWhenIdle);
        let reading = wanted.then(|| clock.next_reading());
        let due = match state.next_lease_due() {
            Some(due) if self.in_flight == 0 => {
                // The bound may be a little early: look again in a moment, not in a busy loop.
                Some(clock.when(due).max(self.expiry_held_until).max(now + LOOK_AGAIN))
            }
            _ => None,
        };
        let more = (self.more && self.in_flight == 0).then_some(now.max(self.expiry_held_until));
        [company, reading, due, more].into_iter().flatten().min()
    }
}

fn may_expire(entry: &LeaseEntry) -> bool {
    matches!(&entry.command, Command::LeaseStep(step) if step.last)
}
