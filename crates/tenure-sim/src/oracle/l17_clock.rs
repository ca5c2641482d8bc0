//! L17: the lease clock never goes back in the log, and never runs faster than real time.

use super::{Evidence, Report, broken};
use crate::clock::RHO_PPM;
use crate::history::Finding;

const PROMISE: &str = "L17";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for finding in &evidence.history.findings {
        if let Finding::ClockWentBack { before, after } = finding {
            broken(report, PROMISE, format!("the lease clock went from {before} back to {after}"));
        }
    }
    // How far the clock is ahead of the fastest allowed one may never grow.
    let mut least = i128::MAX;
    for stamp in &evidence.history.stamps {
        let allowed = i128::from(stamp.at) + i128::from(stamp.at) * i128::from(RHO_PPM) / 1_000_000;
        let ahead = i128::from(stamp.clock.0) - allowed;
        // Both clocks count whole nanoseconds.
        if ahead > least.saturating_add(1_000) {
            let fast = (ahead - least) as f64 / 1e6;
            broken(report, PROMISE, format!("the lease clock gained {fast} ms by {}", stamp.at));
        }
        least = least.min(ahead);
    }
}

#[cfg(test)]
mod tests {
    use tenure_state::ids::Nanos;

    use super::super::hand::Hand;
    use super::*;
    use crate::clock::{MS, SEC};
    use crate::history::Stamp;

    #[test]
    fn a_clock_that_is_too_fast_is_found() {
        let mut hand = Hand::new();
        hand.history.stamps.push(Stamp { at: SEC, clock: Nanos(70 * SEC) });
        hand.history.stamps.push(Stamp { at: 3 * SEC, clock: Nanos(72 * SEC) });
        hand.is_good();
        hand.history.stamps.push(Stamp { at: 4 * SEC, clock: Nanos(73 * SEC + 10 * MS) });
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_clock_that_goes_back_is_found() {
        let mut hand = Hand::new();
        let finding = Finding::ClockWentBack { before: Nanos(9), after: Nanos(8) };
        hand.history.findings.push(finding);
        hand.breaks(PROMISE);
    }
}
