//! K2: what was acknowledged is durable. Nothing that was answered is missing at the end, and a disk that lost only
//! what was never synced is good enough for a start, while one that lost more is refused.

use super::{Evidence, Report, broken, revision_of};
use crate::history::Finding;

const PROMISE: &str = "K2";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for finding in &evidence.history.findings {
        match finding {
            Finding::Refused { why } => broken(report, PROMISE, format!("an honest disk was refused: {why}")),
            Finding::DamageAccepted { what } => {
                broken(report, PROMISE, format!("damage to what was synced was not noticed: {what}"));
            }
            _ => {}
        }
    }
    let Some((last, living)) = &evidence.history.left else { return };
    let all = tenure_state::key::KeyRange::From(bytes::Bytes::from_static(&[0]));
    for op in &evidence.history.ops {
        if let Some(revision) = revision_of(op).filter(|revision| revision > last) {
            broken(report, PROMISE, format!("revision {revision} was answered, the end is at {last}"));
        }
    }
    if evidence.versions.range(&all, *last) != *living {
        broken(report, PROMISE, format!("what is left at revision {last} is not what was written"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;
    use crate::history::Versions;

    #[test]
    fn an_answered_put_that_is_gone_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        let living = Versions::of(&hand.history).get(b"a", 2).cloned();
        hand.history.left = Some((2, living.into_iter().collect()));
        hand.is_good();
        hand.history.left = Some((1, Vec::new()));
        hand.breaks(PROMISE);
    }

    #[test]
    fn damage_that_is_taken_for_good_is_found() {
        let mut hand = Hand::new();
        hand.history.findings.push(Finding::DamageAccepted { what: "byte 7".into() });
        hand.breaks(PROMISE);
    }
}
