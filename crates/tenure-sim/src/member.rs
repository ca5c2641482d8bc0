//! A member as a process on a machine: the real replica, a log and a checkpoint on a simulated disk, a clock.
//!
//! This stands where the server's loop, log thread and checkpoint thread stand. It decides nothing; it takes time.

use std::collections::VecDeque;

use tenure_replica::effect::Append;
use tenure_replica::input::Input;
use tenure_replica::wal::{Settings, WalOp, Writer};
use tenure_replica::{Config, Replica};
use tenure_state::bugs::{Bug, Bugs};
use tenure_state::ids::MemberId;

use crate::clock::{Clock, MS};
use crate::disk::Disk;
use crate::rng::Rng;
use crate::store::Folded;

/// What takes longer is a stall, which is a fault of its own: two writes stay within what the lease clock allows.
const SYNC_MAX: u64 = 40 * MS;

/// Chosen once for a run.
#[derive(Clone, Debug)]
pub struct Shape {
    pub config: Config,
    pub segment_bytes: u64,
    pub spare_count: usize,
    /// Keys that an entry may delete before it takes another turn; 0: as it is from the start.
    pub slice_max: usize,
    /// How long a sync takes, typically.
    pub sync_ns: u64,
    pub checkpoint_interval: u64,
    /// How many changed rows make a commit before the interval is over.
    pub checkpoint_rows: usize,
    pub bug: Option<Bug>,
}

impl Shape {
    pub fn bugs(&self) -> Bugs {
        Bugs::plant(self.bug)
    }
}

pub struct Member {
    pub id: MemberId,
    pub shape: Shape,
    pub clock: Clock,
    pub disk: Disk,
    pub process: Option<Process>,
    /// Counts starts and crashes: what was scheduled for an earlier one does not count.
    pub life: u64,
    pub down_since: u64,
    /// Until then nothing of the process runs.
    pub paused_until: u64,
    /// Until then no operation of the disk ends.
    pub stalled_until: u64,
    /// Operations take so many times as long.
    pub slowness: u64,
    pub rng: Rng,
    /// Digests of the state at the applied index of each checkpoint.
    pub digests: Vec<(u64, u64)>,
}

pub struct Process {
    pub replica: Replica,
    pub inbox: VecDeque<Input>,
    /// When the next turn is scheduled.
    pub turn_at: Option<u64>,
    pub busy_until: u64,
    pub log: LogThread,
    pub checkpoint: CheckpointThread,
    /// The take-over of this life is applied.
    pub active: bool,
    /// What was said of the space on the disk.
    pub told_full: bool,
    /// It was full once in this life.
    pub was_full: bool,
    pub turn_count: u64,
}

pub struct LogThread {
    writer: Writer,
    waiting: Vec<Append>,
    cut: Option<u64>,
    pub ops: VecDeque<WalOp>,
    /// The last batch that `ops` make durable.
    batch: Option<u64>,
    /// An operation is under way.
    pub busy: bool,
    skip_sync: bool,
}

/// What the log thread does next.
pub enum LogStep {
    /// The operation at the head takes so long.
    Wait(u64),
    /// The disk is full: try again later.
    Full,
    /// Everything is done.
    Idle,
}

#[derive(Default)]
pub struct CheckpointThread {
    pub folded: Folded,
    /// Being committed, with the rows as they will be.
    pub committing: Option<Folded>,
    pub due: Option<u64>,
    pub flush: bool,
}

impl Process {
    pub fn new(replica: Replica, writer: Writer, skip_sync: bool) -> Process {
        Process {
            replica,
            inbox: VecDeque::new(),
            turn_at: None,
            busy_until: 0,
            log: LogThread {
                writer,
                waiting: Vec::new(),
                cut: None,
                ops: VecDeque::new(),
                batch: None,
                busy: false,
                skip_sync,
            },
            checkpoint: CheckpointThread::default(),
            active: false,
            told_full: false,
            was_full: false,
            turn_count: 0,
        }
    }
}

impl LogThread {
    pub fn append(&mut self, append: Append) {
        self.waiting.push(append);
    }

    pub fn cut(&mut self, through: u64) {
        self.cut = self.cut.max(Some(through));
    }

    /// Takes all that waits into one write.
    pub fn next(&mut self, rng: &mut Rng, sync_ns: u64) -> LogStep {
        if self.ops.is_empty() {
            if self.waiting.is_empty() {
                return LogStep::Idle;
            }
            self.ops.extend(self.writer.append(&self.waiting));
            if self.skip_sync {
                self.ops.retain(|op| !matches!(op, WalOp::Sync { .. }));
            }
            self.batch = self.waiting.last().map(|append| append.batch);
            self.waiting.clear();
        }
        self.busy = true;
        LogStep::Wait(match self.ops.front() {
            None => 1,
            Some(WalOp::Write { bytes, .. }) => 5_000 + bytes.len() as u64,
            Some(WalOp::Sync { .. }) => rng.latency(sync_ns).min(SYNC_MAX),
            Some(WalOp::NewSegment { .. }) => (2 * rng.latency(sync_ns)).min(SYNC_MAX),
        })
    }

    /// The operation at the head ended. What is to be told to the replica, if all is durable.
    pub fn done(&mut self, disk: &mut Disk) -> Result<Option<Input>, LogStep> {
        if let Some(op) = self.ops.front() {
            if !disk.execute(op) {
                return Err(LogStep::Full);
            }
            self.ops.pop_front();
        }
        self.busy = false;
        if !self.ops.is_empty() {
            return Ok(None);
        }
        let told = self.batch.take().map(|batch| Input::Appended { batch });
        if let Some(through) = self.cut.take() {
            disk.recycle(self.writer.cut(through));
        }
        Ok(told)
    }

    /// Nothing came for a moment.
    pub fn idle(&mut self, disk: &mut Disk) {
        if !self.busy
            && self.waiting.is_empty()
            && let Some(op) = self.writer.idle()
        {
            disk.execute(&op);
        }
    }

    pub fn is_quiet(&self) -> bool {
        !self.busy && self.waiting.is_empty()
    }

    /// A cut that came while nothing is written.
    pub fn cut_now(&mut self, disk: &mut Disk) {
        if self.is_quiet()
            && let Some(through) = self.cut.take()
        {
            disk.recycle(self.writer.cut(through));
        }
    }
}

impl Member {
    pub fn new(id: MemberId, shape: Shape, clock: Clock, disk: Disk, rng: Rng) -> Member {
        Member {
            id,
            shape,
            clock,
            disk,
            process: None,
            life: 0,
            down_since: 0,
            paused_until: 0,
            stalled_until: 0,
            slowness: 1,
            rng,
            digests: Vec::new(),
        }
    }

    /// What a start writes; drawn anew each time.
    pub fn settings(&mut self) -> Settings {
        Settings {
            origin: self.disk.origin,
            segment_bytes: self.shape.segment_bytes,
            salt: self.rng.next() as u32,
        }
    }

    pub fn sync_ns(&self) -> u64 {
        (self.shape.sync_ns * self.slowness).min(SYNC_MAX)
    }

    /// Ends the process as `kill -9` does, or a power loss.
    pub fn crash(&mut self, h: u64, power_loss: bool) {
        self.life += 1;
        self.down_since = h;
        let Some(process) = self.process.take() else { return };
        if process.log.busy
            && let Some(op) = process.log.ops.front()
        {
            self.disk.interrupt(op, &mut self.rng);
        }
        // A commit is there as a whole or not at all, whether or not the process lived to hear of it.
        if let Some(folded) = &process.checkpoint.committing
            && self.rng.chance(500)
        {
            folded.commit(self.disk.origin, &mut self.disk.rows);
        }
        if power_loss {
            self.disk.lose_power(&mut self.rng);
        }
        self.paused_until = self.paused_until.min(h);
    }
}
