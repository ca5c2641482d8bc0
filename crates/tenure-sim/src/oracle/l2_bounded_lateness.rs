//! L2: a lease that nobody renews ends within its TTL, what an outage adds, and the grace of take-overs, which is
//! bounded however many of them there are.

use super::{Evidence, Report, Said, broken};
use crate::clock::{MS, SEC, longest};
use crate::history::Outage;

const PROMISE: &str = "L2";
/// Stamp, batch and commit, with one voter and a slow disk.
const B: u64 = 1500 * MS;
/// After each outage the log first catches up.
const CATCH_UP: u64 = 300 * MS;

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let history = evidence.history;
    for (life, lease) in &history.leases {
        let end = lease.end.map_or(history.end, |end| end.at);
        let Some(told) = evidence.told.get(life) else { continue };
        let mut last = 0;
        for said in told.iter().filter(|said| said.send <= end) {
            match said.what {
                Said::Acked(_) => last = last.max(said.recv.min(end)),
                // When it was carried out, only the inside knows.
                Said::MaybeAcked => last = last.max(said.send).max(lease.renewed),
                _ => {}
            }
        }
        if last == 0 {
            continue;
        }
        let bound = latest(evidence, last, end, lease.ttl.0);
        if end > bound {
            let late = (end - bound) as f64 / 1e6;
            let what =
                format!("{life:?} of {}, renewed by {last}, ended at {end}: {late} ms late", lease.ttl);
            broken(report, PROMISE, what);
        }
    }
}

/// When a lease that was renewed last at `from` must have ended; `until` is as far as anybody looks.
pub fn latest(evidence: &Evidence<'_>, from: u64, until: u64, ttl: u64) -> u64 {
    let history = evidence.history;
    let take_overs = history.take_overs.iter().filter(|at| (from..=until).contains(*at)).count() as u64;
    let grace = ttl.min(history.grace.0);
    // An outage counts as such although it began a moment before.
    let since = from.saturating_sub(SEC);
    // The end of a crash is known to the moment; after other outages the log catches up first.
    let outages = history.outages.iter().filter(|(start, end, kind)| {
        *start < until && *end > since && !matches!(kind, Outage::Down | Outage::Unstamped)
    });
    from + longest(ttl)
        + B
        + history.any_outage(since, until)
        + CATCH_UP * outages.count() as u64
        + (grace * take_overs).min(3 * grace)
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;

    #[test]
    fn a_late_end_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 2 * SEC);
        hand.ends(3500 * MS, 7, &[]);
        hand.is_good();
        hand.ends(6 * SEC, 7, &[]);
        hand.breaks(PROMISE);
        hand.history.outages.push((2 * SEC, 5 * SEC, Outage::Paused));
        hand.is_good();
    }

    #[test]
    fn a_lease_that_take_overs_keep_alive_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.history.take_overs.extend((2..20).map(|n| n * SEC / 2));
        hand.ends(10 * SEC, 7, &[]);
        hand.breaks(PROMISE);
    }
}
