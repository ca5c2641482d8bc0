//! L18: time in which the member did not run ends no lease whose renewal waits in its socket.

use super::{Evidence, Report, Said, broken};
use crate::clock::{MS, shortest};
use crate::history::Outage;

const PROMISE: &str = "L18";
/// What of a pause may count: the cap of the lease clock.
const CAP: u64 = 30 * MS;

pub fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let history = evidence.history;
    for (life, told) in &evidence.told {
        let Some(end) = history.leases.get(life).and_then(|lease| lease.end) else { continue };
        // Sent, not lost, and not answered before the end.
        let waits = told.iter().any(|said| {
            let op = &history.ops[said.op];
            let renews = matches!(said.what, Said::Acked(_) | Said::Gone | Said::MaybeAcked)
                && matches!(op.ask, crate::history::Ask::Renew(_));
            renews && said.send < end.at && said.recv > end.at && !op.abandoned
        });
        let last = told.iter().filter(|said| said.recv <= end.at).rev().find_map(|said| match said.what {
            Said::Acked(left) => Some((said.send, left.0)),
            _ => None,
        });
        let (Some((send, left)), true) = (last, waits) else { continue };
        let pauses = history
            .outages
            .iter()
            .filter(|(from, to, kind)| *kind == Outage::Paused && *from < end.at && *to > send)
            .count() as u64;
        let ran = end.at - send - history.outage(send, end.at, &[Outage::Paused]) + CAP * pauses;
        if pauses > 0 && ran < shortest(left) && !evidence.is_voluntary(*life, end.at) {
            let what = format!(
                "{life:?} had {left} ns left from {send} on, the member ran for {ran} of them, and it ended at {}",
                end.at
            );
            broken(report, PROMISE, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hand::Hand;
    use super::*;
    use crate::clock::SEC;

    #[test]
    fn an_end_by_a_pause_is_found() {
        let mut hand = Hand::new();
        hand.grant(SEC, 7, 2 * SEC);
        hand.ends(6 * SEC, 7, &[]);
        hand.renew(2 * SEC, 7, None);
        hand.history.ops[1].recv = Some(6 * SEC + MS);
        hand.history.outages.push((2 * SEC, 4 * SEC, Outage::Paused));
        hand.is_good();
        hand.history.outages[0].1 = 6 * SEC - MS;
        hand.breaks(PROMISE);
    }
}
