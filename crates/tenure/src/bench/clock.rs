//! The one place where this program reads the time: nanoseconds since the first call, on a clock that never goes back. A plain number
//! fits into a key's value, an array of 100,000 and a histogram alike.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanos(START.get_or_init(Instant::now).elapsed())
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// For the report only: when it was measured.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns when `now_ns` has passed `at_ns`; at once if it has already.
pub async fn sleep_until(at_ns: u64) {
    let now = now_ns();
    if at_ns > now {
        tokio::time::sleep(Duration::from_nanos(at_ns - now)).await;
    }
}
