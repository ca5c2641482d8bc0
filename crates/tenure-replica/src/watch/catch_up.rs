//! Reading history for those who are behind, and saying how far watchers are.

use std::collections::BTreeMap;
use std::ops::Bound;

use tenure_state::State;
use tenure_state::bugs::Bug;
use tenure_state::ids::{Nanos, Revision};

use super::group::{GroupKey, Hit};
use super::run::Run;
use super::{Hub, Outputs, Place, WATCHERS_PER_TURN, WatcherKey};
use crate::effect::WatchOutput;
use crate::input::StreamId;

impl Hub {
    /// Ends the watchers that need what was compacted. False if there are more of them.
    pub(super) fn cancel_compacted(&mut self, state: &State, out: &mut Outputs) -> bool {
        let compacted = state.compacted();
        for _ in 0..WATCHERS_PER_TURN {
            match self.behind.first().copied() {
                Some((next, key)) if next < compacted && self.bugs.has(Bug::EventLostAtCompaction) => {
                    self.behind.remove(&(next, key));
                    self.behind.insert((compacted, key));
                    self.watchers[key].next = compacted;
                }
                Some((next, key)) if next < compacted => {
                    let id = self.watchers[key].id;
                    self.end(key, WatchOutput::Compacted { id, compacted }, out);
                }
                _ => return true,
            }
        }
        false
    }

    /// Reads one part of history for all who need it. Every other time it goes on with a sweep from the oldest place
    /// to the present, which takes along whoever stands on its way, so that many at different places cost no more
    /// than the one furthest behind. In between it serves those nearest to the present, who would have to wait for
    /// the sweep to get there.
    pub(super) fn scan(&mut self, state: &State, out: &mut Outputs) {
        self.sweeping = !self.sweeping;
        let place = if self.sweeping {
            let rest = (Bound::Excluded(self.swept), Bound::Unbounded);
            self.behind.range(rest).next().or(self.behind.first())
        } else {
            self.behind.last()
        };
        let Some((from, _)) = place.copied() else { return };
        let part = state
            .replay(from, self.config.replay_limit)
            .expect("whoever needs what was compacted is not behind any more");
        let end = part.next.unwrap_or(self.revision.next());
        assert!(end > from, "a part of history without a revision");

        let served: Vec<(Revision, WatcherKey)> =
            self.behind.range((from, 0)..(end, 0)).take(WATCHERS_PER_TURN).copied().collect();
        if self.sweeping {
            self.swept = match served.last() {
                Some(last) if served.len() == WATCHERS_PER_TURN => *last,
                _ => (end.before(), WatcherKey::MAX),
            };
        }

        let mark = |hub: &mut Hub, scanning| {
            for (_, key) in &served {
                let group = hub.watchers[*key].group;
                hub.groups[group].scanning = scanning;
            }
        };
        mark(self, true);
        let hits = self.groups.hits(&part.events, |group| group.scanning);
        mark(self, false);
        let mut runs: BTreeMap<GroupKey, Run<'_>> = hits
            .chunk_by(|a: &Hit, b: &Hit| a.group == b.group)
            .map(|hits| {
                let group = hits[0].group;
                (group, Run::new(&part.events, hits, self.groups[group].wish.prev))
            })
            .collect();

        for (next, key) in served {
            self.behind.remove(&(next, key));
            let run = runs.get_mut(&self.watchers[key].group);
            let rest = run.and_then(|run| self.send(key, run, Some(self.revision), out));
            let watcher = &mut self.watchers[key];
            watcher.next = end;
            if let Some(rest) = rest {
                self.wait(key, rest);
            } else if end <= self.revision {
                self.behind.insert((end, key));
            } else {
                let stream = watcher.stream;
                self.count_resynced(key);
                self.join_synced(key);
                self.answer_progress(stream, out);
            }
        }
    }

    /// Answers a stream that asked how far it is, once all its watchers are at the present: then no event up to
    /// there comes any more. Waits while any is behind; a stream without watchers or with one that starts in the
    /// future is not answered, as on etcd.
    pub(super) fn answer_progress(&mut self, stream: StreamId, out: &mut Outputs) {
        let Some(on) = self.streams.get_mut(&stream) else { return };
        if !on.progress_asked || on.unsynced > 0 {
            return;
        }
        on.progress_asked = false;
        let watched = on.watchers > 0;
        if watched && self.all_started(stream) {
            out.push((stream, WatchOutput::Progress { id: -1, revision: self.revision }));
        }
    }

    fn all_started(&mut self, stream: StreamId) -> bool {
        let of_stream = (stream, Revision(i64::MIN), 0)..=(stream, Revision(i64::MAX), WatcherKey::MAX);
        while let Some(last) = self.future.range(of_stream.clone()).next_back().copied() {
            if last.1 > self.revision {
                return false;
            }
            self.future.remove(&last);
        }
        true
    }

    /// True if more is due.
    pub(super) fn note_progress(&mut self, now: Nanos, out: &mut Outputs) -> bool {
        for _ in 0..WATCHERS_PER_TURN {
            match self.notes.first().copied() {
                Some((due, key)) if due <= now => {
                    let watcher = &mut self.watchers[key];
                    let synced = matches!(watcher.place, Place::Synced(_)) && watcher.start <= self.revision;
                    let synced = synced || self.bugs.has(Bug::NoteBeforeEvents);
                    if std::mem::replace(&mut watcher.quiet, true) && synced {
                        let note = WatchOutput::Progress { id: watcher.id, revision: self.revision };
                        out.push((watcher.stream, note));
                    }
                    self.schedule_note(key, now);
                }
                _ => return false,
            }
        }
        true
    }

    /// An interval from now, and up to a tenth more that differs from stream to stream: the watches of clients that
    /// all came back at once are not all noted at once.
    pub(super) fn schedule_note(&mut self, key: WatcherKey, now: Nanos) {
        let interval = self.config.progress_interval;
        let watcher = &mut self.watchers[key];
        let scattered = watcher.stream.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let due = now + interval + Nanos(interval.0 / 10 / 1024 * scattered);
        if let Some(due) = watcher.due.replace(due) {
            self.notes.remove(&(due, key));
        }
        self.notes.insert((due, key));
    }
}
