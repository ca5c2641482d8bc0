//! W3: between two events that a watch is sent there is no third one that it should have been sent. What it is sent
//! is what happened.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W3";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        let mut got = Vec::new();
        for (_, seen) in &watch.seen {
            if let Seen::Events { events, .. } = seen {
                got.extend(events.iter().map(|event| &event.record));
            }
        }
        let (Some(first), Some(last)) = (got.first(), got.last()) else { continue };
        let expected = evidence.events(&watch.create, first.at.main.0, last.at.main.0);
        if got != expected {
            let lost = expected.iter().find(|record| !got.contains(record));
            let extra = got.iter().find(|record| !expected.contains(record));
            let what = format!("lost {lost:?}, invented {extra:?}: {:?}", watch.create);
            broken(report, PROMISE, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_gap_is_found() {
        let mut hand = Hand::new();
        for n in 1..4 {
            hand.put(n * SEC, "a", &n.to_string(), 0);
        }
        let all = hand.events([2, 3, 4]);
        hand.watch(SEC, 1, vec![all]);
        hand.is_good();
        let gap = hand.events([2, 4]);
        hand.watch(SEC, 1, vec![gap]);
        hand.breaks(PROMISE);
    }
}
