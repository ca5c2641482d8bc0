//! K4: a serializable read shows some past state, and over one connection never an older one than before.

use std::collections::BTreeMap;

use tenure_replica::effect::Answer;
use tenure_replica::input::{Consistency, Read};

use super::{Evidence, Report, broken};
use crate::history::Ask;

const PROMISE: &str = "K4";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let mut reached: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
    for op in &evidence.history.ops {
        let Ask::Read(Read::Range(range), Consistency::Serializable) = &op.ask else { continue };
        let Some((_, Answer::Page(page))) = op.ok() else { continue };
        if evidence.versions.range(&range.range, page.at.0) != page.records {
            broken(report, PROMISE, format!("{range:?} is no state of revision {}", page.at));
        }
        if range.revision > 0 {
            continue;
        }
        let (recv, before) = reached.entry(op.connection).or_default();
        if op.send > *recv && page.at.0 < *before {
            broken(report, PROMISE, format!("revision {} after {before} on one connection", page.at));
        }
        (*recv, *before) = (op.recv.unwrap_or(*recv), page.at.0.max(*before));
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn the_past_is_allowed_and_going_back_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        hand.read(3 * SEC, 0, 2, Consistency::Serializable, &["a"]);
        hand.read(4 * SEC, 0, 3, Consistency::Serializable, &["a", "b"]);
        hand.is_good();
        hand.read(5 * SEC, 0, 2, Consistency::Serializable, &["a"]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_state_that_never_was_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        hand.read(3 * SEC, 0, 3, Consistency::Serializable, &["b"]);
        hand.breaks(PROMISE);
    }
}
