//! W2: a watch is sent no event twice, also where it goes on after a broken connection.

use std::collections::BTreeSet;

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W2";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let watches = &evidence.history.watches;
    for (index, watch) in watches.iter().enumerate() {
        let mut known = BTreeSet::new();
        // The whole chain that it resumes, oldest last.
        let mut chain = vec![index];
        while let Some(before) = watches[*chain.last().expect("it starts with one")].resumes {
            chain.push(before);
        }
        for part in chain.into_iter().rev() {
            for (at, seen) in &watches[part].seen {
                let Seen::Events { events, .. } = seen else { continue };
                for event in events {
                    if !known.insert(event.record.at) {
                        let what = format!("{} came twice, at {at}: {:?}", event.record.at, watch.create);
                        broken(report, PROMISE, what);
                    }
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
    fn an_event_that_comes_twice_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        let (first, second) = (hand.events([2]), hand.events([3]));
        let before = hand.watch(SEC, 1, vec![first]);
        let resumed = hand.watch(3 * SEC, 3, vec![second]);
        hand.history.watches[before].over = Some(3 * SEC);
        hand.history.watches[resumed].resumes = Some(before);
        hand.is_good();
        let again = hand.events([2, 3]);
        hand.history.watches[resumed].seen = vec![(4 * SEC, again)];
        hand.breaks(PROMISE);
    }
}
