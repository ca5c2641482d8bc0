//! L1: a lease does not end before the deadline of any acknowledged grant or renewal, and whoever holds one is not
//! told that it is gone before it is.

use super::{Evidence, Report, Said, broken};
use crate::clock::shortest;

const PROMISE: &str = "L1";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (life, told) in &evidence.told {
        let end = evidence.history.leases.get(life).and_then(|lease| lease.end);
        let mut acked_by = u64::MAX;
        for said in told {
            match said.what {
                Said::Acked(ttl) => {
                    acked_by = acked_by.min(said.recv);
                    let deadline = said.send + shortest(ttl.0);
                    if let Some(end) = end.filter(|end| said.send <= end.at && end.at < deadline)
                        && !evidence.is_voluntary(*life, end.at)
                    {
                        let early = (deadline - end.at) as f64 / 1e6;
                        let what = format!("{life:?} ended at {}, {early} ms early: {said:?}", end.at);
                        broken(report, PROMISE, what);
                    }
                }
                Said::Gone if acked_by < said.send && end.is_none_or(|end| end.at > said.recv) => {
                    broken(report, PROMISE, format!("{life:?} did not end, but is gone: {said:?}"));
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
    use crate::clock::{MS, SEC};

    #[test]
    fn an_early_end_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 2 * SEC);
        hand.renew(2 * SEC, 7, Some(2 * SEC));
        hand.ends(4 * SEC, 7, &[]);
        hand.is_good();
        hand.ends(3990 * MS, 7, &[]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn an_early_end_by_request_is_good() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 2 * SEC);
        hand.revoke(1500 * MS, 7, 1);
        hand.ends(1501 * MS, 7, &[]);
        hand.is_good();
    }

    #[test]
    fn a_lease_that_was_forgotten_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 200 * SEC);
        hand.renew(2 * SEC, 7, None);
        hand.breaks(PROMISE);
    }
}
