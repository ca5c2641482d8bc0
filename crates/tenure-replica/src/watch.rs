//! Who watches what: matches the events of applied entries, catches up from history, notes progress.
//!
//! A watcher is in one of three places. *Synced* ones have been sent all that concerns them and get events as they
//! happen. *Behind* ones read from history, a bounded part each turn, those at the same place together. *Waiting*
//! ones have no credit: their reader has not taken what it was sent. They keep nothing but the revision that they
//! need next, and go behind when credit comes back. So a slow reader costs the others nothing, and it gets every
//! event or is told that what it needs was compacted.
//!
//! What watchers are sent is ordered, unique and without gaps, because each knows the one revision that it needs
//! next, and whole revisions are all that is ever sent. [`Hub::publish`] comes right after apply, before anything
//! else is asked of the hub: so what the hub calls the present has been sent to whoever is synced.

mod catch_up;
mod group;
mod index;
mod run;
mod slab;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tenure_state::State;
use tenure_state::bugs::Bugs;
use tenure_state::ids::{Nanos, Revision};
use tenure_state::record::Event;

use self::group::{GroupKey, Groups, Wish};
use self::run::Run;
use self::slab::Slab;
use self::stream::Stream;
use crate::effect::{WatchOutput, WatchRefusal, WatchStats};
use crate::input::{StreamId, WatchCreate, WatchInput};

type WatcherKey = u32;

/// What streams are told, in order.
pub type Outputs = Vec<(StreamId, WatchOutput)>;

/// Watchers that one scan of history serves, that one turn cancels, notes or drops: each is a matter of 100 ns to
/// 1 µs, so a turn stays at a few milliseconds. Few in tests, so that the bound bites.
const WATCHERS_PER_TURN: usize = if cfg!(test) { 3 } else { 4096 };

#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// What a watch may have been sent that its reader has not taken.
    pub credit_bytes: u64,
    /// The same for all watches together. Above it, a watch may have [`WatchConfig::credit_floor`] under way.
    pub credit_total: u64,
    /// What a watch that has nothing under way may always be sent, so that those who do not read cannot stop those
    /// who do. One revision goes through even if it is bigger.
    pub credit_floor: u64,
    /// A watch that asked for it is told how far it is when it had no events for so long.
    pub progress_interval: Nanos,
    /// About how many events of history are read in a turn. Not above 1,000, or a response could hold more
    /// revisions than one of etcd does.
    pub replay_limit: usize,
}

impl Default for WatchConfig {
    fn default() -> WatchConfig {
        WatchConfig {
            credit_bytes: 1 << 20,
            credit_total: 64 << 20,
            credit_floor: 64 << 10,
            progress_interval: Nanos::from_secs(600),
            replay_limit: 1000,
        }
    }
}

struct Watcher {
    stream: StreamId,
    id: i64,
    group: GroupKey,
    place: Place,
    /// As it was asked for. No progress is noted before it.
    start: Revision,
    /// Everything below was sent, or never will be.
    next: Revision,
    /// Bytes and events that were sent and not taken yet.
    sent_bytes: u64,
    sent_events: u32,
    /// When progress is noted next, if it is.
    due: Option<Nanos>,
    /// No event since the last time that progress was due.
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// With its slot in the group.
    Synced(u32),
    Behind,
    Waiting,
}

#[derive(Default)]
pub struct Hub {
    config: WatchConfig,
    /// The present: all up to here was published.
    revision: Revision,
    watchers: Slab<Watcher>,
    by_id: BTreeMap<(StreamId, i64), WatcherKey>,
    streams: BTreeMap<StreamId, Stream>,
    groups: Groups,
    /// Who reads from history, by the revision needed next.
    behind: BTreeSet<(Revision, WatcherKey)>,
    /// Who has no credit, by stream: looked through when what was on its way for a cancelled watch is taken.
    waiting: BTreeSet<(StreamId, WatcherKey)>,
    /// Where the sweep through history is, and whether it has the next turn; see [`Hub::scan`].
    swept: (Revision, WatcherKey),
    sweeping: bool,
    /// Watchers whose start was in the future, for [`Hub::answer_progress`].
    future: BTreeSet<(StreamId, Revision, WatcherKey)>,
    notes: BTreeSet<(Nanos, WatcherKey)>,
    /// Streams that are gone and have watchers left to drop.
    closed: BTreeSet<StreamId>,
    synced_count: u64,
    sent_bytes: u64,
    sent_events: u64,
    events_total: u64,
    bugs: Bugs,
}

impl Hub {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn set_bugs(&mut self, bugs: Bugs) {
        self.bugs = bugs;
    }

    pub fn new(config: WatchConfig) -> Hub {
        assert!(
            config.replay_limit > 0 && config.progress_interval > Nanos::ZERO,
            "a hub that never gets on"
        );
        Hub { config, ..Hub::default() }
    }

    /// What a client asks. Requests of a stream are answered in their order.
    pub fn request(
        &mut self,
        state: &State,
        now: Nanos,
        stream: StreamId,
        request: WatchInput,
        out: &mut Outputs,
    ) {
        self.check_present(state);
        match request {
            WatchInput::Create(create) => self.create(now, stream, create, out),
            WatchInput::Cancel { id } => {
                if let Some(key) = self.by_id.get(&(stream, id)) {
                    let told = WatchOutput::Cancelled { id, revision: self.revision };
                    self.end(*key, told, out);
                }
            }
            WatchInput::Progress => {
                if let Some(asked) = self.streams.get_mut(&stream) {
                    asked.progress_asked = true;
                    self.answer_progress(stream, out);
                }
            }
            WatchInput::Credit { id, bytes } => self.credit(stream, id, bytes as u64),
            WatchInput::Close => {
                self.closed.insert(stream);
                self.drop_closed();
            }
        }
    }

    /// Sends the events of the entries that were just applied, in order, to those who want them. To be called after
    /// each apply, also without events.
    pub fn publish(&mut self, state: &State, events: &[Event], out: &mut Outputs) {
        let before = std::mem::replace(&mut self.revision, state.revision());
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        if self.watchers.len() == 0 {
            return;
        }
        assert!(
            first.record.at.main > before && last.record.at.main == self.revision,
            "published {} to {}, but the present went from {before} to {}",
            first.record.at.main,
            last.record.at.main,
            self.revision
        );
        let hits = self.groups.hits(events, |group| !group.synced.is_empty());
        for hits in hits.chunk_by(|a, b| a.group == b.group) {
            let group = hits[0].group;
            let mut run = Run::new(events, hits, self.groups[group].wish.prev);
            let mut slot = 0;
            while let Some(key) = self.groups[group].synced.get(slot).copied() {
                match self.send(key, &mut run, None, out) {
                    None => slot += 1,
                    // Another watcher takes the slot of one that leaves.
                    Some(rest) => {
                        self.leave_synced(key);
                        self.count_unsynced(key);
                        self.wait(key, rest);
                    }
                }
            }
        }
    }

    /// The state is not that of the last call with more entries applied, but that of a snapshot: what happened in
    /// between was not published. Whoever was synced reads it from history, or learns that it was compacted.
    pub fn jumped(&mut self, state: &State) {
        let missed = self.revision.next();
        self.revision = state.revision();
        assert!(missed <= self.revision.next(), "a snapshot took the present back");
        let keys: Vec<WatcherKey> = self.watchers.keys().collect();
        for key in keys {
            let watcher = &mut self.watchers[key];
            if matches!(watcher.place, Place::Synced(_)) {
                watcher.next = watcher.next.max(missed);
                let next = watcher.next;
                if next <= self.revision {
                    self.leave_synced(key);
                    self.count_unsynced(key);
                    self.watchers[key].place = Place::Behind;
                    self.behind.insert((next, key));
                }
            }
        }
    }

    /// A bounded part of the work that waits: whoever is behind gets on, progress that is due is noted. True if
    /// more waits.
    pub fn turn(&mut self, state: &State, now: Nanos, out: &mut Outputs) -> bool {
        self.check_present(state);
        self.drop_closed();
        if self.cancel_compacted(state, out) {
            self.scan(state, out);
        }
        let notes_left = self.note_progress(now, out);
        notes_left || !self.behind.is_empty() || !self.closed.is_empty()
    }

    /// When progress is due next. [`Hub::turn`] is to be called by then, and as soon as possible while it says so.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.notes.first().map(|(due, _)| *due)
    }

    pub fn stats(&self) -> WatchStats {
        let watchers = self.watchers.len() as u64;
        WatchStats {
            streams: self.streams.len() as u64,
            watchers,
            slow_watchers: watchers - self.synced_count,
            events: self.events_total,
            pending_events: self.sent_events,
        }
    }

    /// Nothing may have been applied and not published.
    fn check_present(&mut self, state: &State) {
        if self.watchers.len() == 0 {
            // Nobody was there to be told; a member that starts need not publish its whole history.
            self.revision = state.revision();
        }
        assert_eq!(self.revision, state.revision(), "what was applied is published before anything else");
    }

    fn create(&mut self, now: Nanos, stream: StreamId, create: WatchCreate, out: &mut Outputs) {
        let revision = self.revision;
        let why = if create.range.is_empty() {
            Some(WatchRefusal::EmptyRange)
        } else if create.start < 0 {
            Some(WatchRefusal::NegativeStart)
        } else if create.id != 0 && self.by_id.contains_key(&(stream, create.id)) {
            Some(WatchRefusal::DuplicateId)
        } else {
            None
        };
        if let Some(why) = why {
            out.push((stream, WatchOutput::Refused { why, revision }));
            return;
        }

        let on = self.streams.entry(stream).or_default();
        let id =
            if create.id == 0 { on.draw_id(|id| self.by_id.contains_key(&(stream, id))) } else { create.id };
        on.watchers += 1;

        let wish = Wish { puts: create.puts, deletes: create.deletes, prev: create.prev };
        let start = Revision(create.start);
        let key = self.watchers.insert(Watcher {
            stream,
            id,
            group: self.groups.join(&create.range, wish),
            place: Place::Behind,
            start,
            next: if create.start == 0 { revision.next() } else { start },
            sent_bytes: 0,
            sent_events: 0,
            due: None,
            quiet: true,
        });
        self.by_id.insert((stream, id), key);
        if start > revision {
            self.future.insert((stream, start, key));
        }
        if create.progress {
            self.schedule_note(key, now);
        }
        out.push((stream, WatchOutput::Created { id, revision }));
        if self.watchers[key].next > revision {
            self.join_synced(key);
        } else {
            self.count_unsynced(key);
            self.behind.insert((start, key));
        }
    }

    /// Says `told` and drops the watcher.
    fn end(&mut self, key: WatcherKey, told: WatchOutput, out: &mut Outputs) {
        let stream = self.watchers[key].stream;
        out.push((stream, told));
        self.remove(key);
        // It may have been what the rest of the stream waited for.
        self.answer_progress(stream, out);
    }

    fn remove(&mut self, key: WatcherKey) {
        match self.watchers[key].place {
            Place::Synced(_) => self.leave_synced(key),
            Place::Behind => {
                self.behind.remove(&(self.watchers[key].next, key));
                self.count_resynced(key);
            }
            Place::Waiting => {
                self.waiting.remove(&(self.watchers[key].stream, key));
                self.count_resynced(key);
            }
        }
        let watcher = self.watchers.remove(key);
        self.by_id.remove(&(watcher.stream, watcher.id));
        self.future.remove(&(watcher.stream, watcher.start, key));
        if let Some(due) = watcher.due {
            self.notes.remove(&(due, key));
        }
        self.groups.leave(watcher.group);
        self.sent_events -= u64::from(watcher.sent_events);
        let stream = self.streams.get_mut(&watcher.stream).expect("a watcher is on a stream");
        stream.watchers -= 1;
        // What was sent is still on its way. It counts until it is taken, or watching and cancelling in turns
        // would queue without a bound.
        stream.orphaned += watcher.sent_bytes;
    }

    fn drop_closed(&mut self) {
        let mut budget = WATCHERS_PER_TURN;
        while let Some(stream) = self.closed.first().copied() {
            let of_stream = (stream, i64::MIN)..=(stream, i64::MAX);
            let keys: Vec<_> = self.by_id.range(of_stream).take(budget).map(|(_, key)| *key).collect();
            budget -= keys.len();
            keys.into_iter().for_each(|key| self.remove(key));
            if budget == 0 {
                return;
            }
            self.closed.pop_first();
            if let Some(gone) = self.streams.remove(&stream) {
                self.sent_bytes -= gone.orphaned;
            }
        }
    }

    /// Sends what the watcher needs of a run and has credit for. `header` is the revision to show, if not that of
    /// the last event. Returns the first revision that did not go.
    fn send(
        &mut self,
        key: WatcherKey,
        run: &mut Run<'_>,
        header: Option<Revision>,
        out: &mut Outputs,
    ) -> Option<Revision> {
        let watcher = &mut self.watchers[key];
        let under_way = watcher.sent_bytes + self.streams[&watcher.stream].orphaned;
        let own = self.config.credit_bytes.saturating_sub(under_way);
        let shared = self.config.credit_total.saturating_sub(self.sent_bytes);
        let idle = under_way == 0;
        let floor = if idle { self.config.credit_floor } else { 0 };
        let (part, rest) = run.part(watcher.next, own.min(shared).max(floor), idle);
        if let Some(part) = part {
            let events = part.batch.events.len();
            watcher.next = part.last.next();
            watcher.quiet = false;
            watcher.sent_bytes += part.bytes;
            watcher.sent_events = watcher.sent_events.saturating_add(events as u32);
            self.sent_bytes += part.bytes;
            self.sent_events += events as u64;
            self.events_total += events as u64;
            let output = WatchOutput::Events {
                id: watcher.id,
                revision: header.unwrap_or(part.last),
                batch: part.batch,
                prev: self.groups[watcher.group].wish.prev,
                bytes: part.bytes as usize,
            };
            out.push((watcher.stream, output));
        }
        rest
    }

    /// The reader took `bytes` of what watch `id` was sent; what is left over belongs to watches of this name that
    /// were cancelled.
    fn credit(&mut self, stream: StreamId, id: i64, bytes: u64) {
        let Some(on) = self.streams.get_mut(&stream) else { return };
        let key = self.by_id.get(&(stream, id)).copied();
        let mut left = bytes;
        if let Some(key) = key {
            let watcher = &mut self.watchers[key];
            let taken = left.min(watcher.sent_bytes);
            left -= taken;
            // Nobody counts events back, so they go in proportion.
            let events_left = match watcher.sent_bytes - taken {
                0 => 0,
                rest => (u64::from(watcher.sent_events) * rest).div_ceil(watcher.sent_bytes) as u32,
            };
            self.sent_events -= u64::from(watcher.sent_events - events_left);
            watcher.sent_events = events_left;
            watcher.sent_bytes -= taken;
            self.sent_bytes -= taken;
        }
        let orphaned = left.min(on.orphaned);
        on.orphaned -= orphaned;
        self.sent_bytes -= orphaned;

        if orphaned > 0 {
            // What was on its way for a cancelled watch held up all of the stream.
            let of_stream = (stream, 0)..=(stream, WatcherKey::MAX);
            let keys: Vec<_> = self.waiting.range(of_stream).map(|(_, key)| *key).collect();
            keys.into_iter().for_each(|key| self.wake(key));
        } else if let Some(key) = key {
            self.wake(key);
        }
    }

    /// Lets a watcher that waits go on once half of its credit is free; any less, and it would read history in
    /// crumbs.
    fn wake(&mut self, key: WatcherKey) {
        let watcher = &mut self.watchers[key];
        if watcher.place != Place::Waiting {
            return;
        }
        let under_way = watcher.sent_bytes + self.streams[&watcher.stream].orphaned;
        let room = self.sent_bytes < self.config.credit_total;
        if under_way == 0 || (room && under_way <= self.config.credit_bytes / 2) {
            watcher.place = Place::Behind;
            self.waiting.remove(&(watcher.stream, key));
            self.behind.insert((watcher.next, key));
        }
    }

    fn join_synced(&mut self, key: WatcherKey) {
        let watcher = &mut self.watchers[key];
        let synced = &mut self.groups[watcher.group].synced;
        watcher.place = Place::Synced(synced.len() as u32);
        synced.push(key);
        self.synced_count += 1;
    }

    fn leave_synced(&mut self, key: WatcherKey) {
        let Place::Synced(slot) = self.watchers[key].place else {
            panic!("only a synced watcher has a slot")
        };
        let synced = &mut self.groups[self.watchers[key].group].synced;
        synced.swap_remove(slot as usize);
        if let Some(moved) = synced.get(slot as usize) {
            self.watchers[*moved].place = Place::Synced(slot);
        }
        self.synced_count -= 1;
    }

    /// Keeps nothing of what the watcher has no credit for but where to go on.
    fn wait(&mut self, key: WatcherKey, next: Revision) {
        let watcher = &mut self.watchers[key];
        (watcher.place, watcher.next) = (Place::Waiting, next);
        self.waiting.insert((watcher.stream, key));
    }

    fn count_unsynced(&mut self, key: WatcherKey) {
        let stream = self.watchers[key].stream;
        self.streams.get_mut(&stream).expect("a watcher is on a stream").unsynced += 1;
    }

    fn count_resynced(&mut self, key: WatcherKey) {
        let stream = self.watchers[key].stream;
        self.streams.get_mut(&stream).expect("a watcher is on a stream").unsynced -= 1;
    }
}
