//! L12: once a revoke is acknowledged, the keys are gone and the lease is not renewed or revoked again.

use tenure_state::key::KeyRange;

use super::{Evidence, Report, Said, broken};

const PROMISE: &str = "L12";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let all = KeyRange::From(bytes::Bytes::from_static(&[0]));
    for (life, told) in &evidence.told {
        let revoked = told.iter().find_map(|said| match said.what {
            Said::Revoked { revision } => Some((said.op, said.recv, revision)),
            _ => None,
        });
        let Some((op, recv, revision)) = revoked else { continue };
        let left = evidence.versions.range(&all, revision);
        if let Some(record) = left.iter().find(|record| record.lease == life.id) {
            broken(report, PROMISE, format!("{life:?} was revoked at {revision}, but {record:?} is left"));
        }
        for said in told.iter().filter(|said| said.op != op && said.send > recv) {
            if matches!(said.what, Said::Acked(_) | Said::Revoked { .. }) {
                broken(report, PROMISE, format!("{life:?} was revoked by {recv}, then {said:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::{MS, SEC};

    fn revoked() -> Hand {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 9 * SEC);
        hand.put(SEC, "a", "1", 7);
        hand.ends(2 * SEC + MS, 7, &["a"]);
        hand.revoke(2 * SEC, 7, 3);
        hand
    }

    #[test]
    fn a_renewal_after_it_is_found() {
        let mut hand = revoked();
        hand.is_good();
        hand.renew(3 * SEC, 7, Some(SEC));
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_key_that_is_left_is_found() {
        let mut hand = revoked();
        hand.put(2 * SEC, "b", "2", 7);
        hand.revoke(3 * SEC, 7, 4);
        hand.breaks(PROMISE);
    }
}
