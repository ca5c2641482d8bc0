//! After all faults ended: a put, a grant, a watch event and an expiry happen in time.

use super::{Evidence, Report, broken};
use crate::history::Finding;

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for finding in &evidence.history.findings {
        if let Finding::Stuck { what } = finding {
            broken(report, "liveness", format!("after all faults ended this did not happen: {what}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;

    #[test]
    fn what_never_happens_is_found() {
        let mut hand = Hand::new();
        hand.is_good();
        hand.history.findings.push(Finding::Stuck { what: "a put".into() });
        hand.breaks("liveness");
    }
}
