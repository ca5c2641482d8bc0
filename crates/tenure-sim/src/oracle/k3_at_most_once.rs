//! K3: an error is "unknown" unless it says "not done", and a request is carried out at most once.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_replica::input::Write;

use super::{Evidence, Report, broken};
use crate::history::Ask;

const PROMISE: &str = "K3";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    // Values are written once in the life of a run.
    let mut written: BTreeMap<(&Bytes, &Bytes), Vec<i64>> = BTreeMap::new();
    for (revision, commit) in &evidence.history.commits {
        for record in commit.records.iter().filter(|record| !record.is_tombstone()) {
            written.entry((&record.key, &record.value)).or_default().push(*revision);
        }
    }
    for ((key, value), revisions) in &written {
        if revisions.len() > 1 {
            broken(report, PROMISE, format!("{value:?} was put on {key:?} at {revisions:?}"));
        }
    }
    for op in evidence.history.ops.iter().filter(|op| !op.may_have_happened()) {
        let Ask::Write(Write::Put(put)) = &op.ask else { continue };
        let Some(value) = &put.value else { continue };
        if let Some(revisions) = written.get(&(&put.key, value)) {
            let answer = &op.answer;
            broken(report, PROMISE, format!("{value:?} was answered {answer:?} and put at {revisions:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_replica::effect::Failure;

    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_put_that_happens_twice_is_found() {
        let mut hand = Hand::new();
        hand.written(SEC, &[("a", Some("1"), 0)]);
        hand.put_answered(SEC / 2, "a", "1", 0, None);
        hand.is_good();
        hand.written(2 * SEC, &[("a", Some("1"), 0)]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_put_that_was_refused_and_happened_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        let answer = hand.history.ops[0].answer.as_mut().expect("it was answered");
        answer.1 = Err(Failure::TooManyRequests);
        hand.breaks(PROMISE);
    }
}
