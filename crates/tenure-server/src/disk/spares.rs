//! What is kept ready for the day when the disk is full: spare files for the log, filled with zeros, and a ballast
//! file that is given up for the checkpoint. One thread makes them, in the background; it also takes segments that
//! the log needs no more.
//!
//! When something cannot be made the disk counts as full, and has space again when everything is there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_replica::Input;

use crate::datadir::{create_file, sync_dir};
use crate::disk::{fill, is_full, segment_path};
use crate::storage::{StorageOptions, Tell};

/// How long to wait before trying again to make something that the disk had no space for.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    state: Mutex<State>,
    changed: Condvar,
    log: PathBuf,
    ballast: PathBuf,
    segment_bytes: u64,
    spare_count: usize,
    ballast_bytes: u64,
    sync: bool,
    tell: Tell,
}

struct State {
    spares: Vec<(File, PathBuf)>,
    /// Segments to take, oldest first.
    recycle: Vec<u64>,
    ballast: bool,
    full: bool,
    /// The checkpoint could not be written: what space there is belongs to it.
    checkpoint_waits: bool,
    next_name: u64,
    stop: bool,
}

impl Keeper {
    /// `left` are the segments of earlier lives. The one that this life began with supersedes them all, so they
    /// go at once and in any order: a member that crashes again and again must not fill the disk with them.
    pub(crate) fn start(
        log: &Path,
        ballast: &Path,
        options: &StorageOptions,
        tell: Tell,
        left: Vec<u64>,
    ) -> io::Result<(Arc<Keeper>, JoinHandle<()>)> {
        let mut state = State {
            spares: Vec::new(),
            recycle: Vec::new(),
            ballast: ballast.metadata().is_ok_and(|meta| meta.len() == options.ballast_bytes),
            full: false,
            checkpoint_waits: false,
            next_name: 0,
            stop: false,
        };
        for path in list(log)? {
            let file = File::options().read(true).write(true).open(&path)?;
            let number =
                path.file_name().and_then(|name| name.to_str()?.strip_prefix("spare-")?.parse().ok());
            let usable = file.metadata()?.len() == options.segment_bytes;
            match number {
                Some(number) if usable => {
                    state.next_name = state.next_name.max(number);
                    state.spares.push((file, path));
                }
                // Half made, or made when segments had another size.
                _ => fs::remove_file(&path)?,
            }
        }
        for segment in left {
            let path = segment_path(log, segment);
            if state.spares.len() < options.spare_count && path.metadata()?.len() == options.segment_bytes {
                state.next_name += 1;
                let spare = spare_path(log, state.next_name);
                fs::rename(&path, &spare)?;
                state.spares.push((File::options().read(true).write(true).open(&spare)?, spare));
            } else {
                fs::remove_file(&path)?;
            }
        }
        if !options.unsafe_no_fsync {
            sync_dir(log)?;
        }
        let keeper = Arc::new(Keeper {
            state: Mutex::new(state),
            changed: Condvar::new(),
            log: log.to_owned(),
            ballast: ballast.to_owned(),
            segment_bytes: options.segment_bytes,
            spare_count: options.spare_count,
            ballast_bytes: options.ballast_bytes,
            sync: !options.unsafe_no_fsync,
            tell,
        });
        let worker = Arc::clone(&keeper);
        let thread = std::thread::Builder::new().name("spares".to_owned()).spawn(move || worker.run())?;
        Ok((keeper, thread))
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// A spare file, if there is one.
    pub(crate) fn take(&self) -> Option<(File, PathBuf)> {
        let spare = self.lock().spares.pop();
        self.changed.notify_all();
        spare
    }

    /// Takes segments that the log needs no more.
    pub(crate) fn recycle(&self, segments: Vec<u64>) {
        if !segments.is_empty() {
            self.lock().recycle.extend(segments);
            self.changed.notify_all();
        }
    }

    /// The log has no spare file left and the disk is full.
    pub(crate) fn give_up_ballast(&self) {
        self.give_up(&mut self.lock());
    }

    /// The checkpoint could not be written because the disk is full: makes room for it.
    pub(crate) fn checkpoint_waits(&self) {
        let mut state = self.lock();
        state.checkpoint_waits = true;
        self.give_up(&mut state);
    }

    /// The checkpoint is written.
    pub(crate) fn checkpoint_done(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.checkpoint_waits) {
            self.changed.notify_all();
        }
    }

    fn give_up(&self, state: &mut State) {
        self.set_full(state, true);
        state.ballast = false;
        // If it is not there, there is nothing to give up.
        let _ = fs::remove_file(&self.ballast);
    }

    fn set_full(&self, state: &mut State, full: bool) {
        if std::mem::replace(&mut state.full, full) != full {
            if full {
                tracing::warn!(path = %self.log.display(), "the disk is full");
            } else {
                tracing::info!(path = %self.log.display(), "the disk has space again");
            }
            (self.tell)(Input::DiskSpace { full });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let attempt = match self.next_task(&mut state) {
                Some(task) => {
                    drop(state);
                    let made = self.carry_out(task);
                    state = self.lock();
                    made.map(|made| match made {
                        Made::Spare(spare) => state.spares.push(spare),
                        Made::Ballast => state.ballast = true,
                        Made::Nothing => {}
                    })
                }
                None => {
                    if !state.checkpoint_waits {
                        self.set_full(&mut state, false);
                    }
                    state = self.changed.wait(state).expect("nothing panics while it holds this lock");
                    continue;
                }
            };
            if let Err(error) = attempt {
                if is_full(&error) {
                    self.set_full(&mut state, true);
                } else {
                    // Nothing is lost by it: the log makes its own segments when there are no spares.
                    tracing::warn!(path = %self.log.display(), %error, "cannot prepare spare files");
                }
                let wait = self.changed.wait_timeout(state, RETRY);
                state = wait.expect("nothing panics while it holds this lock").0;
            }
        }
    }

    fn next_task(&self, state: &mut State) -> Option<Task> {
        if !state.recycle.is_empty() {
            let segment = state.recycle.remove(0);
            // A few more than needed, so that a busy log goes on with old files instead of making new ones.
            let keep = state.spares.len() < 2 * self.spare_count;
            state.next_name += 1;
            let spare = keep.then(|| spare_path(&self.log, state.next_name));
            return Some(Task::Recycle { segment, spare });
        }
        if state.spares.len() < self.spare_count {
            state.next_name += 1;
            return Some(Task::Spare(spare_path(&self.log, state.next_name)));
        }
        let wanted = self.ballast_bytes > 0 && !state.ballast && !state.checkpoint_waits;
        wanted.then_some(Task::Ballast)
    }

    fn carry_out(&self, task: Task) -> io::Result<Made> {
        match task {
            Task::Recycle { segment, spare } => self.take_segment(segment, spare),
            Task::Spare(path) => {
                let file = self.make(&self.log, &path, self.segment_bytes)?;
                Ok(Made::Spare((file, path)))
            }
            Task::Ballast => {
                self.make(&self.log, &self.ballast, self.ballast_bytes)?;
                Ok(Made::Ballast)
            }
        }
    }

    fn take_segment(&self, segment: u64, spare: Option<PathBuf>) -> io::Result<Made> {
        let path = segment_path(&self.log, segment);
        let file = File::options().read(true).write(true).open(&path)?;
        let made = match spare {
            Some(spare) if file.metadata()?.len() == self.segment_bytes => {
                fs::rename(&path, &spare)?;
                Made::Spare((file, spare))
            }
            _ => {
                fs::remove_file(&path)?;
                Made::Nothing
            }
        };
        // The old name must be gone before the file gets other content, and before the next younger one goes.
        if self.sync {
            sync_dir(&self.log)?;
        }
        Ok(made)
    }

    /// Makes a file of zeros, or nothing.
    fn make(&self, measured: &Path, path: &Path, bytes: u64) -> io::Result<File> {
        let stat = rustix::fs::statvfs(measured)?;
        if stat.f_bavail.saturating_mul(stat.f_frsize) < bytes {
            // Asked first, so that a full disk is not filled and emptied every second.
            return Err(io::ErrorKind::StorageFull.into());
        }
        let unfinished = path.with_extension("new");
        let made = (|| {
            let file = create_file(&unfinished)?;
            fill(&file, bytes)?;
            if self.sync {
                file.sync_all()?;
            }
            fs::rename(&unfinished, path)?;
            Ok(file)
        })();
        if made.is_err() {
            // What is there is no use, and its space is.
            let _ = fs::remove_file(&unfinished);
        }
        made
    }
}

enum Task {
    /// Into a spare file of this name, or away.
    Recycle {
        segment: u64,
        spare: Option<PathBuf>,
    },
    Spare(PathBuf),
    Ballast,
}

enum Made {
    Spare((File, PathBuf)),
    Ballast,
    Nothing,
}

fn spare_path(log: &Path, number: u64) -> PathBuf {
    log.join(format!("spare-{number:016}"))
}

/// A spare file of an earlier life that is long enough, for the first segment of this one.
pub(super) fn take_one(log: &Path, capacity: u64) -> io::Result<Option<PathBuf>> {
    for path in list(log)? {
        if path.extension().is_none() && path.metadata()?.len() == capacity {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn list(log: &Path) -> io::Result<Vec<PathBuf>> {
    let mut spares = Vec::new();
    for entry in fs::read_dir(log)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("spare-") {
            spares.push(entry.path());
        }
    }
    spares.sort();
    Ok(spares)
}
