//! W6: a note of progress at a revision says that all up to there was sent.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W6";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        // All below was sent, as far as was said.
        let mut noted = 0;
        let mut next = watch.create.start;
        for (at, seen) in &watch.seen {
            match seen {
                Seen::Created { revision } if next == 0 => next = revision + 1,
                Seen::Events { events, .. } => {
                    for event in events {
                        let revision = event.record.at.main.0;
                        if revision <= noted {
                            let what = format!("{revision} came after the note of {noted}, at {at}");
                            broken(report, PROMISE, what);
                        }
                        next = revision + 1;
                    }
                }
                Seen::Progress { revision, .. } => {
                    if let Some(missing) = evidence.events(&watch.create, next, *revision).first() {
                        let what = format!("{missing:?} was not sent by the note of {revision}, at {at}");
                        broken(report, PROMISE, what);
                    }
                    noted = noted.max(*revision);
                    next = next.max(revision + 1);
                }
                _ => {}
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
    fn a_note_before_its_events_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        let events = hand.events([2]);
        let note = Seen::Progress { revision: 2, whole_stream: false };
        hand.watch(SEC, 1, vec![events.clone(), note.clone()]);
        hand.is_good();
        hand.watch(SEC, 1, vec![note, events]);
        hand.breaks(PROMISE);
    }
}
