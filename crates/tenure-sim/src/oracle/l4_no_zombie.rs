//! L4: no renewal of a lease is acknowledged that was sent after its end.

use super::{Evidence, Report, Said, broken};

const PROMISE: &str = "L4";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (life, told) in &evidence.told {
        let Some(end) = evidence.history.leases.get(life).and_then(|lease| lease.end) else { continue };
        for said in told {
            if matches!(said.what, Said::Acked(left) if left.0 > 0) && said.send > end.at {
                broken(
                    report,
                    PROMISE,
                    format!("{life:?} ended at {}, acknowledged after: {said:?}", end.at),
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
    fn an_acknowledgement_after_the_end_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.ends(2 * SEC, 7, &[]);
        hand.renew(3 * SEC, 7, None);
        hand.is_good();
        hand.renew(4 * SEC, 7, Some(SEC));
        hand.breaks(PROMISE);
    }
}
