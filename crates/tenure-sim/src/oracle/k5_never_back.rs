//! K5: revisions never go back and never fork.

use tenure_replica::input::Consistency;

use super::{Evidence, Report, broken};
use crate::history::{Ask, Finding};

const PROMISE: &str = "K5";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for finding in &evidence.history.findings {
        if let Finding::Fork { revision, what } = finding {
            broken(report, PROMISE, format!("revision {revision} is two things: {what}"));
        }
    }
    // A member that has just started may show a past state to whoever asked for no more than that.
    let sure = evidence
        .history
        .ops
        .iter()
        .filter(|op| op.ok().is_some() && !matches!(op.ask, Ask::Read(_, Consistency::Serializable)));
    let mut by_recv = Vec::new();
    let mut by_send = Vec::new();
    for op in sure {
        let (header, _) = op.ok().expect("only those were kept");
        by_recv.push((op.recv.unwrap_or(u64::MAX), header.revision.0));
        by_send.push((op.send, header.revision.0));
    }
    by_recv.sort_unstable();
    by_send.sort_unstable();
    let mut seen = 0;
    let mut answered = by_recv.into_iter().peekable();
    for (send, revision) in by_send {
        while let Some((_, before)) = answered.next_if(|(at, _)| *at < send) {
            seen = seen.max(before);
        }
        if revision < seen {
            broken(report, PROMISE, format!("a header says {revision} after {seen}, sent at {send}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_state::ids::Revision;

    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn going_back_is_found() {
        let mut hand = Hand::new();
        hand.put(SEC, "a", "1", 0);
        hand.put(2 * SEC, "b", "2", 0);
        hand.is_good();
        hand.history.ops[1].answer.as_mut().expect("it was answered").0.revision = Revision(1);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_fork_is_found() {
        let mut hand = Hand::new();
        hand.history.findings.push(Finding::Fork { revision: 7, what: "a put and a delete".into() });
        hand.breaks(PROMISE);
    }
}
