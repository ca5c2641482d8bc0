//! L8: what is said to be left of a lease is left, and never more than its TTL.

use super::{Evidence, Report, Said, broken};
use crate::clock::shortest;

const PROMISE: &str = "L8";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (life, told) in &evidence.told {
        let Some(lease) = evidence.history.leases.get(life) else { continue };
        for said in told {
            let (Said::Left(left) | Said::Acked(left)) = said.what else { continue };
            if left > lease.ttl {
                broken(report, PROMISE, format!("{left} left of {} for {life:?}: {said:?}", lease.ttl));
            }
            let is_read = matches!(said.what, Said::Left(_));
            if let Some(end) = lease.end.filter(|end| is_read && said.send <= end.at)
                && end.at < said.send + shortest(left.0)
                && !evidence.is_voluntary(*life, end.at)
            {
                broken(report, PROMISE, format!("{life:?} ended at {}, after {said:?}", end.at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::{MS, SEC};

    #[test]
    fn too_much_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 3 * SEC);
        hand.time_to_live(2 * SEC, 7, Some(2 * SEC));
        hand.ends(4002 * MS, 7, &[]);
        hand.is_good();
        hand.time_to_live(3 * SEC, 7, Some(2 * SEC));
        hand.breaks(PROMISE);
    }

    #[test]
    fn more_than_the_ttl_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 300 * SEC);
        hand.time_to_live(2 * SEC, 7, Some(301 * SEC));
        hand.breaks(PROMISE);
    }
}
