//! The directory of a member: its layout, its lock, and whose it is.
//!
//! ```text
//! DIR/LOCK          locked while a process uses the directory; holds its pid
//! DIR/identity      whose directory this is, how often it was started; text, replaced as a whole, and written before
//!                   anything is put into the directories below
//! DIR/log/          segments of the write-ahead log (`0000000000000007.wal`) and spare files for it
//! DIR/checkpoint/   the ordered store
//! DIR/ballast       zeros, given up when the disk is full
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use tenure_replica::checksum::crc32c;
use tenure_replica::recover::WAY_OUT;
use tenure_replica::wal::Origin;
use thiserror::Error;

/// The version of the layout. A newer one is refused by name.
const FORMAT: u32 = 1;
const TITLE: &str = "tenure data directory";

/// Why a directory is not used.
#[derive(Debug, Error)]
pub enum DirError {
    #[error("{}: {what}: {error}", path.display())]
    Io { path: PathBuf, what: &'static str, error: io::Error },
    #[error(
        "{} is in use by {holder}: stop that one, or give this one another directory",
        path.display()
    )]
    Locked { path: PathBuf, holder: String },
    #[error(
        "{} is a data directory of etcd: Tenure keeps its data in a format of its own. Give Tenure an empty \
         directory, and move the keys through a client while both run",
        path.display()
    )]
    Etcd { path: PathBuf },
    #[error("{} is not empty and not a data directory of Tenure (there is `{found}`): give an empty one", path.display())]
    Foreign { path: PathBuf, found: String },
    #[error("{} is not a directory: give --data-dir one, or a path where one can be made", path.display())]
    NotADirectory { path: PathBuf },
    #[error("{} must be writable by user {user}, as whom this process runs: {error}", path.display())]
    NotWritable { path: PathBuf, user: u32, error: io::Error },
    #[error("{} belongs to user {owner}, but this process runs as user {user}: `chown -R {user}` it", path.display())]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "{} may be used by others than its owner (mode {mode:03o}): `chmod {right:03o}` it, after making sure that \
         nobody changed what is in it",
        path.display()
    )]
    Mode { path: PathBuf, mode: u32, right: u32 },
    #[error("{} was written by a newer Tenure, in format {found}; this build reads formats up to {FORMAT}", path.display())]
    NewerFormat { path: PathBuf, found: u32 },
    #[error("{} is damaged: {what}. {IDENTITY_MATTERS} {WAY_OUT}", path.display())]
    DamagedIdentity { path: PathBuf, what: &'static str },
    #[error("{} is missing, but `{found}` is there. {IDENTITY_MATTERS} {WAY_OUT}", path.display())]
    MissingIdentity { path: PathBuf, found: String },
    #[error("{} does not exist or is not a data directory of Tenure", path.display())]
    Missing { path: PathBuf },
}

impl DirError {
    /// Whether the data is damaged, as against not reachable or not ours.
    pub fn is_damage(&self) -> bool {
        matches!(self, DirError::DamagedIdentity { .. } | DirError::MissingIdentity { .. })
    }
}

/// Why an old or guessed identity will not do.
const IDENTITY_MATTERS: &str =
    "It says whose data this is and how often it was started, a number that must never go back.";

fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> DirError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::NotADirectory => DirError::NotADirectory { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            DirError::NotWritable { path, user: rustix::process::geteuid().as_raw(), error }
        }
        _ => DirError::Io { path, what, error },
    }
}

/// Whose directory this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirIdentity {
    pub origin: Origin,
    /// The number of this life of the member: one more with each start, so that nothing of an earlier life is
    /// ever taken for something of this one.
    pub boot: u64,
    /// The log segment that the last start began; 0 if the log was never begun. A log that ends before it has
    /// lost something.
    pub(crate) segment: u64,
}

/// A directory that this process holds the lock of.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    pub(crate) identity: DirIdentity,
    /// The lock is on the open file: it goes when the process does, however it ends.
    _lock: File,
}

impl DataDir {
    /// Opens the directory; one that does not exist or is empty becomes one of `fresh` with [`DataDir::claim`].
    pub fn open(root: &Path, fresh: Origin) -> Result<DataDir, DirError> {
        create_dir(root)?;
        let mode = check_owner(root)?;
        let known = classify(root)?;
        if known {
            check_mode(root, mode, 0o700)?;
        } else if mode & 0o077 != 0 {
            // It is empty and ours, so there is nothing yet that others could have read or changed.
            let private = fs::Permissions::from_mode(0o700);
            fs::set_permissions(root, private).map_err(io_error(root, "cannot restrict to its owner"))?;
        }
        let lock = lock(root)?;
        let path = root.join("identity");
        let identity = if path.try_exists().map_err(io_error(&path, "cannot look for it"))? {
            read_identity(&path)?
        } else {
            // A start that was interrupted before it wrote one left nothing but empty directories.
            if let Some(found) = remains(root)? {
                return Err(DirError::MissingIdentity { path, found });
            }
            DirIdentity { origin: fresh, boot: 0, segment: 0 }
        };
        let dir = DataDir { root: root.to_owned(), identity, _lock: lock };
        for sub in [dir.log(), dir.checkpoint()] {
            create_dir(&sub)?;
            let mode = check_owner(&sub)?;
            check_mode(&sub, mode, 0o700)?;
        }
        sync_dir(root).map_err(io_error(root, "cannot sync"))?;
        Ok(dir)
    }

    /// Makes a new directory that of its first owner. To be called before anything is put into it.
    pub(crate) fn claim(&self) -> Result<(), DirError> {
        if self.identity.boot == 0 { self.write_identity() } else { Ok(()) }
    }

    /// Opens an existing directory to look at it, changing nothing. Whoever uses it is refused the same way. Of a
    /// directory whose identity cannot be read, `guess` says from its path whose files are in it, and the damage
    /// comes along.
    pub fn open_read_only(
        root: &Path,
        guess: impl FnOnce(&Path) -> Option<Origin>,
    ) -> Result<(DataDir, Option<DirError>), DirError> {
        let path = root.join("identity");
        let is_there = path.is_file();
        let found = if is_there || !root.is_dir() { None } else { remains(root)? };
        if !is_there && found.is_none() {
            return Err(match root.is_dir().then(|| classify(root)) {
                Some(Err(error)) => error,
                _ => DirError::Missing { path: root.to_owned() },
            });
        }
        let lock = lock(root)?;
        let read = match found {
            Some(found) => Err(DirError::MissingIdentity { path, found }),
            None => read_identity(&path),
        };
        let (identity, damage) = match read {
            Ok(identity) => (identity, None),
            Err(error) => match guess(root).filter(|_| error.is_damage()) {
                Some(origin) => (DirIdentity { origin, boot: 0, segment: 0 }, Some(error)),
                None => return Err(error),
            },
        };
        Ok((DataDir { root: root.to_owned(), identity, _lock: lock }, damage))
    }

    /// Notes a start: from now on this is another life of the member, and its log begins with `segment`.
    pub(crate) fn started(&mut self, segment: u64) -> Result<(), DirError> {
        self.identity.boot += 1;
        self.identity.segment = segment;
        self.write_identity()
    }

    fn write_identity(&self) -> Result<(), DirError> {
        let path = self.root.join("identity");
        let next = self.root.join("identity.new");
        let mut file = create_file(&next).map_err(io_error(&next, "cannot create"))?;
        file.write_all(encode_identity(&self.identity).as_bytes())
            .map_err(io_error(&next, "cannot write"))?;
        file.sync_all().map_err(io_error(&next, "cannot sync"))?;
        fs::rename(&next, &path).map_err(io_error(&path, "cannot rename to it"))?;
        sync_dir(&self.root).map_err(io_error(&self.root, "cannot sync"))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    pub(crate) fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }
}

/// Whether this is a directory of ours; one of somebody else is refused.
fn classify(root: &Path) -> Result<bool, DirError> {
    const OURS: [&str; 7] =
        ["LOCK", "identity", "identity.new", "log", "checkpoint", "ballast", "ballast.new"];
    let mut known = false;
    let mut other = None;
    for entry in fs::read_dir(root).map_err(io_error(root, "cannot list"))? {
        let entry = entry.map_err(io_error(root, "cannot list"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        known |= OURS.contains(&name.as_str());
        if name == "member" && root.join("member/wal").is_dir() {
            return Err(DirError::Etcd { path: root.to_owned() });
        }
        // A fresh file system has this one.
        if !OURS.contains(&name.as_str()) && name != "lost+found" {
            other = Some(name);
        }
    }
    match other {
        Some(found) if !known => Err(DirError::Foreign { path: root.to_owned(), found }),
        _ => Ok(known),
    }
}

/// Something of an earlier life of the directory, if there is any.
fn remains(root: &Path) -> Result<Option<String>, DirError> {
    for sub in ["log", "checkpoint"] {
        let path = root.join(sub);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(io_error(&path, "cannot list"))?,
        };
        for entry in entries {
            let name =
                entry.map_err(io_error(&path, "cannot list"))?.file_name().to_string_lossy().into_owned();
            if name != "lost+found" {
                return Ok(Some(format!("{sub}/{name}")));
            }
        }
    }
    Ok(None)
}

fn check_owner(path: &Path) -> Result<u32, DirError> {
    let meta = fs::metadata(path).map_err(io_error(path, "cannot look at"))?;
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        return Err(DirError::Owner { path: path.to_owned(), owner: meta.uid(), user });
    }
    Ok(meta.mode() & 0o777)
}

fn check_mode(path: &Path, mode: u32, right: u32) -> Result<(), DirError> {
    if mode & 0o077 != 0 {
        return Err(DirError::Mode { path: path.to_owned(), mode, right });
    }
    Ok(())
}

fn create_dir(path: &Path) -> Result<(), DirError> {
    if path.metadata().is_ok_and(|meta| !meta.is_dir()) {
        return Err(DirError::NotADirectory { path: path.to_owned() });
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error(path, "cannot create the directory"))
}

fn lock(root: &Path) -> Result<File, DirError> {
    let path = root.join("LOCK");
    let mut file = private(OpenOptions::new().read(true).write(true).create(true))
        .open(&path)
        .map_err(io_error(root, "cannot open LOCK in it"))?;
    // A process that is just ending, or a child between fork and exec, holds it for a moment longer.
    let mut attempts_left = 20;
    let locked = loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if attempts_left > 0 => {
                attempts_left -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other,
        }
    };
    match locked {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let holder = match pid.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(DirError::Locked { path: root.to_owned(), holder });
        }
        Err(errno) => return Err(io_error(&path, "cannot lock")(errno.into())),
    }
    // Only for people to read, so it needs no sync.
    file.set_len(0).map_err(io_error(&path, "cannot write"))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
        .map_err(io_error(&path, "cannot write"))?;
    Ok(file)
}

fn encode_identity(identity: &DirIdentity) -> String {
    let DirIdentity { origin, boot, segment } = identity;
    let (cluster, member) = (origin.cluster, origin.member);
    let text = format!(
        "{TITLE}\nformat {FORMAT}\ncluster {cluster:016x}\nmember {member:016x}\nboot {boot}\nsegment {segment}\n"
    );
    let crc = crc32c(&[text.as_bytes()]);
    format!("{text}crc {crc:08x}\n")
}

fn read_identity(path: &Path) -> Result<DirIdentity, DirError> {
    let text = fs::read(path).map_err(io_error(path, "cannot read"))?;
    let damaged = |what| DirError::DamagedIdentity { path: path.to_owned(), what };
    let text = String::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    // In all formats the last line is the checksum of the others, and the second one names the format.
    let Some((body, crc)) = text.rsplit_once("crc ") else { return Err(damaged("it has no checksum")) };
    if crc != format!("{:08x}\n", crc32c(&[body.as_bytes()])) {
        return Err(damaged("its checksum does not match"));
    }
    let mut lines = body.lines();
    if lines.next() != Some(TITLE) {
        return Err(damaged("it does not begin as such a file does"));
    }
    let mut field = |name: &str, radix| {
        let value = lines.next().and_then(|line| line.strip_prefix(name)).map(str::trim);
        value.and_then(|value| u64::from_str_radix(value, radix).ok())
    };
    let format = field("format", 10).ok_or_else(|| damaged("it names no format"))?;
    if format > u64::from(FORMAT) {
        let found = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(DirError::NewerFormat { path: path.to_owned(), found });
    }
    let fields = (field("cluster", 16), field("member", 16), field("boot", 10), field("segment", 10));
    let (Some(cluster), Some(member), Some(boot), Some(segment)) = fields else {
        return Err(damaged("a line is missing"));
    };
    Ok(DirIdentity { origin: Origin { cluster, member }, boot, segment })
}

/// Options for a file that only its owner may touch and that is not somewhere else.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
}

pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().read(true).write(true).create(true).truncate(true)).open(path)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests;
