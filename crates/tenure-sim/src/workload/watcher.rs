//! Clients that watch: from now, from the past, from the future; some read slowly; all resume when they are cut off.

use bytes::Bytes;
use tenure_replica::effect::WatchOutput;
use tenure_replica::input::{StreamId, WatchCreate, WatchInput};
use tenure_state::key::KeyRange;

use super::{Cx, RETRY};
use crate::clock::{MS, SEC};
use crate::history::Watch;

/// The alarm that starts or renews the watch; others give credit back.
const ALARM: u64 = 0;

pub struct Watcher {
    /// How long it takes to read what it is sent.
    pub slow: u64,
    stream: Option<(StreamId, usize)>,
    /// Everything below was seen.
    next: i64,
    /// The watch that the next one resumes.
    resumes: Option<usize>,
    create: Option<WatchCreate>,
    credits: Vec<(StreamId, i64, usize)>,
}

impl Watcher {
    pub fn new(slow: u64) -> Watcher {
        Watcher { slow, stream: None, next: 0, resumes: None, create: None, credits: Vec::new() }
    }

    fn draw(&mut self, cx: &mut Cx<'_>) -> WatchCreate {
        let last = cx.world.last_header;
        let start = match cx.rng().below(4) {
            0 => 0,
            1 => 1,
            2 => (last - cx.rng().below(100) as i64).max(1),
            _ => last + cx.rng().below(100) as i64,
        };
        let range = match cx.rng().below(4) {
            0 | 1 => KeyRange::From(Bytes::from_static(&[0])),
            2 => KeyRange::One(format!("k{}", cx.rng().below(8)).into()),
            _ => KeyRange::Span { start: "l".into(), end: "m".into() },
        };
        let only = cx.rng().below(8);
        WatchCreate {
            id: 0,
            range,
            start,
            puts: only != 0,
            deletes: only != 1,
            prev: cx.rng().chance(500),
            progress: cx.rng().chance(600),
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>) {
        let mut create = match self.create.take() {
            Some(create) => create,
            None => self.draw(cx),
        };
        if self.resumes.is_some() {
            create.start = self.next;
        }
        let watch = Watch {
            client: cx.client,
            create: create.clone(),
            sent: cx.world.h,
            seen: Vec::new(),
            resumes: self.resumes,
            keeps_up: self.slow == 0,
            over: None,
        };
        self.next = create.start;
        self.create = Some(create);
        self.stream = cx.world.watch(cx.client, watch);
        if self.stream.is_some() {
            self.resumes = None;
        }
    }

    pub fn wake(&mut self, cx: &mut Cx<'_>, token: u64) {
        if token != ALARM {
            let (stream, id, bytes) = self.credits.remove(0);
            cx.world.watch_request(cx.client, stream, WatchInput::Credit { id, bytes });
            return;
        }
        if let Some((stream, watch)) = self.stream {
            match cx.rng().below(6) {
                // Another watch, or the same one resumed.
                0 if !cx.is_over() => {
                    cx.world.history.watches[watch].over = Some(cx.world.h);
                    cx.world.watch_request(cx.client, stream, WatchInput::Close);
                    self.stream = None;
                    if cx.rng().chance(500) && self.next > 0 {
                        self.resumes = Some(watch);
                    } else {
                        self.create = None;
                    }
                }
                1 | 2 => cx.world.watch_request(cx.client, stream, WatchInput::Progress),
                _ => {}
            }
        }
        if self.stream.is_none() {
            self.open(cx);
        }
        let pause = if self.stream.is_none() { RETRY } else { 100 * MS + cx.world.rng.wait(2 * SEC) };
        cx.sleep(pause);
    }

    pub fn broken(&mut self, cx: &mut Cx<'_>) {
        if let Some((_, watch)) = self.stream.take() {
            cx.world.history.watches[watch].over.get_or_insert(cx.world.h);
            self.resumes = (self.next > 0).then_some(watch);
        }
    }

    pub fn reconnected(&mut self, cx: &mut Cx<'_>) {
        if self.stream.is_none() {
            self.open(cx);
        }
    }

    pub fn watched(&mut self, cx: &mut Cx<'_>, watch: usize, output: WatchOutput) {
        let Some((stream, _)) = self.stream.filter(|(_, open)| *open == watch) else { return };
        match output {
            WatchOutput::Created { revision, .. } => {
                if self.next == 0 {
                    self.next = revision.0 + 1;
                }
            }
            WatchOutput::Events { id, batch, bytes, .. } => {
                if let Some(last) = batch.events.last() {
                    self.next = last.record.at.main.0 + 1;
                }
                if self.slow == 0 {
                    cx.world.watch_request(cx.client, stream, WatchInput::Credit { id, bytes });
                } else {
                    self.credits.push((stream, id, bytes));
                    let pause = cx.world.rng.wait(self.slow);
                    cx.sleep_as(pause, 1);
                }
            }
            WatchOutput::Compacted { .. } | WatchOutput::Refused { .. } => {
                cx.world.history.watches[watch].over = Some(cx.world.h);
                cx.world.watch_request(cx.client, stream, WatchInput::Close);
                self.stream = None;
                self.create = None;
            }
            WatchOutput::Cancelled { .. } | WatchOutput::Progress { .. } => {}
        }
    }
}
