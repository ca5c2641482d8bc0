//! Everything that can happen to a replica, in one closed enum. Time is not in it: it is the other argument of
//! a turn.

use tenure_state::command::{Alarm, AlarmAction, DeleteRange, Put, Range, Txn};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision};
use tenure_state::key::KeyRange;

/// Names a request that waits for an answer. Drawn by the caller, unique among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names a watch stream of a client. Drawn by the caller, never used twice in the life of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

#[derive(Debug)]
pub enum Input {
    /// Propose a change. Answered when it is applied.
    Write {
        ticket: Ticket,
        write: Write,
    },
    /// Renew leases, in any order. All that come until the next step share it. Answered with
    /// [`crate::effect::Answer::Renewed`] in the order of `ids`.
    Renew {
        ticket: Ticket,
        ids: Vec<LeaseId>,
    },
    Read {
        ticket: Ticket,
        read: Read,
        consistency: Consistency,
    },
    /// Send the next page of a range or a transaction that answered with an unfinished page.
    NextPage {
        ticket: Ticket,
    },
    /// Nobody waits for this ticket any more: free what is kept for it.
    Forget {
        ticket: Ticket,
    },
    Watch {
        stream: StreamId,
        request: WatchInput,
    },
    /// Everything up to this batch of [`crate::effect::Append`] is durable.
    Appended {
        batch: u64,
    },
    /// The checkpoint is durable up to this applied index: the log behind it may be cut.
    Checkpointed {
        applied: u64,
    },
    /// The disk that log or checkpoint need is full, or has space again.
    DiskSpace {
        full: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Write {
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Txn),
    /// `physical`: answer only when the superseded records are gone and the checkpoint knows.
    Compact {
        revision: Revision,
        physical: bool,
    },
    /// The replica stamps it; the id was drawn at the edge.
    Grant {
        id: LeaseId,
        ttl: Nanos,
        parent: LeaseId,
    },
    Revoke {
        id: LeaseId,
    },
    Alarm {
        action: AlarmAction,
        member: MemberId,
        alarm: Alarm,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Sees everything that was acknowledged before it was asked.
    Linearizable,
    /// Some past state of this member, at once.
    Serializable,
}

#[derive(Clone, Debug)]
pub enum Read {
    /// Answered in pages: the first comes by itself, each further one for a [`Input::NextPage`]. Only range,
    /// revision, and (without bounds and sorting) the limit count here; the reader finishes the rest with
    /// `tenure_state::range::finish`.
    Range(Range),
    /// A transaction that only reads. Answered in pages like a range, all at one revision; the reader finishes each of
    /// its ranges.
    Txn(Txn),
    /// Answered by the active leader, after it was confirmed.
    TimeToLive {
        id: LeaseId,
        keys: bool,
    },
    /// All living leases, in ascending order of what is left.
    Leases,
    HashKv {
        revision: Revision,
    },
    /// A hash of the whole state.
    Digest,
    /// Nothing but the confirmation that this member can serve.
    Barrier,
    /// What the member knows of itself and the cluster; never waits.
    Status,
}

#[derive(Clone, Debug)]
pub enum WatchInput {
    Create(WatchCreate),
    Cancel {
        id: i64,
    },
    /// Asks how far the whole stream is (etcd's `progress_request`).
    Progress,
    /// The reader took so many bytes of what watch `id` was sent.
    Credit {
        id: i64,
        bytes: usize,
    },
    /// The stream is gone, with all its watches.
    Close,
}

#[derive(Clone, Debug)]
pub struct WatchCreate {
    /// 0: the hub picks one.
    pub id: i64,
    pub range: KeyRange,
    /// 0: from the next revision on. Negative ones are refused as compacted.
    pub start: i64,
    pub puts: bool,
    pub deletes: bool,
    /// Send the version before each event.
    pub prev: bool,
    /// Send a note of progress when nothing else was sent for the configured interval.
    pub progress: bool,
}
