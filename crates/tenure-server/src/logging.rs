//! Log lines: made by `tracing`, written by a thread of their own.

use std::sync::atomic::{AtomicU64, Ordering};

static LINES_DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that nobody took in time, since the process started.
pub(crate) fn lines_dropped() -> u64 {
    LINES_DROPPED.load(Ordering::Relaxed)
}
