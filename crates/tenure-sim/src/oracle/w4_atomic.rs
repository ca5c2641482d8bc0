//! W4: the events of one revision come in one response.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W4";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        let mut before = None;
        for (at, seen) in &watch.seen {
            let Seen::Events { events, .. } = seen else { continue };
            let (Some(first), Some(last)) = (events.first(), events.last()) else { continue };
            if before == Some(first.record.at.main) {
                let what =
                    format!("revision {} was split, at {at}: {:?}", first.record.at.main, watch.create);
                broken(report, PROMISE, what);
            }
            before = Some(last.record.at.main);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_revision_in_two_responses_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.put(SEC, "a", "1", 7);
        hand.put(SEC, "b", "2", 7);
        let end = hand.ends(2 * SEC + SEC / 10, 7, &["a", "b"]).expect("it had keys");
        let seen = hand.events([end]);
        hand.watch(SEC, end, vec![seen.clone()]);
        hand.is_good();
        let Seen::Events { revision, events } = seen else { panic!("they are events") };
        let part = |part: &[_]| Seen::Events { revision, events: part.to_vec() };
        hand.watch(SEC, end, vec![part(&events[..1]), part(&events[1..])]);
        hand.breaks(PROMISE);
    }
}
