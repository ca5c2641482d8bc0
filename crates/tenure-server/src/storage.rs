//! What a member keeps on disk, behind one face: the log, the checkpoint, the directory that holds them.
//!
//! The driver hands over what the replica asks for and hears of it through inputs to the replica. Nothing here
//! waits for a disk but [`Storage::open`] and [`Storage::stop`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tenure_replica::Input;
use tenure_replica::effect::{Append, Checkpoint};
use tenure_replica::recover::{
    self, CHECKPOINT_FILE, Loaded, Log as LogRead, LogReader, Place, RecoverError, Recovered, RowReader,
    SegmentFile,
};
use tenure_replica::wal::{HEADER_BYTES, Origin, Settings};
use thiserror::Error;

use crate::checkpoint::{Checkpoints, ToCheckpoint};
use crate::datadir::{DataDir, DirError, DirIdentity};
use crate::disk::{self, Keeper, Log, ToLog};
use crate::store::pages::Met;
use crate::store::{self, Store, StoreError};

/// Where completions go: to the loop that owns the replica.
pub type Tell = Arc<dyn Fn(Input) + Send + Sync>;

/// Called once, when what was asked for is done.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

#[derive(Clone, Debug)]
pub struct StorageOptions {
    pub segment_bytes: u64,
    /// How many spare segments are kept ready for a full disk.
    pub spare_count: usize,
    /// How much is kept for the checkpoint on a full disk; 0 is nothing.
    pub ballast_bytes: u64,
    /// How long a change may wait for the checkpoint.
    pub checkpoint_interval: Duration,
    /// How many bytes may.
    pub checkpoint_bytes: u64,
    /// How much of the address space the checkpoint may fill. Costs nothing until it is used.
    pub map_bytes: usize,
    /// Acknowledge what a power loss may take back. For tests and throw-away clusters.
    pub unsafe_no_fsync: bool,
}

impl Default for StorageOptions {
    fn default() -> StorageOptions {
        StorageOptions {
            segment_bytes: 64 << 20,
            spare_count: 2,
            ballast_bytes: 64 << 20,
            checkpoint_interval: Duration::from_secs(5),
            checkpoint_bytes: 32 << 20,
            map_bytes: 1 << 40,
            unsafe_no_fsync: false,
        }
    }
}

impl StorageOptions {
    /// For servers that come and go by the hundred: starts at once and takes a few hundred KiB of disk.
    pub fn small() -> StorageOptions {
        StorageOptions {
            segment_bytes: 256 << 10,
            spare_count: 0,
            ballast_bytes: 0,
            map_bytes: 1 << 30,
            ..StorageOptions::default()
        }
    }
}

/// Who wants to know how long things took. Called on the threads that do them, so they must return at once.
pub struct Timings {
    pub wal_write: Observe,
    /// Told how many bytes a write had.
    pub wal_written: Box<dyn Fn(u64) + Send + Sync>,
    pub wal_fsync: Observe,
    pub commit: Observe,
    pub defragment: Observe,
    pub snapshot: Observe,
}

pub type Observe = Box<dyn Fn(Duration) + Send + Sync>;

impl Default for Timings {
    fn default() -> Timings {
        let nobody = || -> Observe { Box::new(|_| {}) };
        Timings {
            wal_write: nobody(),
            wal_written: Box::new(|_| {}),
            wal_fsync: nobody(),
            commit: nobody(),
            defragment: nobody(),
            snapshot: nobody(),
        }
    }
}

/// How far a start is: `done` of `total` of what this phase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub done: u64,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows of the checkpoint.
    Checkpoint,
    /// Segments of the log.
    Log,
}

/// Why a member does not start on a directory.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(
        "the data directory belongs to member {:x} of cluster {:x}, but these flags describe member {:x} of cluster \
         {:x}: give the advertised peer URLs and the cluster token that it was made with, or another --data-dir",
        found.member, found.cluster, expected.member, expected.cluster
    )]
    OtherMember { found: Origin, expected: Origin },
    #[error("{}: {error}", root.display())]
    Recover { root: PathBuf, error: RecoverError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: {what}: {error}", path.display())]
    Io { path: PathBuf, what: &'static str, error: io::Error },
}

impl OpenError {
    /// Whether the data is damaged, as against not reachable or not ours: its exit code is 65.
    pub fn is_damage(&self) -> bool {
        match self {
            OpenError::Dir(error) => error.is_damage(),
            OpenError::Recover { error, .. } => !matches!(error, RecoverError::NewerFormat { .. }),
            OpenError::OtherMember { .. } | OpenError::Store(_) | OpenError::Io { .. } => false,
        }
    }
}

/// What the files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub log_bytes: u64,
    pub checkpoint_bytes: u64,
    /// What waits to be committed to the checkpoint, about.
    pub pending_bytes: u64,
}

impl Sizes {
    /// etcd's `dbSize`: its file grows with every write, our checkpoint some seconds later.
    pub fn db_bytes(self) -> u64 {
        self.checkpoint_bytes + self.pending_bytes
    }
}

/// The disk of a running member. Dropping it without [`Storage::stop`] leaves what a killed process leaves.
pub struct Storage {
    // Fields end in this order: those that write first, the lock on the directory last.
    log: Log,
    checkpoints: Checkpoints,
    keeper: Arc<Keeper>,
    keeper_thread: Option<JoinHandle<()>>,
    store: Arc<Store>,
    timings: Arc<Timings>,
    dir: DataDir,
}

impl Storage {
    /// Opens the directory of a member and brings back what it holds. Another member's is refused. A start that
    /// fails changes nothing that a later one reads.
    pub fn open(
        root: &Path,
        options: &StorageOptions,
        origin: Origin,
        tell: Tell,
        timings: Timings,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Recovered, Storage), OpenError> {
        let mut dir = DataDir::open(root, origin)?;
        let found = dir.identity.origin;
        if found != origin {
            return Err(OpenError::OtherMember { found, expected: origin });
        }
        let sync = !options.unsafe_no_fsync;
        // Read without LMDB first: it trusts its file, and would crash on what is found and named here.
        let recovered = recover(&dir, progress)?;
        dir.claim()?;
        let store = Store::open(&dir.checkpoint(), options.map_bytes, sync)?;
        let settings = Settings { origin, segment_bytes: options.segment_bytes, salt: rand::random::<u32>() };
        let log_dir = dir.log();
        let io_error = |error| OpenError::Io { path: log_dir.clone(), what: "cannot begin the log", error };
        let mut left = disk::list_segments(&log_dir).map_err(io_error)?;
        let restart = recovered.restart(settings);
        let segment = restart.segment;
        let begun = disk::begin(&log_dir, restart, options).map_err(io_error)?;
        dir.started(segment)?;
        left.sort();
        let left = left.into_iter().map(|(number, _)| number).collect();
        let (keeper, keeper_thread) =
            Keeper::start(&log_dir, &dir.ballast(), options, Arc::clone(&tell), left).map_err(io_error)?;
        let store = Arc::new(store);
        let timings = Arc::new(timings);
        let log = Log::start(begun, Arc::clone(&keeper), Arc::clone(&tell), Arc::clone(&timings));
        let checkpoints = Checkpoints::start(
            Arc::clone(&store),
            origin,
            recovered.state.meta().applied,
            options,
            Arc::clone(&keeper),
            tell,
            Arc::clone(&timings),
        );
        let keeper_thread = Some(keeper_thread);
        Ok((recovered, Storage { log, checkpoints, keeper, keeper_thread, store, timings, dir }))
    }

    /// Whose directory this is, and which life of it this is.
    pub fn identity(&self) -> DirIdentity {
        self.dir.identity
    }

    /// Answered by [`Input::Appended`].
    pub fn append(&self, append: Append) {
        self.log.send(ToLog::Append(append));
    }

    /// Answered by [`Input::Checkpointed`], not necessarily one by one.
    pub fn checkpoint(&self, checkpoint: Checkpoint) {
        self.checkpoints.send(ToCheckpoint::Fold(checkpoint));
    }

    /// Gives up the log through this index.
    ///
    /// # Panics
    ///
    /// If the checkpoint is not durable up to there: what is in neither would be lost.
    pub fn cut(&self, through: u64) {
        let durable = self.checkpoints.durable();
        assert!(through <= durable, "the log is cut at {through}, the checkpoint ends at {durable}");
        self.log.send(ToLog::Cut { through });
    }

    /// Commits now what was handed over so far.
    pub fn flush(&self, done: Done) {
        self.checkpoints.send(ToCheckpoint::Flush(done));
    }

    /// Rewrites the checkpoint without its free space.
    pub fn defragment(&self, done: Done) {
        self.checkpoints.send(ToCheckpoint::Defragment(done));
    }

    /// Reads all rows in the order of their keys, as of one moment not before this call, on a thread of its own.
    /// A slow reader makes the file grow, so a bounded one must give up in time.
    pub fn snapshot(
        &self,
        mut row: impl FnMut(&[u8], &[u8]) -> io::Result<()> + Send + 'static,
        done: impl FnOnce(Result<(), SnapshotError>) + Send + 'static,
    ) {
        let store = Arc::clone(&self.store);
        let timings = Arc::clone(&self.timings);
        self.flush(Box::new(move |flushed| {
            if let Err(error) = flushed {
                return done(Err(error.into()));
            }
            // Detached: it ends with its reader.
            std::thread::spawn(move || {
                let started = Instant::now();
                let read = store.read::<SnapshotError>(|key, value| Ok(row(key, value)?));
                (timings.snapshot)(started.elapsed());
                done(read);
            });
        }));
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            log_bytes: self.log.bytes(),
            checkpoint_bytes: self.store.bytes(),
            pending_bytes: self.checkpoints.pending_bytes(),
        }
    }

    /// Writes what waits and takes a last checkpoint. What is open closes with the last owner.
    pub fn stop(&self) {
        let (done, flushed) = crossbeam_channel::bounded(1);
        self.flush(Box::new(move |result| {
            let _ = done.send(result);
        }));
        // On a full disk it may never come; the log has everything.
        let _ = flushed.recv_timeout(Duration::from_secs(10));
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.keeper.stop();
        if let Some(thread) = self.keeper_thread.take() {
            // A panic there was reported there, and aborts the release build.
            let _ = thread.join();
        }
    }
}

/// Why a read of all rows ended early.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the reader failed: {0}")]
    Reader(#[from] io::Error),
}

/// Why reading back stopped.
pub(crate) enum ReadError {
    Recover(RecoverError),
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl From<RecoverError> for ReadError {
    fn from(error: RecoverError) -> ReadError {
        ReadError::Recover(error)
    }
}

fn recover(dir: &DataDir, progress: &mut dyn FnMut(Progress)) -> Result<Recovered, OpenError> {
    let read = |path: PathBuf| {
        move |error| match error {
            ReadError::Recover(error) => OpenError::Recover { root: dir.root().to_owned(), error },
            ReadError::Io(error) => OpenError::Io { path, what: "cannot read", error },
        }
    };
    let loaded = load_rows(dir, progress).map_err(read(dir.checkpoint()))?;
    let log = load_log(dir, &loaded, progress).map_err(read(dir.log()))?;
    Ok(loaded.with(log))
}

/// The checkpoint, checked.
pub(crate) fn load_rows(dir: &DataDir, progress: &mut dyn FnMut(Progress)) -> Result<Loaded, ReadError> {
    let file = CHECKPOINT_FILE;
    let mut rows = RowReader::new(dir.identity.origin);
    let mut done = 0;
    let path = dir.checkpoint().join(store::FILE);
    if path.try_exists()? {
        store::pages::walk::<ReadError>(&path, |met| match met {
            Met::Damage { offset, what } => {
                Err(RecoverError::Damaged { file: file.to_owned(), offset, what }.into())
            }
            Met::Row { offset, key, value } => {
                rows.row(Place { file, offset }, key, value)?;
                done += 1;
                if done % 65_536 == 0 {
                    let total = rows.expected().unwrap_or(done);
                    progress(Progress { phase: Phase::Checkpoint, done, total });
                }
                Ok(())
            }
        })?;
    }
    Ok(rows.finish(file)?)
}

fn load_log(
    dir: &DataDir,
    loaded: &Loaded,
    progress: &mut dyn FnMut(Progress),
) -> Result<LogRead, ReadError> {
    let DirIdentity { origin, segment: floor, .. } = dir.identity;
    let segments = recover::plan(origin, floor, segment_files(dir)?)?;
    let mut log = LogReader::new(loaded.state.meta().applied, loaded.applied_term);
    let total = segments.len() as u64;
    for (done, segment) in segments.iter().enumerate() {
        progress(Progress { phase: Phase::Log, done: done as u64, total });
        let bytes = std::fs::read(disk::segment_path(&dir.log(), segment.header.number))?;
        log.segment(segment, &bytes)?;
    }
    progress(Progress { phase: Phase::Log, done: total, total });
    let last = segments.last().map_or("log", |segment| segment.file.as_str());
    let log = log.finish(last)?;
    let tail = log.tail;
    if tail.torn_bytes > 0 {
        tracing::warn!(
            file = last,
            offset = tail.end,
            bytes = tail.torn_bytes,
            "an incomplete record at the end of the log is cut off: a write that a crash interrupted, which was never \
             acknowledged, unless the disk is damaged there"
        );
    }
    Ok(log)
}

/// The segments of a log with their heads, as [`recover::plan`] wants them.
pub(crate) fn segment_files(dir: &DataDir) -> io::Result<Vec<SegmentFile>> {
    let mut files = Vec::new();
    for (number, path) in disk::list_segments(&dir.log())? {
        let mut head = Vec::new();
        File::open(&path)?.take(HEADER_BYTES).read_to_end(&mut head)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push(SegmentFile { file: format!("log/{name}"), number, head });
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
