//! W5: a watch from a revision on is sent everything from there on, and one that goes on where another broke off
//! misses nothing in between.

use super::{Evidence, Report, broken};
use crate::history::Seen;

const PROMISE: &str = "W5";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for watch in &evidence.history.watches {
        let created = watch.seen.iter().find_map(|(_, seen)| match seen {
            Seen::Created { revision } => Some(*revision),
            _ => None,
        });
        let from = if watch.create.start > 0 { Some(watch.create.start) } else { created.map(|at| at + 1) };
        let first = watch.seen.iter().find_map(|(_, seen)| match seen {
            Seen::Events { events, .. } => events.first().map(|event| event.record.at.main.0),
            _ => None,
        });
        let (Some(from), Some(first)) = (from, first) else { continue };
        if let Some(lost) = evidence.events(&watch.create, from, first - 1).first() {
            broken(report, PROMISE, format!("{lost:?} was skipped at the start: {:?}", watch.create));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_start_that_skips_is_found() {
        let mut hand = Hand::new();
        for n in 1..4 {
            hand.put(n * SEC, "a", &n.to_string(), 0);
        }
        let rest = hand.events([3, 4]);
        hand.watch(4 * SEC, 3, vec![rest.clone()]);
        hand.is_good();
        hand.watch(4 * SEC, 2, vec![rest]);
        hand.breaks(PROMISE);
    }
}
