//! W1: a watch is sent events in the order of revisions.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W1";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        let mut last = None;
        for (at, seen) in &watch.seen {
            let Seen::Events { events, .. } = seen else { continue };
            for event in events {
                let now = event.record.at;
                if last.is_some_and(|last| now < last) {
                    broken(report, PROMISE, format!("{now} came after {last:?} at {at}: {:?}", watch.create));
                }
                last = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn the_wrong_order_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        let (first, second) = (hand.events([2]), hand.events([3]));
        hand.watch(SEC, 1, vec![first.clone(), second.clone()]);
        hand.is_good();
        hand.watch(SEC, 1, vec![second, first]);
        hand.breaks(PROMISE);
    }
}
