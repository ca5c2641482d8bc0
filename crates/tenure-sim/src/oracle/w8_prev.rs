//! W8: the version before an event is right or absent; absent only for a key that was created, or where it was
//! compacted.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W8";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in evidence.history.watches.iter().filter(|watch| watch.create.prev) {
        for (at, seen) in &watch.seen {
            let Seen::Events { events, .. } = seen else { continue };
            for event in events {
                let revision = event.record.at.main.0;
                let before = evidence.versions.get(&event.record.key, revision - 1);
                let right = match &event.prev {
                    Some(prev) => before == Some(prev),
                    None => before.is_none() || revision <= evidence.compacted_at_most(*at),
                };
                if !right {
                    let what = format!("before {:?} was {before:?}, sent {:?}", event.record, event.prev);
                    broken(report, PROMISE, what);
                }
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
    fn a_missing_version_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "a", "2", 0);
        let events = hand.events([2, 3]);
        hand.watch(SEC, 1, vec![events.clone()]);
        hand.is_good();
        let Seen::Events { revision, mut events } = events else { panic!("they are events") };
        events[1].prev = None;
        hand.watch(SEC, 1, vec![Seen::Events { revision, events }]);
        hand.breaks(PROMISE);
    }
}
