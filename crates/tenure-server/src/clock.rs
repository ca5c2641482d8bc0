//! The only file that reads the time for the replica.

use std::time::{Duration, Instant};

use tenure_state::ids::Nanos;

/// CLOCK_MONOTONIC, counted from an epoch of this process, so that nobody can mistake it for a date.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monotonic {
    epoch: Instant,
}

impl Monotonic {
    pub(crate) fn start() -> Monotonic {
        Monotonic { epoch: Instant::now() }
    }

    pub(crate) fn now(&self) -> Nanos {
        // 584 years fit.
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// How long it is from now until `at`; zero if that is past.
    pub(crate) fn until(&self, at: Nanos) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.now()).0)
    }
}
