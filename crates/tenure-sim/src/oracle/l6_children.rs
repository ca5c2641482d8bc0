//! L6: a child never outlives its parent.

use super::{Evidence, Report, broken};

const PROMISE: &str = "L6";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (life, lease) in evidence.history.leases.iter().filter(|(_, lease)| !lease.parent.is_none()) {
        let Some(parent) = evidence.lineage(*life).get(1).copied() else { continue };
        let Some(parent_end) = evidence.history.leases.get(&parent).and_then(|parent| parent.end) else {
            continue;
        };
        match lease.end {
            Some(end) if end.at <= parent_end.at => {}
            end => {
                let what = format!("{life:?} ended {end:?}, its parent {parent:?} at {}", parent_end.at);
                broken(report, PROMISE, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::{Hand, life};
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_child_that_lives_on_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.grant(SEC, 8, SEC);
        hand.history.leases.get_mut(&life(8)).expect("it was granted").parent = life(7).id;
        hand.ends(2 * SEC + SEC / 10, 8, &[]);
        hand.ends(2 * SEC + SEC / 10, 7, &[]);
        hand.is_good();
        hand.ends(2 * SEC + SEC / 5, 8, &[]);
        hand.breaks(PROMISE);
    }
}
