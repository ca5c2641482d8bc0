//! K7: all members apply the same effects. With one member: its checkpoint makes the state that it was taken of.

use super::{Evidence, Report, broken};
use crate::history::Finding;

const PROMISE: &str = "K7";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for finding in &evidence.history.findings {
        if let Finding::CheckpointDiffers { applied } = finding {
            broken(report, PROMISE, format!("the checkpoint at index {applied} makes another state"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;

    #[test]
    fn another_state_is_found() {
        let mut hand = Hand::new();
        hand.is_good();
        hand.history.findings.push(Finding::CheckpointDiffers { applied: 3 });
        hand.breaks(PROMISE);
    }
}
