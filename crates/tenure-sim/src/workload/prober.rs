//! After all faults: a watch, a put, a grant and an expiry must happen, one after the other, in time.

use bytes::Bytes;
use tenure_replica::effect::WatchOutput;
use tenure_replica::input::{StreamId, WatchCreate, WatchInput, Write};
use tenure_state::command::{Alarm, AlarmAction, Put, PutLease};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::key::KeyRange;

use super::{Cx, RETRY};
use crate::clock::{MS, SEC};
use crate::history::{Ask, Finding, Watch};

/// A start, with all that it replays.
const SETTLED: u64 = 4 * SEC;
const ANSWERED: u64 = 2 * SEC;
/// The TTL, the stamp and the commit.
const EXPIRED: u64 = 3 * SEC;

#[derive(Default)]
pub struct Prober {
    step: usize,
    since: u64,
    waiting: Option<usize>,
    stream: Option<StreamId>,
    seen: Vec<bool>,
    done: bool,
}

const STEPS: [(&str, u64); 5] = [
    ("the member settles", SETTLED),
    ("a grant is answered", ANSWERED),
    ("a put is answered", ANSWERED),
    ("a watch sees the put", ANSWERED),
    ("the lease ends, and the watch sees it", EXPIRED),
];

impl Prober {
    fn pass(&mut self, cx: &mut Cx<'_>) {
        self.step += 1;
        self.since = cx.world.h;
        self.done = self.step == STEPS.len();
    }

    pub fn wake(&mut self, cx: &mut Cx<'_>) {
        if self.done {
            return;
        }
        if self.since == 0 {
            self.since = cx.world.h;
        }
        let (what, limit) = STEPS[self.step];
        if self.step > 0 && cx.world.h > self.since + limit {
            self.done = true;
            cx.world.history.findings.push(Finding::Stuck { what: what.to_owned() });
            return;
        }
        if self.stream.is_none() {
            let range = KeyRange::One(Bytes::from_static(b"probe"));
            let create = WatchCreate {
                id: 0,
                range,
                start: 0,
                puts: true,
                deletes: true,
                prev: false,
                progress: false,
            };
            let watch = Watch {
                client: cx.client,
                create,
                sent: cx.world.h,
                seen: Vec::new(),
                resumes: None,
                keeps_up: true,
                over: None,
            };
            self.stream = cx.world.watch(cx.client, watch).map(|(stream, _)| stream);
        }
        if self.step == 0 && !cx.world.alarm_left && cx.world.h > self.since + SETTLED {
            self.pass(cx);
        }
        if self.waiting.is_none() && self.stream.is_some() {
            let id = LeaseId(0x7072_6f62_6500 + cx.client as i64);
            match self.step {
                0 if cx.world.alarm_left => {
                    let action = AlarmAction::Deactivate;
                    let disarm = Write::Alarm { action, member: crate::MEMBER, alarm: Alarm::NoSpace };
                    self.waiting = cx.ask(Ask::Write(disarm));
                }
                1 => {
                    let grant = Write::Grant { id, ttl: Nanos(SEC), parent: LeaseId::NONE };
                    self.waiting = cx.ask_for(Ask::Write(grant), 1);
                }
                2 => {
                    let value = Some(cx.value());
                    let put = Put { key: "probe".into(), value, lease: PutLease::Set(id), prev: false };
                    self.waiting = cx.ask(Ask::Write(Write::Put(put)));
                }
                3 if self.seen.first() == Some(&true) => self.pass(cx),
                4 if self.seen.get(1) == Some(&false) => self.pass(cx),
                _ => {}
            }
        }
        cx.sleep(RETRY + MS);
    }

    pub fn answered(&mut self, cx: &mut Cx<'_>, op: usize) {
        if self.waiting.take() == Some(op) && cx.op(op).ok().is_some() {
            if self.step > 0 {
                self.pass(cx);
            } else {
                cx.world.alarm_left = false;
            }
        }
    }

    pub fn broken(&mut self, cx: &mut Cx<'_>) {
        self.stream = None;
        let open = cx.world.history.watches.iter_mut().filter(|watch| watch.client == cx.client);
        open.for_each(|watch| {
            watch.over.get_or_insert(cx.world.h);
        });
    }

    pub fn watched(&mut self, cx: &mut Cx<'_>, output: WatchOutput) {
        if let WatchOutput::Events { id, batch, bytes, .. } = output {
            if let Some(stream) = self.stream {
                cx.world.watch_request(cx.client, stream, WatchInput::Credit { id, bytes });
            }
            self.seen.extend(batch.events.iter().map(|event| !event.record.is_tombstone()));
        }
    }
}
