//! L10: a put with a lease either fails and writes nothing, or its key goes with the lease.

use tenure_state::key::KeyRange;

use super::{Evidence, Report, broken};

const PROMISE: &str = "L10";

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let history = evidence.history;
    for (revision, commit) in &history.commits {
        for record in commit.records.iter().filter(|record| !record.lease.is_none()) {
            let mut lives = history.leases.iter().filter(|(life, _)| life.id == record.lease).peekable();
            let known = lives.peek().is_some();
            let alive = lives.any(|(_, lease)| {
                lease.end.is_none_or(|end| match end.revision {
                    Some(end) => *revision < end,
                    None => commit.at <= end.at,
                })
            });
            if known && !alive {
                let what = format!("{record:?} was put at {} on a lease that had ended", commit.at);
                broken(report, PROMISE, what);
            }
        }
    }
    let all = KeyRange::From(bytes::Bytes::from_static(&[0]));
    for (life, lease) in &history.leases {
        let Some(end) = lease.end else { continue };
        let again = history.leases.keys().any(|other| other.id == life.id && other.nth > life.nth);
        if again {
            continue;
        }
        let revision = end.revision.unwrap_or_else(|| evidence.revision_at(end.at));
        let left = evidence.versions.range(&all, revision);
        if let Some(record) = left.iter().find(|record| record.lease == life.id) {
            broken(report, PROMISE, format!("{life:?} ended at revision {revision}, but {record:?} is left"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn a_put_on_a_dead_lease_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.put(SEC, "a", "1", 7);
        hand.ends(2 * SEC + SEC / 10, 7, &["a"]);
        hand.is_good();
        hand.put(3 * SEC, "b", "2", 7);
        hand.breaks(PROMISE);
    }

    #[test]
    fn a_key_that_stays_behind_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, SEC);
        hand.put(SEC, "a", "1", 7);
        hand.ends(2 * SEC + SEC / 10, 7, &[]);
        hand.breaks(PROMISE);
    }
}
