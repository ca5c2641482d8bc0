//! The log on disk: one thread that writes what waits, makes it durable, and says so.
//!
//! Everything that arrived during one sync goes into the next write, so a slow disk makes batches, not queues. A
//! failed sync or write ends the process at once: after a failed fsync nobody knows what the disk has, a second one
//! lies, and whatever is answered from then on may be a lie too. Only "disk full" is different: nothing was
//! promised yet, and the log waits for space.

mod spares;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tenure_replica::Input;
use tenure_replica::effect::Append;
use tenure_replica::wal::{Restart, WalOp, Writer};

use crate::datadir::{create_file, sync_dir};
use crate::storage::{StorageOptions, Tell, Timings};
pub(crate) use spares::Keeper;

/// How long nothing must come before the log counts as idle and gets an empty record.
const IDLE: Duration = Duration::from_millis(20);
/// How long the log waits for space before the process gives up.
const FULL_MAX: Duration = Duration::from_secs(30);
const FULL_RETRY: Duration = Duration::from_millis(100);

pub(crate) enum ToLog {
    Append(Append),
    Cut { through: u64 },
}

/// The running log. Dropping it writes what waits and joins the thread.
pub(crate) struct Log {
    to_thread: Option<Sender<ToLog>>,
    thread: Option<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
}

impl Log {
    /// Takes over a log whose first segment of this life was just made by [`begin`].
    pub(crate) fn start(begun: Begun, keeper: Arc<Keeper>, tell: Tell, timings: Arc<Timings>) -> Log {
        // Without a bound of its own: Raft limits what is not committed, and all of it may wait here.
        let (to_thread, messages) = crossbeam_channel::unbounded();
        let bytes = Arc::new(AtomicU64::new(0));
        let mut worker = Worker { begun, keeper, tell, timings, bytes: Arc::clone(&bytes) };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || worker.run(&messages))
            .expect("the process may start threads while it starts");
        Log { to_thread: Some(to_thread), thread: Some(thread), bytes }
    }

    pub(crate) fn send(&self, message: ToLog) {
        let to_thread = self.to_thread.as_ref().expect("taken only by drop");
        to_thread.send(message).expect("the log thread ends after its senders or takes the process with it");
    }

    /// What the segments in use take on disk, spares not counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there, and aborts the release build.
            let _ = thread.join();
        }
    }
}

/// The end of the log, with its file open.
pub(crate) struct Begun {
    dir: PathBuf,
    file: File,
    writer: Writer,
    sync: bool,
}

/// Makes the segment that this life of the member begins with. It counts from the moment when it has its name.
pub(crate) fn begin(dir: &Path, restart: Restart, options: &StorageOptions) -> io::Result<Begun> {
    let Restart { segment, capacity, image, writer } = restart;
    let sync = !options.unsafe_no_fsync;
    let unnamed = match spares::take_one(dir, capacity)? {
        Some(path) => path,
        None => dir.join("spare-begin"),
    };
    let file = open_or_create(&unnamed)?;
    file.write_all_at(&image, 0)?;
    fill(&file, capacity)?;
    if sync {
        file.sync_all()?;
    }
    fs::rename(&unnamed, segment_path(dir, segment))?;
    if sync {
        sync_dir(dir)?;
    }
    Ok(Begun { dir: dir.to_owned(), file, writer, sync })
}

fn open_or_create(path: &Path) -> io::Result<File> {
    crate::datadir::private(File::options().read(true).write(true).create(true).truncate(false)).open(path)
}

/// Writes zeros behind the end of the file until it is so long. Overwriting what was written once is half again as
/// fast to sync as growing a file, and cannot run out of space.
pub(crate) fn fill(file: &File, capacity: u64) -> io::Result<()> {
    const STEP: usize = 1 << 18;
    let zeros = vec![0; STEP];
    let mut len = file.metadata()?.len();
    while len < capacity {
        let step = (capacity - len).min(STEP as u64);
        file.write_all_at(&zeros[..usize::try_from(step).expect("a step is small")], len)?;
        len += step;
    }
    Ok(())
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.wal"))
}

/// The segment files of a directory by number, in no order.
pub(crate) fn list_segments(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(".wal")).and_then(|number| number.parse().ok());
        if let Some(number) = number {
            segments.push((number, path));
        }
    }
    Ok(segments)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Ends the process: what the disk holds is not known any more, and nothing may be acknowledged.
pub(crate) fn abort(what: &str, path: &Path, error: &dyn std::fmt::Display) -> ! {
    let path = path.display();
    tracing::error!(%path, %error, "{what}: the process ends, because what the disk holds is not known any more");
    // Also where nobody set up a log.
    eprintln!(
        "tenure: {what} {path}: {error}. The process ends, because what the disk holds is not known any more"
    );
    std::process::abort()
}

struct Worker {
    begun: Begun,
    keeper: Arc<Keeper>,
    tell: Tell,
    timings: Arc<Timings>,
    bytes: Arc<AtomicU64>,
}

impl Worker {
    fn run(&mut self, messages: &Receiver<ToLog>) {
        self.count_bytes();
        let mut idle = true;
        loop {
            let first = if idle {
                messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                messages.recv_timeout(IDLE)
            };
            match first {
                Ok(first) => {
                    let waiting: Vec<ToLog> = std::iter::once(first).chain(messages.try_iter()).collect();
                    idle &= !self.carry_out(&waiting);
                }
                Err(end) => {
                    if !idle && let Some(op) = self.begun.writer.idle() {
                        self.execute(&op);
                    }
                    idle = true;
                    if end == RecvTimeoutError::Disconnected {
                        return;
                    }
                }
            }
        }
    }

    /// Returns whether anything was written.
    fn carry_out(&mut self, messages: &[ToLog]) -> bool {
        let appends = || {
            messages.iter().filter_map(|message| match message {
                ToLog::Append(append) => Some(append),
                ToLog::Cut { .. } => None,
            })
        };
        let ops = self.begun.writer.append(appends());
        for op in &ops {
            self.execute(op);
        }
        if let Some(last) = appends().next_back() {
            (self.tell)(Input::Appended { batch: last.batch });
        }
        let through = messages.iter().filter_map(|message| match message {
            ToLog::Cut { through } => Some(*through),
            ToLog::Append(_) => None,
        });
        if let Some(through) = through.max() {
            self.keeper.recycle(self.begun.writer.cut(through));
        }
        self.count_bytes();
        !ops.is_empty()
    }

    fn count_bytes(&self) {
        let count = self.begun.writer.segment_count() as u64;
        self.bytes.store(count * self.keeper.segment_bytes(), Ordering::Relaxed);
    }

    fn execute(&mut self, op: &WalOp) {
        let started = Instant::now();
        match op {
            WalOp::Write { segment, offset, bytes } => {
                let file = &self.begun.file;
                let path = segment_path(&self.begun.dir, *segment);
                self.patiently("cannot write to the log", &path, || file.write_all_at(bytes, *offset));
                (self.timings.wal_write)(started.elapsed());
                (self.timings.wal_written)(bytes.len() as u64);
            }
            WalOp::Sync { segment } => {
                if self.begun.sync
                    && let Err(error) = self.begun.file.sync_data()
                {
                    let path = segment_path(&self.begun.dir, *segment);
                    abort("cannot sync the log", &path, &error);
                }
                (self.timings.wal_fsync)(started.elapsed());
            }
            WalOp::NewSegment { segment, capacity, head } => {
                let path = segment_path(&self.begun.dir, *segment);
                self.begun.file = self.new_segment(&path, *capacity, head);
            }
        }
    }

    fn new_segment(&self, path: &Path, capacity: u64, head: &[u8]) -> File {
        let dir = &self.begun.dir;
        let (file, unnamed) = self.keeper.take().unwrap_or_else(|| {
            let unnamed = dir.join("spare-begin");
            let file = self.patiently("cannot create a log segment", &unnamed, || create_file(&unnamed));
            (file, unnamed)
        });
        self.patiently("cannot prepare a log segment", &unnamed, || {
            fill(&file, capacity)?;
            file.write_all_at(head, 0)
        });
        let named = (|| {
            if self.begun.sync {
                file.sync_all()?;
            }
            fs::rename(&unnamed, path)?;
            if self.begun.sync { sync_dir(dir) } else { Ok(()) }
        })();
        if let Err(error) = named {
            abort("cannot begin a log segment", path, &error);
        }
        file
    }

    /// Does something that may need space, again and again while the disk is full. Nothing was promised that
    /// depends on it, so waiting is right, up to a limit; any other error is the end.
    fn patiently<T>(&self, what: &str, path: &Path, mut attempt: impl FnMut() -> io::Result<T>) -> T {
        let started = Instant::now();
        loop {
            match attempt() {
                Ok(done) => return done,
                Err(error) if is_full(&error) && started.elapsed() < FULL_MAX => {
                    self.keeper.give_up_ballast();
                    std::thread::sleep(FULL_RETRY);
                }
                Err(error) => abort(what, path, &error),
            }
        }
    }
}
