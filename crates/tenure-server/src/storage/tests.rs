//! The whole disk of a member on real files.

use std::sync::Mutex;
use std::sync::mpsc;

use bytes::Bytes;
use tenure_replica::effect::{EntryKind, HardState, LogEntry, Membership};
use tenure_state::applied::{Change, LeaseRow, Meta};
use tenure_state::ids::{LeaseId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;

use super::*;

const ORIGIN: Origin = Origin { cluster: 0xc1, member: 0xa1 };

/// A running storage, and what it told.
struct Running {
    storage: Storage,
    told: mpsc::Receiver<Input>,
}

fn options() -> StorageOptions {
    StorageOptions {
        segment_bytes: 8 << 10,
        checkpoint_interval: Duration::from_millis(20),
        ..StorageOptions::small()
    }
}

fn open_with(root: &Path, options: &StorageOptions) -> Result<(Recovered, Running), OpenError> {
    let (sender, told) = mpsc::channel();
    let sender = Mutex::new(sender);
    let tell: Tell = Arc::new(move |input| {
        let _ = sender.lock().expect("nobody panics with it").send(input);
    });
    let (recovered, storage) = Storage::open(root, options, ORIGIN, tell, Timings::default(), &mut |_| {})?;
    Ok((recovered, Running { storage, told }))
}

fn open(root: &Path) -> (Recovered, Running) {
    open_with(root, &options()).expect("the directory is sound")
}

impl Running {
    fn wait(&self, mut until: impl FnMut(&Input) -> bool) {
        loop {
            let input = self.told.recv_timeout(Duration::from_secs(20)).expect("the storage answers");
            if until(&input) {
                return;
            }
        }
    }

    /// Appends and waits until it is durable.
    fn append(&self, batch: u64, entries: Vec<LogEntry>, hard_state: Option<HardState>) {
        self.storage.append(Append { batch, entries, hard_state });
        self.wait(|input| matches!(input, Input::Appended { batch: done } if *done == batch));
    }

    /// Commits a checkpoint and waits until it is durable.
    fn checkpoint(&self, applied: u64, changes: Vec<Change>) {
        self.storage.checkpoint(checkpoint(applied, changes));
        self.wait(|input| matches!(input, Input::Checkpointed { applied: done } if *done == applied));
    }
}

fn entry(index: u64) -> LogEntry {
    LogEntry { term: 1, index, kind: EntryKind::Command, data: Bytes::from(vec![index as u8; 100]) }
}

fn membership() -> Membership {
    Membership { voters: vec![0xa1], ..Membership::default() }
}

/// A checkpoint at a revision one above its applied index.
fn checkpoint(applied: u64, changes: Vec<Change>) -> Checkpoint {
    let meta = Meta {
        applied,
        clock: Nanos(applied * 1_000),
        revision: Revision(applied as i64 + 1),
        compacted: Revision(-1),
        scrubbed: RevisionAt::default(),
        alarms: Vec::new(),
    };
    Checkpoint { meta, term: 1, membership: membership(), changes }
}

fn put(revision: i64) -> Change {
    Change::Record(Arc::new(Record {
        key: format!("key-{revision}").into(),
        value: "value".into(),
        create: Revision(revision),
        at: RevisionAt { main: Revision(revision), sub: 0 },
        version: 1,
        lease: LeaseId::NONE,
    }))
}

fn lease(id: i64, deadline: u64) -> LeaseRow {
    LeaseRow {
        id: LeaseId(id),
        ttl: Nanos::from_secs(10),
        deadline: Nanos(deadline),
        base: Nanos(deadline),
        granted: Nanos(1),
        parent: LeaseId::NONE,
        depth: 0,
    }
}

#[test]
fn what_was_acknowledged_comes_back() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let state = HardState { term: 1, vote: 0xa1, commit: 3 };
    let (recovered, running) = open(dir.path());
    assert_eq!(recovered.entries, []);
    assert_eq!(running.storage.identity().boot, 1);
    running.append(1, (1..=3).map(entry).collect(), Some(state));
    running.checkpoint(2, vec![put(2), put(3), Change::Lease(lease(7, 99))]);
    drop(running);

    let (recovered, running) = open(dir.path());
    assert_eq!(running.storage.identity().boot, 2);
    assert_eq!(running.storage.identity().origin, ORIGIN);
    assert_eq!(recovered.hard_state, state);
    assert_eq!(recovered.entries, [entry(3)]);
    assert_eq!(recovered.membership, membership());
    assert_eq!((recovered.state.meta().applied, recovered.applied_term), (2, 1));
    assert_eq!(recovered.state.lease(LeaseId(7)), Some(lease(7, 99)));
    assert_eq!(recovered.state.stats().keys, 2);
}
