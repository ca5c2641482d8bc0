//! L9: a lease that somebody was told is gone is never alive again.

use super::{Evidence, Report, Said, broken};

const PROMISE: &str = "L9";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (life, told) in &evidence.told {
        // Being gone counts only of a lease that was there.
        let first_acked =
            told.iter().filter(|said| matches!(said.what, Said::Acked(_))).map(|said| said.recv);
        let granted = evidence.history.leases.contains_key(life).then(|| first_acked.min()).flatten();
        let mut gone = u64::MAX;
        for said in told {
            match said.what {
                Said::Gone | Said::Revoked { .. } if granted.is_some_and(|granted| granted < said.send) => {
                    gone = gone.min(said.recv);
                }
                Said::Acked(_) | Said::Left(_) if said.send > gone => {
                    broken(report, PROMISE, format!("{life:?} was gone by {gone}, then {said:?}"));
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
    fn a_lease_that_comes_back_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.ends(2 * SEC, 7, &[]);
        hand.time_to_live(3 * SEC, 7, None);
        hand.is_good();
        hand.time_to_live(4 * SEC, 7, Some(SEC));
        hand.breaks(PROMISE);
    }
}
