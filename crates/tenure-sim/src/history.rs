//! What a run leaves behind for the oracles: what clients asked and were told, and what the simulator saw inside.
//!
//! All times are H. What clients saw is enough for most promises; the rest (marked) is what only a simulator knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tenure_replica::effect::{Answer, Failure, Header};
use tenure_replica::input::{Consistency, Read, WatchCreate, Write};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::record::{Event, Record};

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Ask {
    Write(Write),
    Read(Read, Consistency),
    Renew(Vec<LeaseId>),
}

/// One request of a client.
#[derive(Debug)]
pub struct Op {
    pub client: usize,
    /// Counts connections of all clients: what came over one of them is ordered.
    pub connection: u64,
    pub ask: Ask,
    /// Which life of its lease id is meant, where one is: ids are granted again after they ended.
    pub nth: u32,
    pub send: u64,
    /// When the client knew, be it that it will never know.
    pub recv: Option<u64>,
    /// `None`: no answer came. It may have been done or not.
    pub answer: Option<(Header, Result<Answer, Failure>)>,
    /// The connection broke, or the client gave up, before an answer came.
    pub abandoned: bool,
}

impl Op {
    pub fn ok(&self) -> Option<(&Header, &Answer)> {
        match &self.answer {
            Some((header, Ok(answer))) => Some((header, answer)),
            _ => None,
        }
    }

    /// Whether the request may have been carried out although nobody was told so.
    pub fn is_unknown(&self) -> bool {
        match &self.answer {
            None | Some((_, Err(Failure::LeaderChanged | Failure::TimedOut | Failure::Stopped))) => true,
            Some((_, Ok(_))) => false,
            Some((
                _,
                Err(Failure::Refused(_) | Failure::NoLeader | Failure::TooManyRequests | Failure::TooLarge),
            )) => false,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        self.is_unknown() || self.ok().is_some()
    }
}

/// One revision, as the member applied it first (white box).
#[derive(Clone, Debug, Default)]
pub struct Commit {
    pub at: u64,
    pub records: Vec<Arc<Record>>,
    /// Leases that ended with it.
    pub ended: Vec<LeaseLife>,
}

/// One life of a lease id: the n-th one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseLife {
    pub id: LeaseId,
    pub nth: u32,
}

/// What became of a lease (white box).
#[derive(Clone, Debug, Default)]
pub struct Lease {
    pub parent: LeaseId,
    pub ttl: Nanos,
    /// When a grant or a renewal was applied last.
    pub renewed: u64,
    pub end: Option<LeaseEnd>,
}

#[derive(Clone, Copy, Debug)]
pub struct LeaseEnd {
    /// When it was applied first.
    pub at: u64,
    /// The revision at which its keys went, if it had any.
    pub revision: Option<i64>,
}

/// One watch from its creation to its end, over one connection.
#[derive(Debug)]
pub struct Watch {
    pub client: usize,
    pub create: WatchCreate,
    pub sent: u64,
    pub seen: Vec<(u64, Seen)>,
    /// The watch that this one goes on with after a broken connection.
    pub resumes: Option<usize>,
    /// The reader takes what comes at once.
    pub keeps_up: bool,
    /// When the connection broke or the client cancelled.
    pub over: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Seen {
    Created { revision: i64 },
    Events { revision: i64, events: Vec<Event> },
    Progress { revision: i64, whole_stream: bool },
    Compacted { revision: i64 },
    Cancelled,
    Refused,
}

/// The lease clock as a leader stamped it into an entry (white box).
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub at: u64,
    pub clock: Nanos,
}

/// Why the member could do nothing for a while (white box).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    Down,
    Paused,
    DiskStalled,
    DiskFull,
    /// It ran, but of the time before a crash the log has no stamp: the next life cannot know that it passed.
    Unstamped,
}

/// What the simulator itself found to be wrong (white box).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A revision came out differently the second time.
    Fork { revision: i64, what: String },
    /// A start on a disk that was never damaged, only lost what was not synced.
    Refused { why: String },
    /// A start on a disk with a bit flipped in what was synced did not notice.
    DamageAccepted { what: String },
    /// The rows of a checkpoint do not make the state that it was taken of.
    CheckpointDiffers { applied: u64 },
    /// The applied lease clock went back.
    ClockWentBack { before: Nanos, after: Nanos },
    /// After all faults ended, this did not happen in time.
    Stuck { what: String },
}

#[derive(Debug, Default)]
pub struct History {
    pub grace: Nanos,
    pub ops: Vec<Op>,
    pub commits: BTreeMap<i64, Commit>,
    pub leases: BTreeMap<LeaseLife, Lease>,
    pub watches: Vec<Watch>,
    pub stamps: Vec<Stamp>,
    /// From when to when.
    pub outages: Vec<(u64, u64, Outage)>,
    /// When a member became the active leader.
    pub take_overs: Vec<u64>,
    pub findings: Vec<Finding>,
    /// What is there in the end: the revision, and all that lives.
    pub left: Option<(i64, Vec<Arc<Record>>)>,
    /// Leases that were granted to end together, and those among them that somebody renewed until the end.
    pub masses: Vec<Mass>,
    pub end: u64,
}

/// See [`History::masses`].
#[derive(Clone, Debug, Default)]
pub struct Mass {
    pub all: Vec<LeaseLife>,
    pub survivors: Vec<LeaseLife>,
    /// When the last renewal of those that were given up was answered.
    pub given_up: u64,
}

impl History {
    /// How long outages lasted in all between `from` and `to`, those of `kinds`.
    pub fn outage(&self, from: u64, to: u64, kinds: &[Outage]) -> u64 {
        let mut windows: Vec<(u64, u64)> = self
            .outages
            .iter()
            .filter(|(start, end, kind)| kinds.contains(kind) && *start < to && *end > from)
            .map(|(start, end, _)| ((*start).max(from), (*end).min(to)))
            .collect();
        windows.sort_unstable();
        let mut total = 0;
        let mut reached = from;
        for (start, end) in windows {
            total += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        total
    }

    pub fn any_outage(&self, from: u64, to: u64) -> u64 {
        use Outage::{DiskFull, DiskStalled, Down, Paused, Unstamped};
        self.outage(from, to, &[Down, Paused, DiskStalled, DiskFull, Unstamped])
    }

    /// The greatest revision that was ever applied.
    pub fn last_revision(&self) -> i64 {
        self.commits.last_key_value().map_or(1, |(revision, _)| *revision)
    }

    /// Whether a client may have asked to end this lease before `at`.
    pub fn may_be_revoked(&self, life: LeaseLife, at: u64) -> bool {
        self.ops.iter().any(|op| {
            op.send <= at
                && op.may_have_happened()
                && matches!(op.ask, Ask::Write(Write::Revoke { id }) if id == life.id)
        })
    }
}

/// Keys with all their versions, for looking up what any revision held.
#[derive(Debug, Default)]
pub struct Versions {
    by_key: BTreeMap<Bytes, Vec<Arc<Record>>>,
}

impl Versions {
    pub fn of(history: &History) -> Versions {
        let mut versions = Versions::default();
        for record in history.commits.values().flat_map(|commit| &commit.records) {
            versions.by_key.entry(record.key.clone()).or_default().push(Arc::clone(record));
        }
        versions
    }

    /// What lived under `key` at `revision`.
    pub fn get(&self, key: &[u8], revision: i64) -> Option<&Arc<Record>> {
        let versions = self.by_key.get(key)?;
        let up_to = versions.partition_point(|record| record.at.main.0 <= revision);
        let last = &versions[up_to.checked_sub(1)?];
        (!last.is_tombstone()).then_some(last)
    }

    /// All that lived in `range` at `revision`, in key order.
    pub fn range(&self, range: &tenure_state::key::KeyRange, revision: i64) -> Vec<Arc<Record>> {
        self.by_key
            .range(range.start().clone()..)
            .filter(|(key, _)| range.contains(key))
            .filter_map(|(key, _)| self.get(key, revision).cloned())
            .collect()
    }
}
