//! W7: nothing from before its start reaches a watch: no event, and no note of progress.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W7";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in evidence.history.watches.iter().filter(|watch| watch.create.start > 0) {
        let start = watch.create.start;
        for (at, seen) in &watch.seen {
            let early = match seen {
                Seen::Events { events, .. } => {
                    events.iter().map(|event| event.record.at.main.0).find(|revision| *revision < start)
                }
                Seen::Progress { revision, .. } => Some(*revision).filter(|revision| *revision < start),
                _ => None,
            };
            if let Some(revision) = early {
                broken(
                    report,
                    PROMISE,
                    format!("{revision} reached a watch from {start} on, at {at}: {seen:?}"),
                );
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
    fn what_was_before_the_start_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        let events = hand.events([3]);
        hand.watch(SEC, 3, vec![events]);
        hand.is_good();
        hand.watch(SEC, 9, vec![Seen::Progress { revision: 3, whole_stream: true }]);
        hand.breaks(PROMISE);
    }
}
