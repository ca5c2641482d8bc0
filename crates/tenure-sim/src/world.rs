//! The simulated world: true time, what happens when, the members and the clients.
//!
//! One heap of events drives everything. Members are in a map by number; messages between them come with clusters.

mod network;
mod process;
mod storage;
mod trouble;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tenure_replica::effect::{Answer, Effect, EntryKind, Failure, Header};
use tenure_replica::entry::Proposal;
use tenure_replica::input::{Consistency, Input, Read, StreamId, Ticket, WatchInput};
use tenure_replica::{Replica, effect::Membership, effect::WatchOutput};
use tenure_state::bugs::Bug;
use tenure_state::command::Command;
use tenure_state::key::KeyRange;

use crate::clock::{Clock, MS, SEC};
use crate::faults::{Fault, Faults};
use crate::history::{Ask, Finding, History, Op, Outage, Seen, Stamp};
use crate::member::{LogStep, Member, Process};
use crate::rng::Rng;
use crate::tap::Tap;
use crate::trace::Trace;
use crate::workload::{self, Client, Role};

/// One turn takes at most so many inputs, as in the server.
const TURN_INPUTS_MAX: usize = 2048;
/// Nothing must come for so long before the log counts as idle, as in the server.
const LOG_IDLE: u64 = 20 * MS;
const FULL_RETRY: u64 = 100 * MS;
const CHECKPOINT_RETRY: u64 = 500 * MS;
/// What the simulator itself asks of a member comes under this ticket.
const OWN_TICKET: Ticket = Ticket(u64::MAX);
/// After a pause the edges hand over what waits in the sockets within this time, while the loop runs already.
const SOCKET_LAG: u64 = 20 * MS;

pub(crate) enum Event {
    Turn,
    /// Effects of a turn that a pause held up.
    Effects(Vec<Effect>),
    /// The log's operation under way ends.
    Log,
    LogIdle(u64),
    CheckpointDue,
    CheckpointDone,
    Start,
    Arrive(Box<Arriving>),
    Tell(usize, u64, Box<Told>),
    Wake(usize, u64),
    Timeout(usize, usize),
    Broken(usize, u64),
    /// The member's edge closes a stream whose connection broke.
    Close(StreamId),
    Reconnect(usize),
    Fault(Fault, u64),
    FaultOver(Fault),
    KillAgain,
    Heal,
}

/// A message on its way to a member.
pub(crate) struct Arriving {
    client: usize,
    connection: u64,
    input: Input,
}

/// A message on its way to a client.
pub(crate) enum Told {
    Answer(usize, Header, Result<Answer, Failure>),
    Watch(usize, WatchOutput),
}

struct Entry {
    at: u64,
    sequence: u64,
    life: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

fn everything() -> KeyRange {
    KeyRange::From(bytes::Bytes::from_static(&[0]))
}

pub struct World {
    pub(crate) h: u64,
    pub(crate) rng: Rng,
    pub(crate) history: History,
    pub(crate) clients: Vec<Client>,
    /// Until the faults are over.
    pub(crate) heal_at: u64,
    pub(crate) end_at: u64,
    pub trace: Trace,
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    members: BTreeMap<u64, Member>,
    tap: Tap,
    faults: Faults,
    next_connection: u64,
    next_stream: u64,
    /// Who reads each stream, over which connection, and as which watch.
    streams: BTreeMap<StreamId, (usize, u64, usize)>,
    /// Per mille of the starts that are tried on a damaged copy of the disk first.
    damage_chance: u64,
    pub(crate) shared_leases: Vec<(i64, u32)>,
    pub(crate) next_value: u64,
    pub(crate) last_header: i64,
    /// A process ended while the alarm for its full disk was up. The next one cannot tell it from the quota's alarm,
    /// so an operator has to disarm it.
    pub(crate) alarm_left: bool,
}

impl World {
    pub(crate) fn new(rng: Rng, member: Member, faults: Faults, heal_at: u64, end_at: u64) -> World {
        let grace = member.shape.config.grace;
        let mut world = World {
            h: 0,
            rng,
            history: History { grace, ..History::default() },
            clients: Vec::new(),
            heal_at,
            end_at,
            trace: Trace::default(),
            heap: BinaryHeap::new(),
            sequence: 0,
            members: BTreeMap::from([(member.id.0, member)]),
            tap: Tap::default(),
            faults,
            next_connection: 1,
            next_stream: 1,
            streams: BTreeMap::new(),
            damage_chance: 300,
            shared_leases: Vec::new(),
            next_value: 1,
            last_header: 1,
            alarm_left: false,
        };
        world.push(0, Event::Start);
        for (fault, mean) in world.faults.kinds.clone() {
            let at = world.rng.wait(mean);
            world.push(at, Event::Fault(fault, mean));
        }
        world.push(heal_at, Event::Heal);
        world
    }

    /// Takes a client in; it wakes soon.
    pub(crate) fn add_client(&mut self, role: Role, clock: Clock) {
        let index = self.clients.len();
        let connection = self.draw_connection();
        self.clients.push(Client::new(role, clock, connection));
        let at = self.h + self.rng.between(30 * MS, 200 * MS);
        self.push(at, Event::Wake(index, 0));
    }

    pub(crate) fn run(mut self) -> (History, Trace) {
        while let Some(Reverse(entry)) = self.heap.pop() {
            if entry.at > self.end_at {
                break;
            }
            self.h = entry.at;
            self.handle(entry.life, entry.event);
        }
        self.history.end = self.end_at;
        let member = self.member();
        let is_active = member.process.as_ref().is_some_and(|process| process.active);
        let down = (!is_active, member.down_since);
        let mut left = None;
        if let Some(process) = member.process.as_ref().filter(|process| process.active) {
            let state = process.replica.state();
            state.assert_invariants();
            let page = state.range_page(&everything(), None, state.revision(), usize::MAX);
            left = Some((state.revision().0, page.expect("the present can be read").records));
        }
        self.history.left = left;
        if down.0 {
            self.history.outages.push((down.1, self.end_at, Outage::Down));
        }
        (self.history, self.trace)
    }

    /// The only member there is so far.
    fn member(&mut self) -> &mut Member {
        self.members.first_entry().expect("there is a member").into_mut()
    }

    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let life = self.member().life;
        let entry = Entry { at: at.max(self.h), sequence: self.sequence, life, event };
        self.heap.push(Reverse(entry));
    }

    fn draw_connection(&mut self) -> u64 {
        self.next_connection += 1;
        self.next_connection - 1
    }

    fn handle(&mut self, life: u64, event: Event) {
        let h = self.h;
        let member = self.member();
        let stale = life != member.life;
        let paused_until = member.paused_until;
        let paused = h < paused_until;
        match event {
            Event::Turn | Event::Effects(_) | Event::Log | Event::LogIdle(_) if stale => {}
            Event::CheckpointDue | Event::CheckpointDone if stale => {}
            // Nothing of a paused process runs.
            Event::Log | Event::LogIdle(_) | Event::Effects(_) if paused => self.push(paused_until, event),
            Event::CheckpointDue | Event::CheckpointDone if paused => self.push(paused_until, event),
            // Behind all that was sent before.
            Event::Close(_) if paused => self.push(paused_until + SOCKET_LAG, event),
            Event::Close(_) if stale => {}
            Event::Close(stream) => self.input(Input::Watch { stream, request: WatchInput::Close }),
            Event::Turn => self.turn(),
            Event::Effects(effects) => self.carry_out(effects),
            Event::Log => self.log_done(),
            Event::LogIdle(turn) => {
                let member = self.member();
                if let Some(process) = &mut member.process
                    && process.turn_count == turn
                {
                    process.log.idle(&mut member.disk);
                }
            }
            Event::CheckpointDue => self.checkpoint_due(),
            Event::CheckpointDone => self.checkpoint_done(),
            Event::Start => self.start(),
            Event::Arrive(arriving) => self.arrive(*arriving),
            Event::Tell(client, connection, told) => self.tell(client, connection, *told),
            Event::Wake(client, token) => workload::wake(self, client, token),
            Event::Timeout(client, op) => {
                if self.history.ops[op].recv.is_none() {
                    self.history.ops[op].recv = Some(h);
                    self.history.ops[op].abandoned = true;
                    workload::answered(self, client, op);
                }
            }
            Event::Broken(client, connection) => self.broken(client, connection),
            Event::Reconnect(client) => {
                self.clients[client].connected = true;
                workload::reconnected(self, client);
            }
            Event::Fault(fault, mean) => self.fault(fault, mean),
            Event::FaultOver(fault) => self.fault_over(fault),
            Event::KillAgain if h < self.heal_at => {
                let until = h + self.rng.between(5 * MS, 60 * MS);
                self.crash(false, until);
            }
            Event::KillAgain => {}
            Event::Heal => self.heal(),
        }
    }
}
