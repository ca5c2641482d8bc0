//! The time that a holder counts its lease by. It must run at least as fast as the server's: CLOCK_BOOTTIME also counts the time
//! that a machine slept, which CLOCK_MONOTONIC, and so `std::time::Instant` and every tokio timer, does not.

use std::{fmt, time::Duration};

/// An instant on this machine's boot clock; means nothing on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The kernel promises both: the boot clock starts at 0, and nanoseconds stay below a second.
        Moment(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Elsewhere the best that std offers. It may stand still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Moment {
        use std::{sync::OnceLock, time::Instant};
        static START: OnceLock<Instant> = OnceLock::new();
        Moment(START.get_or_init(Instant::now).elapsed())
    }

    pub(crate) fn plus(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }

    pub(crate) fn until(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// The holder's clock may be slow against the server's by this part: one hundredth is far more than any quartz.
const DRIFT_DIVISOR: u32 = 100;

/// For the reading of the clocks and the rounding of the numbers.
const MARGIN: Duration = Duration::from_millis(5);

/// Until when a holder may act on its lease without asking anybody.
///
/// It counts from the *sending* of the renewal that was answered, never from the answer: the server may have started the lease's
/// time at any moment in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Moment);

impl Deadline {
    pub(crate) fn new(sent_at: Moment, answered: Duration) -> Deadline {
        Deadline(sent_at.plus((answered - answered / DRIFT_DIVISOR).saturating_sub(MARGIN)))
    }

    /// What is left; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        Moment::now().until(self.0)
    }

    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}s left", self.remaining().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_counts_from_the_sending_and_keeps_a_margin() {
        let sent = Moment(Duration::from_secs(100));
        let deadline = Deadline::new(sent, Duration::from_secs(10));
        assert_eq!(deadline.0, Moment(Duration::from_millis(109_895)));
        assert_eq!(Deadline::new(sent, Duration::from_millis(1)).0, sent);
    }

    #[test]
    fn the_clock_moves_and_remaining_stops_at_zero() {
        let now = Moment::now();
        assert!(Moment::now() >= now);
        assert!(Deadline::new(now, Duration::ZERO).has_passed());
        assert!(!Deadline::new(now, Duration::from_secs(60)).has_passed());
    }
}
