//! Which slow requests are worth a line of the log: one per method and second, which says how many went without. Else a client that
//! asks about each of its thousand leases fills the log the moment the machine is busy.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// One entry for each method, and of these there are as many as etcd's API has.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    said: Mutex<BTreeMap<&'static str, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Slow {
    /// Whether to log a slow request of this method that ended now, and if so, how many were left out since the last one.
    pub(super) fn worth_a_line(&self, method: &'static str, now: Instant) -> Option<u64> {
        // Numbers only: they cannot be left half changed.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = said.get_mut(method) else {
            said.insert(method, Said { at: now, left_out: 0 });
            return Some(0);
        };
        if now.duration_since(last.at) < PAUSE {
            last.left_out += 1;
            return None;
        }
        let left_out = last.left_out;
        *last = Said { at: now, left_out: 0 };
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_one_line_a_second_and_says_what_was_left_out() {
        let slow = Slow::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(slow.worth_a_line("LeaseTimeToLive", start), Some(0));
        for ms in 0..100 {
            assert_eq!(slow.worth_a_line("LeaseTimeToLive", after(ms)), None);
        }
        assert_eq!(slow.worth_a_line("Put", after(1)), Some(0), "another method has its own");
        assert_eq!(slow.worth_a_line("LeaseTimeToLive", after(999)), None);
        assert_eq!(slow.worth_a_line("LeaseTimeToLive", after(1000)), Some(101));
        assert_eq!(slow.worth_a_line("LeaseTimeToLive", after(2000)), Some(0));
    }
}
