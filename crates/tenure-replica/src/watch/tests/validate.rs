//! The promises about watches, each a function from what a client saw to a verdict, and each shown to reject a
//! history that breaks it. The names are those of the guarantees.

use std::collections::BTreeSet;

use tenure_state::ids::Revision;
use tenure_state::record::Event;

use super::world::{History, Seen};

type Verdict = Result<(), String>;

/// Events come in the order of history.
pub(super) fn ordered(watch: &History) -> Verdict {
    let places: Vec<_> = watch.events().map(|event| event.record.at).collect();
    match places.windows(2).find(|pair| pair[0] > pair[1]) {
        Some(pair) => Err(format!("broke Ordered: {:?} before {:?}", pair[0], pair[1])),
        None => Ok(()),
    }
}

/// No event comes twice.
pub(super) fn unique(watch: &History) -> Verdict {
    let mut seen = BTreeSet::new();
    match watch.events().find(|event| !seen.insert(event.record.at)) {
        Some(event) => Err(format!("broke Unique: {:?} twice", event.record.at)),
        None => Ok(()),
    }
}

/// The events of a revision come in one response.
pub(super) fn atomic(watch: &History) -> Verdict {
    let mut last = None;
    for seen in &watch.seen {
        let Seen::Events { events, .. } = seen else { continue };
        let revision = |event: Option<&Event>| event.map(|event| event.record.at.main);
        if last.is_some() && last == revision(events.first()) {
            return Err(format!("broke Atomic: {last:?} in two responses"));
        }
        last = revision(events.last());
    }
    Ok(())
}

/// Nothing that was asked for is missing, up to the last event and in the end up to `complete`.
pub(super) fn reliable(watch: &History, log: &[Event], complete: Option<Revision>) -> Verdict {
    let last = watch.events().last().map(|event| event.record.at.main);
    let upto = complete.or(last).unwrap_or(Revision::ZERO);
    let wanted: Vec<_> = log
        .iter()
        .filter(|event| watch.wants(event) && event.record.at.main <= upto)
        .map(|event| &event.record)
        .collect();
    let got: Vec<_> = watch.events().map(|event| &event.record).collect();
    if got == wanted {
        return Ok(());
    }
    let at = |records: &[&std::sync::Arc<tenure_state::record::Record>]| -> Vec<_> {
        records.iter().map(|record| (record.at.main.0, record.at.sub)).collect()
    };
    Err(format!("broke Reliable: got {:?} of {:?}", at(&got), at(&wanted)))
}

/// Nothing from before the start; and who resumes behind the last event misses nothing, which is `reliable`.
pub(super) fn resumable(watch: &History) -> Verdict {
    match watch.events().find(|event| event.record.at.main < watch.start) {
        Some(event) => Err(format!("broke Resumable: {:?} before {:?}", event.record.at, watch.start)),
        None => Ok(()),
    }
}

/// After a note, all up to its revision was there and nothing up to it comes; and none is for a time before the
/// start.
pub(super) fn bookmarkable(watch: &History, log: &[Event]) -> Verdict {
    let mut last = Revision::ZERO;
    let mut noted = Revision::ZERO;
    for seen in &watch.seen {
        match seen {
            Seen::Events { header, events, .. } => {
                let (first, end) = (events[0].record.at.main, events[events.len() - 1].record.at.main);
                if first <= noted {
                    return Err(format!("broke Bookmarkable: {first} after a note of {noted}"));
                }
                if *header < end {
                    return Err(format!("broke Bookmarkable: header {header} on an event of {end}"));
                }
                last = end;
            }
            Seen::Note { revision } => {
                if watch.create.start > 0 && revision.0 < watch.create.start {
                    return Err(format!("broke Bookmarkable: {revision} noted before the start"));
                }
                if *revision < noted {
                    return Err(format!("broke Bookmarkable: {revision} after a note of {noted}"));
                }
                let missing = |event: &&Event| {
                    watch.wants(event) && event.record.at.main > last && event.record.at.main <= *revision
                };
                if let Some(event) = log.iter().find(missing) {
                    return Err(format!(
                        "broke Bookmarkable: {revision} noted without {:?}",
                        event.record.at
                    ));
                }
                noted = *revision;
            }
            Seen::Cancelled | Seen::Compacted { .. } => {}
        }
    }
    Ok(())
}

/// What was there before is exact; or it is missing, where it was compacted.
pub(super) fn prev_kv(watch: &History, log: &[Event]) -> Verdict {
    for seen in &watch.seen {
        let Seen::Events { events, compacted, .. } = seen else { continue };
        for event in events {
            let at = event.record.at;
            let live =
                log.iter().find(|live| live.record.at == at).ok_or(format!("{at:?} never happened"))?;
            let gone = event.prev.is_none() && at.main <= *compacted;
            if event.prev != live.prev && !gone {
                return Err(format!("broke PrevKV: {:?} instead of {:?}", event.prev, live.prev));
            }
        }
    }
    Ok(())
}

/// Only what was asked for, and no response without any of it.
pub(super) fn filter(watch: &History) -> Verdict {
    for seen in &watch.seen {
        let Seen::Events { events, .. } = seen else { continue };
        if events.is_empty() {
            return Err("broke Filter: a response without events".into());
        }
        if let Some(event) = events.iter().find(|event| !watch.wants(event)) {
            return Err(format!("broke Filter: {:?}", event.record));
        }
    }
    Ok(())
}

/// A watch that ends for a compaction needed something from before it.
pub(super) fn cancelled_rightly(watch: &History) -> Verdict {
    let Some(Seen::Compacted { compacted }) = watch.seen.last() else { return Ok(()) };
    // All that the client can tell: it may still need what follows its last event or note.
    let needed = watch.seen.iter().rev().find_map(|seen| match seen {
        Seen::Events { events, .. } => events.last().map(|event| event.record.at.main.next()),
        Seen::Note { revision } => Some(revision.next()),
        _ => None,
    });
    match needed.unwrap_or(watch.start) {
        needed if needed < *compacted => Ok(()),
        needed => Err(format!("cancelled for {compacted}, but {needed} is what it needed")),
    }
}

pub(super) fn all(watch: &History, log: &[Event], complete: Option<Revision>) -> Verdict {
    resumable(watch)?;
    filter(watch)?;
    ordered(watch)?;
    unique(watch)?;
    atomic(watch)?;
    bookmarkable(watch, log)?;
    prev_kv(watch, log)?;
    cancelled_rightly(watch)?;
    reliable(watch, log, complete.filter(|_| !watch.ended()))
}

mod tests {
    use tenure_state::ids::Nanos;

    use super::*;
    use crate::watch::WatchConfig;
    use crate::watch::tests::world::{World, one, range};

    /// A log of a=2, a=3, {a,b}=4, a deleted=5, b=6; and a watch of all of it, as it should be.
    fn good() -> (History, Vec<Event>) {
        let mut world = World::new(WatchConfig::default());
        world.write(&[&[("a", Some(1))], &[("a", Some(1))], &[("a", Some(1)), ("b", Some(1))]]);
        world.write(&[&[("a", None)], &[("b", Some(1))]]);
        let mut watch = History::new(range("a", "c"), Revision(1));
        watch.create.prev = true;
        for event in &world.log {
            let revision = event.record.at.main;
            match watch.seen.last_mut() {
                Some(Seen::Events { header, events, .. }) if *header == revision => {
                    events.push(event.clone())
                }
                _ => {
                    let (header, events) = (revision, vec![event.clone()]);
                    watch.seen.push(Seen::Events { header, events, compacted: Revision(-1) });
                }
            }
        }
        assert_eq!((world.log.len(), watch.seen.len(), world.now), (6, 5, Nanos::from_secs(1)));
        assert_eq!(all(&watch, &world.log, Some(Revision(6))), Ok(()));
        (watch, world.log)
    }

    fn rejects(verdict: Verdict, promise: &str) {
        let why = verdict.expect_err(promise);
        assert!(why.starts_with(&format!("broke {promise}")), "{why}");
    }

    fn events_of(seen: &mut Seen) -> &mut Vec<Event> {
        let Seen::Events { events, .. } = seen else { panic!("events") };
        events
    }

    #[test]
    fn ordered_rejects_a_swap() {
        let (mut watch, _) = good();
        watch.seen.swap(1, 2);
        rejects(ordered(&watch), "Ordered");
        let (mut watch, _) = good();
        events_of(&mut watch.seen[2]).swap(0, 1);
        rejects(ordered(&watch), "Ordered");
    }

    #[test]
    fn unique_rejects_a_repetition() {
        let (mut watch, _) = good();
        watch.seen.insert(2, watch.seen[1].clone());
        rejects(unique(&watch), "Unique");
    }

    #[test]
    fn atomic_rejects_a_split_revision() {
        let (mut watch, _) = good();
        let mut second = watch.seen[2].clone();
        events_of(&mut watch.seen[2]).pop();
        events_of(&mut second).remove(0);
        watch.seen.insert(3, second);
        rejects(atomic(&watch), "Atomic");
    }

    #[test]
    fn reliable_rejects_a_gap_and_an_end_too_early() {
        let (mut watch, log) = good();
        watch.seen.remove(1);
        rejects(reliable(&watch, &log, None), "Reliable");
        let (mut watch, log) = good();
        watch.seen.pop();
        assert_eq!(reliable(&watch, &log, None), Ok(()));
        rejects(reliable(&watch, &log, Some(Revision(6))), "Reliable");
    }

    #[test]
    fn resumable_rejects_what_is_from_before_the_start() {
        let (mut watch, _) = good();
        watch.start = Revision(3);
        rejects(resumable(&watch), "Resumable");
    }

    #[test]
    fn bookmarkable_rejects_notes_that_are_not_true() {
        let note = |revision| Seen::Note { revision: Revision(revision) };
        for (place, revision, right) in [
            (1, 2, true),
            (1, 3, false),
            (0, 1, true),
            (0, 2, false),
            (5, 6, true),
            (5, 9, true),
            (4, 6, false),
        ] {
            let (mut watch, log) = good();
            watch.seen.insert(place, note(revision));
            let verdict = bookmarkable(&watch, &log);
            assert_eq!(verdict.is_ok(), right, "a note of {revision} at {place}: {verdict:?}");
        }
        // A note of a revision that the events pass over, and then an event from before it.
        let (mut watch, log) = good();
        watch.create.range = one("b").range;
        watch.seen = vec![note(5), watch.seen[2].clone()];
        rejects(bookmarkable(&watch, &log), "Bookmarkable");
        let (mut watch, log) = good();
        watch.create.start = 9;
        watch.start = Revision(9);
        watch.seen = vec![note(8)];
        rejects(bookmarkable(&watch, &log), "Bookmarkable");
    }

    #[test]
    fn prev_kv_rejects_what_is_wrong_or_missing() {
        let (mut watch, log) = good();
        let other = log[0].record.clone();
        events_of(&mut watch.seen[2])[0].prev = Some(other);
        rejects(prev_kv(&watch, &log), "PrevKV");

        let (mut watch, log) = good();
        events_of(&mut watch.seen[2])[0].prev = None;
        rejects(prev_kv(&watch, &log), "PrevKV");
        let Seen::Events { compacted, .. } = &mut watch.seen[2] else { panic!("events") };
        *compacted = Revision(4);
        assert_eq!(prev_kv(&watch, &log), Ok(()));
    }

    #[test]
    fn filter_rejects_what_was_not_asked_for() {
        let break_it: [fn(&mut History); 4] = [
            |watch| watch.create.range = one("a").range,
            |watch| watch.create.puts = false,
            |watch| watch.create.deletes = false,
            |watch| events_of(&mut watch.seen[0]).clear(),
        ];
        for break_it in break_it {
            let (mut watch, _) = good();
            break_it(&mut watch);
            rejects(filter(&watch), "Filter");
        }
    }

    #[test]
    fn a_compaction_that_does_not_concern_a_watch_must_not_end_it() {
        for (compacted, right) in [(6, false), (7, false), (8, true)] {
            let (mut watch, _) = good();
            watch.seen.push(Seen::Compacted { compacted: Revision(compacted) });
            assert_eq!(cancelled_rightly(&watch).is_ok(), right);
        }
    }
}
