//! L11: a key belongs to the lease of its last put, and survives the end of any other.

use super::{Evidence, Report, broken};

const PROMISE: &str = "L11";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (revision, commit) in evidence.history.commits.iter().filter(|(_, commit)| !commit.ended.is_empty()) {
        if evidence.deleted_by_client(*revision) {
            continue;
        }
        for record in &commit.records {
            let owner = evidence.versions.get(&record.key, revision - 1).map(|before| before.lease);
            if !commit.ended.iter().any(|life| Some(life.id) == owner) {
                let ended = &commit.ended;
                let what = format!("{:?} of {owner:?} went with {ended:?} at {revision}", record.key);
                broken(report, PROMISE, what);
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
    fn a_key_that_goes_with_its_old_lease_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.grant(SEC, 8, 200 * SEC);
        hand.put(SEC, "a", "1", 7);
        hand.put(SEC + SEC / 10, "b", "2", 7);
        hand.put(SEC + SEC / 5, "a", "3", 8);
        let mut other = Hand::new();
        other.history.commits.clone_from(&hand.history.commits);
        hand.ends(2 * SEC + SEC / 10, 7, &["b"]);
        hand.is_good();
        other.ends(2 * SEC + SEC / 10, 7, &["a", "b"]);
        other.breaks(PROMISE);
    }
}
