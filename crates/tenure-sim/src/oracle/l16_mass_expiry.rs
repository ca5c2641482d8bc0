//! L16: very many leases that are due together all end soon, and those that are renewed meanwhile are not starved.

use tenure_replica::effect::Answer;
use tenure_state::ids::LeaseId;

use super::l2_bounded_lateness::latest;
use super::{Evidence, Report, broken};
use crate::clock::SEC;
use crate::history::Ask;

const PROMISE: &str = "L16";
/// Leases that end in a second, at least.
const RATE: u64 = 5_000;

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let history = evidence.history;
    for mass in &history.masses {
        let count = mass.all.len() as u64;
        for life in mass.all.iter().filter(|life| !mass.survivors.contains(life)) {
            let Some(lease) = history.leases.get(life) else { continue };
            let end = lease.end.map_or(history.end, |end| end.at);
            let from = mass.given_up.max(lease.renewed);
            let bound = latest(evidence, from, end, lease.ttl.0) + count * SEC / RATE;
            if end > bound {
                broken(report, PROMISE, format!("{life:?}, one of {count}, ended at {end}, due by {bound}"));
            }
        }
        // Whoever came in time is not told that it came too late.
        let Some(first) = mass.survivors.first() else { continue };
        // When the last renewal was sent that was answered, and whom it found alive.
        let mut before: Option<(u64, Vec<LeaseId>)> = None;
        for op in &history.ops {
            let (Ask::Renew(ids), Some((_, Answer::Renewed(renewed)))) = (&op.ask, op.ok()) else {
                continue;
            };
            if ids.first() != Some(&first.id) {
                continue;
            }
            let ttl = history.leases.get(first).map_or(0, |lease| lease.ttl.0);
            if let Some((sent, alive)) = &before
                && op.send < sent + ttl / 2
                && renewed.iter().any(|renewed| renewed.remaining.is_none() && alive.contains(&renewed.id))
            {
                let text = format!("a renewal in time, sent at {}, found a lease gone", op.send);
                broken(report, PROMISE, text);
            }
            let alive = renewed.iter().filter(|renewed| renewed.remaining.is_some());
            before = Some((op.send, alive.map(|renewed| renewed.id).collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::{Hand, life};
    use super::*;
    use crate::history::Mass;

    fn masses() -> Hand {
        let mut hand = Hand::new();
        for id in 1..=4 {
            hand.grant(SEC, id, 2 * SEC);
        }
        for id in 2..=4 {
            hand.ends(3 * SEC + SEC / 10, id, &[]);
        }
        hand.renew(2 * SEC, 1, Some(2 * SEC));
        hand.history.masses.push(Mass {
            all: (1..=4).map(life).collect(),
            survivors: vec![life(1)],
            given_up: SEC,
        });
        hand.ends(4 * SEC + SEC / 10, 1, &[]);
        hand
    }

    #[test]
    fn one_that_is_left_over_is_found() {
        let mut hand = masses();
        hand.is_good();
        hand.ends(9 * SEC, 4, &[]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_survivor_that_is_starved_is_found() {
        let mut hand = masses();
        hand.renew(2 * SEC + SEC / 2, 1, None);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_lease_that_was_gone_before_is_not_starved_again() {
        let mut hand = masses();
        // Found gone two seconds after it was renewed, which is late, and again soon after.
        hand.renew(4 * SEC + SEC / 2, 1, None);
        hand.renew(4 * SEC + SEC, 1, None);
        assert!(hand.report().iter().all(|violation| violation.promise != PROMISE));
    }
}
