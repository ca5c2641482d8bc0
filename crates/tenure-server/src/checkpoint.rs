//! The thread that keeps the checkpoint: folds what changed and commits it now and then.
//!
//! A lease that is renewed a thousand times between two commits is written once. What is not committed yet is in
//! the log, so nothing is lost with it; the log is cut only behind what is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tenure_replica::Input;
use tenure_replica::effect::{Checkpoint, Membership};
use tenure_replica::row::RowKey;
use tenure_replica::wal::Origin;
use tenure_state::applied::{Change, Meta};

use crate::disk::{Keeper, abort};
use crate::storage::{StorageOptions, Tell, Timings};
use crate::store::{Commit, Store, StoreError};

/// How long to wait before trying again to commit when the disk was full.
const RETRY: Duration = Duration::from_millis(500);

/// Called once, when what was asked for is done.
pub(crate) type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

pub(crate) enum ToCheckpoint {
    Fold(Checkpoint),
    /// Commit all that came before this.
    Flush(Done),
    Defragment(Done),
}

/// The running thread. Dropping it joins the thread without a last commit.
pub(crate) struct Checkpoints {
    to_thread: Option<Sender<ToCheckpoint>>,
    thread: Option<JoinHandle<()>>,
    pending: Arc<AtomicU64>,
    durable: Arc<AtomicU64>,
}

impl Checkpoints {
    pub(crate) fn start(
        store: Arc<Store>,
        origin: Origin,
        applied: u64,
        options: &StorageOptions,
        keeper: Arc<Keeper>,
        tell: Tell,
        timings: Arc<Timings>,
    ) -> Checkpoints {
        // Without a bound of its own: a checkpoint that falls behind shows in `pending`, and the state it comes
        // from is in memory anyway.
        let (to_thread, messages) = crossbeam_channel::unbounded();
        let pending = Arc::new(AtomicU64::new(0));
        let durable = Arc::new(AtomicU64::new(applied));
        let mut worker = Worker {
            store,
            origin,
            interval: options.checkpoint_interval,
            bytes_max: options.checkpoint_bytes,
            keeper,
            tell,
            timings,
            folded: Folded::default(),
            waiting: Vec::new(),
            due: None,
            full: false,
            pending: Arc::clone(&pending),
            durable: Arc::clone(&durable),
        };
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || worker.run(&messages))
            .expect("the process may start threads while it starts");
        Checkpoints { to_thread: Some(to_thread), thread: Some(thread), pending, durable }
    }

    pub(crate) fn send(&self, message: ToCheckpoint) {
        let to_thread = self.to_thread.as_ref().expect("taken only by drop");
        to_thread.send(message).expect("the thread ends after its senders or takes the process with it");
    }

    /// How many bytes wait to be committed, about.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// The applied index that the checkpoint is durable at.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there, and aborts the release build.
            let _ = thread.join();
        }
    }
}

/// Rows that changed since the last commit; of one row the last change counts.
#[derive(Default)]
struct Folded {
    head: Option<(Meta, u64, Membership)>,
    changes: BTreeMap<RowKey, Change>,
    bytes: u64,
}

impl Folded {
    fn add(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { meta, term, membership, changes } = checkpoint;
        self.head = Some((meta, term, membership));
        for change in changes {
            let bytes = weight(&change);
            let before = self.changes.insert(RowKey::of(&change), change);
            self.bytes = self.bytes + bytes - before.as_ref().map_or(0, weight);
        }
    }
}

/// What a change weighs in memory and, about, on disk.
fn weight(change: &Change) -> u64 {
    const ROW_BYTES: u64 = 64;
    match change {
        Change::Record(record) => ROW_BYTES + (record.key.len() + record.value.len()) as u64,
        Change::RecordGone(_) | Change::Lease(_) | Change::LeaseGone(_) => ROW_BYTES,
    }
}

struct Worker {
    store: Arc<Store>,
    origin: Origin,
    interval: Duration,
    bytes_max: u64,
    keeper: Arc<Keeper>,
    tell: Tell,
    timings: Arc<Timings>,
    folded: Folded,
    /// Who asked for a commit that was not possible yet.
    waiting: Vec<Done>,
    /// When to commit.
    due: Option<Instant>,
    /// The disk was full at the last attempt.
    full: bool,
    pending: Arc<AtomicU64>,
    durable: Arc<AtomicU64>,
}

impl Worker {
    fn run(&mut self, messages: &Receiver<ToCheckpoint>) {
        loop {
            let message = match self.due {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => messages.recv_deadline(due),
            };
            match message {
                Ok(ToCheckpoint::Fold(checkpoint)) => {
                    self.folded.add(checkpoint);
                    let due = Instant::now() + self.interval;
                    self.due.get_or_insert(due);
                    // While the disk is full the retry has its own pace.
                    if self.folded.bytes >= self.bytes_max && !self.full {
                        self.commit();
                    }
                }
                Ok(ToCheckpoint::Flush(done)) => {
                    self.waiting.push(done);
                    self.commit();
                }
                Ok(ToCheckpoint::Defragment(done)) => {
                    let started = Instant::now();
                    let result = self.store.defragment();
                    (self.timings.defragment)(started.elapsed());
                    done(result);
                }
                Err(RecvTimeoutError::Timeout) => self.commit(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.pending.store(self.folded.bytes, Ordering::Relaxed);
        }
    }

    fn commit(&mut self) {
        if let Some((meta, term, membership)) = &self.folded.head {
            let started = Instant::now();
            let commit = Commit {
                origin: self.origin,
                meta,
                term: *term,
                membership,
                changes: &mut self.folded.changes.iter().map(|(key, change)| (*key, change)),
            };
            match self.store.commit(commit) {
                Ok(()) => {}
                Err(StoreError::Full(_)) => {
                    self.keeper.checkpoint_waits();
                    self.full = true;
                    self.due = Some(Instant::now() + RETRY);
                    return;
                }
                // What was written of it is not known, and LMDB may not go on after such an error.
                Err(error) => abort("cannot commit the checkpoint", &self.store.path(), &error),
            }
            (self.timings.commit)(started.elapsed());
            let applied = meta.applied;
            self.durable.store(applied, Ordering::Release);
            self.folded = Folded::default();
            (self.tell)(Input::Checkpointed { applied });
        }
        if std::mem::take(&mut self.full) {
            self.keeper.checkpoint_done();
        }
        self.due = None;
        for done in self.waiting.drain(..) {
            done(Ok(()));
        }
    }
}
