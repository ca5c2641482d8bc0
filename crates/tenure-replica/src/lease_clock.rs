//! The leader's reading of the lease clock. Apply sees it only as a number in an entry.
//!
//! The clock advances by what passed on the leader's monotonic clock, but never by more than [`CAP`] a turn, so
//! that a paused process forgives its pause, and by no more than [`FLIGHT`] while one lease step is on its way,
//! so that time in which nothing can be committed does not count. Both only ever make the server wait longer
//! than the holder of a lease does.

use tenure_state::bugs::{Bug, Bugs};
use tenure_state::ids::Nanos;

/// The most that one turn may add: a longer gap is a pause of this process, which must not cost a lease.
pub(crate) const CAP: Nanos = Nanos::from_millis(30);
/// The most that may pass while a lease step is on its way: what stops the clock when disk or quorum stall.
pub(crate) const FLIGHT: Nanos = Nanos::from_millis(250);

/// Exists while this member is the active leader: from the moment its own take-over is applied.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    /// The greatest reading that was given out.
    last: Nanos,
    /// When that was, on the monotonic clock.
    read_at: Nanos,
    /// What is left of [`FLIGHT`] while a step is on its way.
    budget: Option<Nanos>,
    /// Set while the clock stands still: Raft dropped a step, or leadership is being handed over.
    held: bool,
    bugs: Bugs,
}

impl LeaseClock {
    /// Goes on from the replicated clock, which is the greatest stamp in the log.
    pub(crate) fn resume(replicated: Nanos, now: Nanos) -> LeaseClock {
        LeaseClock { last: replicated, read_at: now, budget: None, held: false, bugs: Bugs::default() }
    }

    pub(crate) fn with(mut self, bugs: Bugs) -> LeaseClock {
        self.bugs = bugs;
        self
    }

    fn passed(&self, now: Nanos) -> Nanos {
        if self.held {
            return Nanos::ZERO;
        }
        let since = now.saturating_sub(self.read_at);
        let passed = if self.bugs.has(Bug::CountPause) { since } else { since.min(CAP) };
        let passed = if self.bugs.has(Bug::FastClock) { passed + Nanos(passed.0 / 20) } else { passed };
        self.budget.map_or(passed, |budget| passed.min(budget))
    }

    /// Reads and advances the clock. For stamps of steps, once a turn, after the last renewal of the step.
    pub(crate) fn clock(&mut self, now: Nanos) -> Nanos {
        let passed = self.passed(now);
        self.last = self.last + passed;
        if let Some(budget) = &mut self.budget {
            *budget = *budget - passed;
        }
        self.read_at = self.read_at.max(now);
        self.last
    }

    /// Reads without advancing: never more than the next [`LeaseClock::clock`] returns, because a new leader
    /// resumes from the greatest stamp in the log, and a stamp ahead of a later renewal's would end that lease early.
    pub(crate) fn peek(&self, now: Nanos) -> Nanos {
        self.last + self.passed(now)
    }

    /// A step was proposed: from now on the clock may only run for [`FLIGHT`].
    pub(crate) fn step_proposed(&mut self) {
        self.budget = Some(FLIGHT);
    }

    /// The step on its way was applied.
    pub(crate) fn step_applied(&mut self) {
        self.budget = None;
    }

    /// Stands still from now on.
    pub(crate) fn hold(&mut self, now: Nanos) {
        if !self.held {
            self.clock(now);
            self.held = true;
        }
    }

    /// Runs again; what passed meanwhile does not count.
    pub(crate) fn release(&mut self, now: Nanos) {
        if self.held {
            self.clock(now);
            self.held = false;
        }
    }

    /// When to come back at the latest so that the cap bites only on stalls.
    pub(crate) fn next_reading(&self) -> Nanos {
        self.read_at + Nanos(CAP.0 / 2)
    }

    /// When the clock will read `at`, if nothing holds it up.
    pub(crate) fn when(&self, at: Nanos) -> Nanos {
        self.read_at + at.saturating_sub(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn it_runs_with_the_monotonic_clock() {
        let mut clock = LeaseClock::resume(ms(1000), ms(5));
        assert_eq!(clock.peek(ms(15)), ms(1010));
        assert_eq!(clock.clock(ms(15)), ms(1010));
        assert_eq!(clock.clock(ms(25)), ms(1020));
    }

    #[test]
    fn a_pause_counts_for_the_cap_only() {
        let mut clock = LeaseClock::resume(ms(0), ms(0));
        assert_eq!(clock.clock(ms(60_000)), CAP);
        assert_eq!(clock.clock(ms(60_010)), CAP + ms(10));
    }

    #[test]
    fn it_stops_when_a_step_does_not_come_back() {
        let mut clock = LeaseClock::resume(ms(0), ms(0));
        clock.step_proposed();
        for now in (10..=2000).step_by(10) {
            clock.clock(ms(now));
        }
        assert_eq!(clock.peek(ms(2000)), FLIGHT);
        clock.step_applied();
        assert_eq!(clock.clock(ms(2010)), FLIGHT + ms(10));
    }

    #[test]
    fn a_peek_never_exceeds_the_next_reading() {
        let mut clock = LeaseClock::resume(ms(0), ms(0));
        clock.step_proposed();
        for now in (0..1000).step_by(7) {
            let peeked = clock.peek(ms(now));
            assert!(peeked <= clock.clock(ms(now)));
        }
    }

    #[test]
    fn held_it_stands_still_and_forgets_the_time() {
        let mut clock = LeaseClock::resume(ms(0), ms(0));
        clock.hold(ms(10));
        assert_eq!(clock.clock(ms(20)), ms(10));
        assert_eq!(clock.peek(ms(500)), ms(10));
        clock.release(ms(500));
        assert_eq!(clock.clock(ms(510)), ms(20));
    }

    #[test]
    fn a_monotonic_clock_that_jumps_back_only_makes_it_wait() {
        let mut clock = LeaseClock::resume(ms(0), ms(100));
        assert_eq!(clock.clock(ms(50)), ms(0));
        assert_eq!(clock.clock(ms(100)), ms(0));
        assert_eq!(clock.clock(ms(110)), ms(10));
    }
}
