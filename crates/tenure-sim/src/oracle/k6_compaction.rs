//! K6: a compaction never changes the answer at the compact revision and above.

use tenure_replica::effect::{Answer, Failure};
use tenure_replica::input::{Consistency, Read};
use tenure_state::refusal::Refusal;

use super::{Evidence, Report, broken};
use crate::history::Ask;

const PROMISE: &str = "K6";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for op in &evidence.history.ops {
        let Ask::Read(Read::Range(range), consistency) = &op.ask else { continue };
        let (at, Some((_, answer))) = (range.revision, &op.answer) else { continue };
        if at <= 0 {
            continue;
        }
        let recv = op.recv.unwrap_or(u64::MAX);
        match answer {
            Ok(Answer::Page(page)) if evidence.versions.range(&range.range, at) != page.records => {
                broken(report, PROMISE, format!("{range:?} answered {:?}", page.records));
            }
            Err(Failure::Refused(Refusal::Compacted)) => {
                let compacted = evidence.compacted_at_most(recv);
                if at >= compacted {
                    let what = format!("revision {at} was refused, compacted up to {compacted} at most");
                    broken(report, PROMISE, what);
                }
            }
            Err(Failure::Refused(Refusal::FutureRevision)) if *consistency == Consistency::Linearizable => {
                let known = evidence.revision_at(op.send);
                if at <= known {
                    broken(report, PROMISE, format!("revision {at} was refused as future at {known}"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    fn compacted() -> Hand {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        hand.put(3 * SEC, "c", "3", 0);
        hand.compact(4 * SEC, 3);
        hand
    }

    #[test]
    fn a_key_lost_by_compaction_is_found() {
        let mut hand = compacted();
        hand.read(5 * SEC, 3, 3, Consistency::Linearizable, &["a", "b"]);
        hand.is_good();
        hand.read(6 * SEC, 3, 3, Consistency::Linearizable, &["b"]);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_refusal_above_the_compact_revision_is_found() {
        let mut hand = compacted();
        hand.read(5 * SEC, 3, 3, Consistency::Linearizable, &["a", "b"]);
        let answer = hand.history.ops.last_mut().and_then(|op| op.answer.as_mut());
        answer.expect("it was answered").1 = Err(Failure::Refused(Refusal::Compacted));
        hand.breaks(PROMISE);
    }
}
