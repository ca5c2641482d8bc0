//! W9: a slow or resumed watch gets every event, or is told what was compacted. A watch whose reader keeps up has
//! everything by the end.

use super::{Evidence, Report, broken};
use crate::clock::SEC;
use crate::history::Seen;

const PROMISE: &str = "W9";
/// A reader that keeps up has an event this long after it happened.
const SETTLED: u64 = 2 * SEC;

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        let mut next = watch.create.start;
        let mut ended = false;
        for (at, seen) in &watch.seen {
            match seen {
                Seen::Created { revision } if next == 0 => next = revision + 1,
                Seen::Events { events, .. } => {
                    let Some(first) = events.first() else { continue };
                    let until = first.record.at.main.0 - 1;
                    if let Some(lost) = evidence.events(&watch.create, next, until).first() {
                        broken(report, PROMISE, format!("{lost:?} was left out at {at}: {:?}", watch.create));
                    }
                    next = events.last().map_or(next, |event| event.record.at.main.0 + 1);
                }
                Seen::Compacted { revision } => {
                    ended = true;
                    let asked = evidence.compacted_at_most(*at);
                    if (next > 0 && *revision <= next) || *revision > asked {
                        let what =
                            format!("cancelled at {revision}, needed {next}, compacted {asked} at most");
                        broken(report, PROMISE, what);
                    }
                }
                Seen::Cancelled | Seen::Refused => ended = true,
                _ => {}
            }
        }
        let settled = evidence.history.end.saturating_sub(SETTLED);
        if watch.keeps_up && watch.over.is_none() && !ended && next > 0 && watch.sent < settled {
            let due = evidence.revision_at(settled);
            if let Some(lost) = evidence.events(&watch.create, next, due).first() {
                broken(report, PROMISE, format!("{lost:?} never came: {:?}", watch.create));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;

    #[test]
    fn a_silent_gap_is_found() {
        let mut hand = Hand::new();
        for n in 1..5 {
            hand.put(n * SEC, "a", &n.to_string(), 0);
        }
        hand.compact(6 * SEC, 4);
        let late = hand.watch(7 * SEC, 2, vec![Seen::Compacted { revision: 4 }]);
        hand.is_good();
        hand.history.watches[late].seen = vec![(8 * SEC, hand.events([4, 5]))];
        hand.breaks(PROMISE);
    }

    #[test]
    fn an_event_that_never_comes_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "a", "2", 0);
        let first = hand.events([2]);
        hand.watch(SEC, 1, vec![first]);
        hand.breaks(PROMISE);
    }
}
