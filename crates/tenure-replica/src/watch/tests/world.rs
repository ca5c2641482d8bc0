//! A state, a hub, and the clients of its streams, who take what they are told when the test says so and remember
//! all of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tenure_state::State;
use tenure_state::applied::Progress;
use tenure_state::command::{Command, DeleteRange, Entry, Op, Put, PutLease, Txn};
use tenure_state::ids::{LeaseId, Nanos, Revision};
use tenure_state::key::KeyRange;
use tenure_state::record::{Event, Record};

use crate::effect::WatchOutput;
use crate::input::{StreamId, WatchCreate, WatchInput};
use crate::watch::{Hub, Outputs, WatchConfig};

/// One thing that a client was told of one watch.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Events { header: Revision, events: Vec<Event>, compacted: Revision },
    Note { revision: Revision },
    Cancelled,
    Compacted { compacted: Revision },
}

/// All that a client knows of one of its watches.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub create: WatchCreate,
    /// The revision that the first event may have.
    pub start: Revision,
    pub seen: Vec<Seen>,
}

impl History {
    pub(super) fn new(create: WatchCreate, created: Revision) -> History {
        let start = if create.start == 0 { created.next() } else { Revision(create.start) };
        History { create, start, seen: Vec::new() }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.seen.iter().flat_map(|seen| match seen {
            Seen::Events { events, .. } => events.as_slice(),
            _ => &[],
        })
    }

    pub(super) fn ended(&self) -> bool {
        matches!(self.seen.last(), Some(Seen::Cancelled | Seen::Compacted { .. }))
    }

    /// Whether an event is what this watch asked for.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let kind = if event.record.is_tombstone() { self.create.deletes } else { self.create.puts };
        kind && self.create.range.contains(&event.record.key) && event.record.at.main >= self.start
    }
}

#[derive(Default)]
pub(super) struct Client {
    /// Told and not taken yet, with the compact revision of that moment.
    queue: VecDeque<(WatchOutput, Revision)>,
    /// Creates that are not answered.
    asked: VecDeque<WatchCreate>,
    pub running: BTreeMap<i64, History>,
    pub over: Vec<History>,
    pub refused: usize,
    /// Notes for the whole stream.
    pub notes: Vec<Revision>,
}

pub(super) struct World {
    pub state: State,
    pub hub: Hub,
    pub now: Nanos,
    index: u64,
    /// Every event there ever was.
    pub log: Vec<Event>,
    living: BTreeMap<Bytes, Arc<Record>>,
    pub clients: BTreeMap<StreamId, Client>,
}

/// What a write does to a key: the size of its new value, or its end.
pub(super) type Change = (&'static str, Option<usize>);

impl World {
    pub(super) fn new(config: WatchConfig) -> World {
        World {
            state: State::new(),
            hub: Hub::new(config),
            now: Nanos::from_secs(1),
            index: 0,
            log: Vec::new(),
            living: BTreeMap::new(),
            clients: BTreeMap::new(),
        }
    }

    fn apply(&mut self, command: Command) -> Vec<Event> {
        self.index += 1;
        let entry = Entry { index: self.index, term: 1, quota_bytes: 0, command };
        let Progress::Done(applied) = self.state.apply(&entry) else { panic!("entries of tests are small") };
        for event in &applied.events {
            // What was there before, told from events alone.
            let before = self.living.remove(&event.record.key);
            assert_eq!(event.prev, before, "a live event knows what was there");
            if !event.record.is_tombstone() {
                self.living.insert(event.record.key.clone(), Arc::clone(&event.record));
            }
        }
        self.log.extend(applied.events.iter().cloned());
        applied.events
    }

    /// Writes of one turn: each list is a revision.
    pub(super) fn write(&mut self, revisions: &[&[Change]]) {
        let events: Vec<Event> = revisions.iter().flat_map(|changes| self.apply(write(changes))).collect();
        let mut out = Outputs::new();
        self.hub.publish(&self.state, &events, &mut out);
        self.told(out);
    }

    pub(super) fn put(&mut self, key: &'static str) {
        self.write(&[&[(key, Some(1))]]);
    }

    /// Writes that this member learns of through a snapshot.
    pub(super) fn jump(&mut self, revisions: &[&[Change]], compact: i64) {
        for changes in revisions {
            self.apply(write(changes));
        }
        if compact > self.state.compacted().0 {
            self.apply(Command::Compact { revision: Revision(compact) });
        }
        self.hub.jumped(&self.state);
    }

    pub(super) fn compact(&mut self, revision: i64) {
        self.apply(Command::Compact { revision: Revision(revision) });
        self.apply(Command::Scrub { limit: 2 });
        self.hub.publish(&self.state, &[], &mut Outputs::new());
    }

    pub(super) fn ask(&mut self, stream: u64, request: WatchInput) {
        let stream = StreamId(stream);
        match &request {
            WatchInput::Create(create) => {
                self.clients.entry(stream).or_default().asked.push_back(create.clone());
            }
            WatchInput::Close => {
                self.clients.remove(&stream);
            }
            _ => {}
        }
        let mut out = Outputs::new();
        self.hub.request(&self.state, self.now, stream, request, &mut out);
        self.told(out);
    }

    pub(super) fn create(&mut self, stream: u64, create: WatchCreate) {
        self.ask(stream, WatchInput::Create(create));
    }

    /// One turn. True if there is more to do.
    pub(super) fn turn(&mut self) -> bool {
        let mut out = Outputs::new();
        let more = self.hub.turn(&self.state, self.now, &mut out);
        self.told(out);
        more
    }

    pub(super) fn turns(&mut self) {
        for _ in 0..10_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the hub works without an end");
    }

    pub(super) fn advance(&mut self, by: Nanos) {
        self.now = self.now + by;
    }

    fn told(&mut self, out: Outputs) {
        let compacted = self.state.compacted();
        for (stream, output) in out {
            // As the server does, for what is said to a stream that is gone.
            if let Some(client) = self.clients.get_mut(&stream) {
                client.queue.push_back((output, compacted));
            }
        }
    }

    /// A client reads what it was told, up to `limit` messages, and gives credit back for it.
    pub(super) fn take(&mut self, stream: u64, limit: usize) -> Vec<WatchOutput> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(client) = self.clients.get_mut(&StreamId(stream))
            && let Some((output, compacted)) = client.queue.pop_front()
        {
            client.read(output.clone(), compacted);
            if let WatchOutput::Events { id, bytes, .. } = output {
                self.ask(stream, WatchInput::Credit { id, bytes });
            }
            taken.push(output);
        }
        taken
    }

    pub(super) fn take_all(&mut self, stream: u64) -> Vec<WatchOutput> {
        self.take(stream, usize::MAX)
    }

    /// All clients read all they can.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.turns();
            let streams: Vec<u64> = self.clients.keys().map(|stream| stream.0).collect();
            let taken: usize = streams.into_iter().map(|stream| self.take_all(stream).len()).sum();
            if taken == 0 {
                return;
            }
        }
        panic!("there is always more to read");
    }

    /// What waits in the queue of a client: for each watch the bytes, and whether it is one revision only.
    pub(super) fn waiting(&self, stream: u64) -> BTreeMap<i64, (usize, bool)> {
        let mut waiting: BTreeMap<i64, (usize, Vec<Revision>)> = BTreeMap::new();
        let client = self.clients.get(&StreamId(stream));
        for (output, _) in client.into_iter().flat_map(|client| &client.queue) {
            if let WatchOutput::Events { id, batch, bytes, .. } = output {
                let (sum, revisions) = waiting.entry(*id).or_default();
                *sum += bytes;
                revisions.extend(batch.events.iter().map(|event| event.record.at.main));
                revisions.dedup();
            }
        }
        waiting.into_iter().map(|(id, (sum, revisions))| (id, (sum, revisions.len() == 1))).collect()
    }
}

impl Client {
    fn read(&mut self, output: WatchOutput, compacted_then: Revision) {
        match output {
            WatchOutput::Created { id, revision } => {
                let create = self.asked.pop_front().expect("only what was asked is created");
                assert!(create.id == 0 || create.id == id);
                let doubled = self.running.insert(id, History::new(create, revision));
                assert!(doubled.is_none(), "two watches of one name");
            }
            WatchOutput::Refused { .. } => {
                self.asked.pop_front().expect("only what was asked is refused");
                self.refused += 1;
            }
            WatchOutput::Cancelled { id, .. } => self.end(id, Seen::Cancelled),
            WatchOutput::Compacted { id, compacted } => self.end(id, Seen::Compacted { compacted }),
            WatchOutput::Progress { id: -1, revision } => {
                self.notes.push(revision);
                self.running.values_mut().for_each(|watch| watch.seen.push(Seen::Note { revision }));
            }
            WatchOutput::Progress { id, revision } => self.watch(id).seen.push(Seen::Note { revision }),
            WatchOutput::Events { id, revision, batch, prev, .. } => {
                let watch = self.watch(id);
                assert_eq!(prev, watch.create.prev);
                let events = batch.events.clone();
                watch.seen.push(Seen::Events { header: revision, events, compacted: compacted_then });
            }
        }
    }

    fn watch(&mut self, id: i64) -> &mut History {
        self.running.get_mut(&id).expect("only running watches are told of, after their creation")
    }

    fn end(&mut self, id: i64, seen: Seen) {
        self.watch(id).seen.push(seen);
        let over = self.running.remove(&id).expect("it was there");
        self.over.push(over);
    }
}

fn write(changes: &[Change]) -> Command {
    let op = |(key, size): &Change| match size {
        Some(size) => Op::Put(Put {
            key: Bytes::from_static(key.as_bytes()),
            value: Some(Bytes::from(vec![b'v'; *size])),
            lease: PutLease::Set(LeaseId::NONE),
            prev: false,
        }),
        None => {
            let range = KeyRange::One(Bytes::from_static(key.as_bytes()));
            Op::DeleteRange(DeleteRange { range, prev: false })
        }
    };
    Command::Txn(Txn { compare: Vec::new(), success: changes.iter().map(op).collect(), failure: Vec::new() })
}

/// A watch on one key.
pub(super) fn one(key: &'static str) -> WatchCreate {
    range(key, "")
}

pub(super) fn range(key: &'static str, end: &'static str) -> WatchCreate {
    WatchCreate {
        id: 0,
        range: KeyRange::new(Bytes::from_static(key.as_bytes()), Bytes::from_static(end.as_bytes())),
        start: 0,
        puts: true,
        deletes: true,
        prev: false,
        progress: false,
    }
}
