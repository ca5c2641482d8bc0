//! The ordered store under the checkpoint: LMDB, and the only file that may use `unsafe`, to open it.
//!
//! Every commit is one fully synced transaction. LMDB's faster modes without syncs can lose the whole file on a
//! power loss, so they are not used; the write-ahead log is what makes answers fast.

mod defrag;
pub(crate) mod pages;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, MdbError};
use tenure_replica::effect::Membership;
use tenure_replica::row::{self, Head, RowKey};
use tenure_replica::wal::Origin;
use tenure_state::applied::{Change, Meta};
use thiserror::Error;

pub(crate) const FILE: &str = "data.mdb";
/// Below this the address space is too small to be of any use.
const MAP_BYTES_MIN: usize = 1 << 26;

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("{}: the disk is full", .0.display())]
    Full(PathBuf),
    #[error("{}: the checkpoint is larger than the address space that this process may use", .0.display())]
    MapFull(PathBuf),
    #[error("{}: {what}: {error}", path.display())]
    Failed { path: PathBuf, what: &'static str, error: String },
}

/// The open store. Reads run beside a commit; only a compacting copy keeps everybody out.
pub(crate) struct Store {
    dir: PathBuf,
    map_bytes: usize,
    sync: bool,
    /// `None` only while the file is swapped.
    env: RwLock<Option<Env>>,
}

/// All that goes into the store at once.
pub(crate) struct Commit<'a> {
    pub(crate) origin: Origin,
    pub(crate) meta: &'a Meta,
    pub(crate) term: u64,
    pub(crate) membership: &'a Membership,
    /// In ascending order of keys, each once.
    pub(crate) changes: &'a mut dyn Iterator<Item = (RowKey, &'a Change)>,
}

type Rows<'e> = Database<'e, Bytes, Bytes>;

impl Store {
    pub(crate) fn open(dir: &Path, map_bytes: usize, sync: bool) -> Result<Store, StoreError> {
        let env = open_env(dir, map_bytes, sync)?;
        Ok(Store { dir: dir.to_owned(), map_bytes, sync, env: RwLock::new(Some(env)) })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Writes everything in one transaction, durable when this returns. After an error nothing of it is there.
    pub(crate) fn commit(&self, commit: Commit<'_>) -> Result<(), StoreError> {
        let env = self.env();
        self.try_commit(env.as_ref().expect("open until it is closed"), commit)
            .map_err(|error| self.error("cannot commit the checkpoint", error))
    }

    fn try_commit(&self, env: &Env, commit: Commit<'_>) -> heed::Result<()> {
        let rows = database(env)?;
        let mut txn = env.write_txn()?;
        for (key, change) in commit.changes {
            let key = key.encode();
            match row::encode_change(change) {
                Some(value) => rows.put(&mut txn, &key, &value)?,
                None => {
                    rows.delete(&mut txn, &key)?;
                }
            }
        }
        rows.put(&mut txn, &RowKey::Format.encode(), &row::encode_format(commit.origin))?;
        rows.put(&mut txn, &RowKey::Membership.encode(), &row::encode_membership(commit.membership))?;
        let head_key = RowKey::Head.encode();
        let head_is_new = rows.get(&txn, &head_key)?.is_none();
        let row_count = rows.len(&txn)? + u64::from(head_is_new);
        let head = Head { meta: commit.meta.clone(), term: commit.term, row_count };
        rows.put(&mut txn, &head_key, &row::encode_head(&head))?;
        txn.commit()
    }

    /// Visits all rows in the order of their keys, as of one moment.
    pub(crate) fn read<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let env = self.env();
        let env = env.as_ref().expect("open until it is closed");
        let error = |error| E::from(self.error("cannot read the checkpoint", error));
        let rows = database(env).map_err(error)?;
        let txn = env.read_txn().map_err(error)?;
        for row in rows.iter(&txn).map_err(error)? {
            let (key, value) = row.map_err(error)?;
            visit(key, value)?;
        }
        Ok(())
    }

    /// What the file takes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.path().metadata().map_or(0, |meta| meta.len())
    }

    fn env(&self) -> RwLockReadGuard<'_, Option<Env>> {
        self.env.read().expect("nothing panics while it holds this lock")
    }

    fn error(&self, what: &'static str, error: heed::Error) -> StoreError {
        store_error(&self.path(), what, error)
    }
}

fn database(env: &Env) -> heed::Result<Rows<'_>> {
    let txn = env.read_txn()?;
    let rows = env
        .open_databases_and_commit(txn, |opener, txn| {
            opener.open_database(txn, None).map(CommitOrAbort::<_, ()>::Commit)
        })?
        .unwrap_commit();
    Ok(rows.expect("the database without a name always exists"))
}

/// A disk with less left is taken for full when LMDB cannot write.
const SHORT_OF_SPACE_BYTES: u64 = 1 << 20;

fn store_error(path: &Path, what: &'static str, error: heed::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        heed::Error::Io(error) if crate::disk::is_full(&error) || is_short_write(&error, &path) => {
            StoreError::Full(path)
        }
        heed::Error::Mdb(MdbError::MapFull) => StoreError::MapFull(path),
        error => StoreError::Failed { path, what, error: error.to_string() },
    }
}

/// Where only a part of what it writes fits, LMDB says EIO, not ENOSPC. It has given the transaction up before it
/// touched the pages that say what is valid, and another try writes all of its pages again.
fn is_short_write(error: &io::Error, path: &Path) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        && rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < SHORT_OF_SPACE_BYTES)
}

/// Reserves as much of the address space as it gets; the file grows only as rows come.
#[expect(unsafe_code, reason = "LMDB maps its file into memory, which only we can know to be safe")]
fn open_env(dir: &Path, map_bytes: usize, sync: bool) -> Result<Env, StoreError> {
    let path = dir.join(FILE);
    let mut map_bytes = map_bytes.next_multiple_of(1 << 16);
    loop {
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes);
        if !sync {
            // SAFETY: the flag is unsafe because a power loss may then damage the file, which is what whoever
            // turned syncing off was told.
            unsafe { options.flags(heed::EnvFlags::NO_SYNC) };
        }
        // SAFETY: a memory map is undefined behaviour when the file changes under it in any other way than
        // through LMDB. The lock on the data directory keeps other processes of ours out, heed refuses to open
        // one file twice in this process, and the directory is closed to other users.
        match unsafe { options.open(dir) } {
            Ok(env) => return Ok(env),
            Err(heed::Error::Io(error))
                if error.kind() == io::ErrorKind::OutOfMemory && map_bytes / 2 >= MAP_BYTES_MIN =>
            {
                map_bytes /= 2;
            }
            Err(error) => return Err(store_error(&path, "cannot open the checkpoint", error)),
        }
    }
}

/// Makes what is written to `file` and its name in `dir` durable.
fn make_durable(file: &File, dir: &Path) -> io::Result<()> {
    file.sync_all()?;
    crate::datadir::sync_dir(dir)
}
