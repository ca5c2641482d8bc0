//! L3: all keys of a lease and of those below it vanish at one revision.

use tenure_state::ids::LeaseId;
use tenure_state::key::KeyRange;

use super::{Evidence, Report, broken};
use crate::history::LeaseLife;

const PROMISE: &str = "L3";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let all = KeyRange::From(bytes::Bytes::from_static(&[0]));
    for (revision, commit) in &evidence.history.commits {
        let deletes_only = commit.records.iter().all(|record| record.is_tombstone());
        if !deletes_only || evidence.deleted_by_client(*revision) {
            continue;
        }
        // Whose keys went, nobody having asked for it.
        let mut ended: Vec<LeaseId> = commit.ended.iter().map(|life| life.id).collect();
        for record in &commit.records {
            let before = evidence.versions.get(&record.key, revision - 1);
            ended.extend(before.map(|before| before.lease).filter(|lease| !lease.is_none()));
        }
        let below = |lease: LeaseId| {
            let life = evidence.history.leases.keys().rev().find(|life| life.id == lease).copied();
            let lineage = evidence.lineage(life.unwrap_or(LeaseLife { id: lease, nth: 1 }));
            lineage.iter().any(|above| ended.contains(&above.id))
        };
        let left = evidence.versions.range(&all, *revision);
        if let Some(record) = left
            .iter()
            .find(|record| !record.lease.is_none() && ended.contains(&record.lease) && below(record.lease))
        {
            let what = format!("at revision {revision} leases {ended:?} ended, but {record:?} is left");
            broken(report, PROMISE, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::{Hand, life};
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn keys_that_go_in_two_revisions_are_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 2 * SEC);
        hand.put(SEC, "a", "1", 7);
        hand.put(SEC + SEC / 10, "b", "2", 7);
        let mut other = Hand::new();
        other.history.commits.clone_from(&hand.history.commits);
        hand.ends(4 * SEC, 7, &["a", "b"]);
        hand.is_good();
        other.grant(SEC, 7, 2 * SEC);
        other.ends(4 * SEC, 7, &["a"]);
        let second = other.written(4 * SEC, &[("b", None, 0)]);
        other.history.commits.get_mut(&second).expect("it was just written").ended.push(life(7));
        other.breaks(PROMISE);
    }
}
