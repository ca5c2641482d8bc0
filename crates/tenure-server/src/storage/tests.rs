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

#[test]
fn an_append_over_many_segments_is_cut_and_recycled() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let options = StorageOptions { spare_count: 2, ballast_bytes: 10_000, ..options() };
    let (_, running) = open_with(dir.path(), &options).expect("the directory is new");
    for index in 1..=400 {
        running.append(index, vec![entry(index)], None);
        if index % 50 == 0 {
            running.checkpoint(index - 5, vec![put(index as i64 - 4)]);
            running.storage.cut(index - 5);
        }
    }
    let (checkpoint, log) = (running.storage.sizes().checkpoint_bytes, running.storage.sizes().log_bytes);
    assert!(checkpoint > 0 && (1..400 * 140).contains(&log), "{log}");
    drop(running);
    let (recovered, running) = open_with(dir.path(), &options).expect("the directory is sound");
    assert_eq!(recovered.entries, (396..=400).map(entry).collect::<Vec<_>>());
    running.storage.stop();
    drop(running);
    let (recovered, _) = open_with(dir.path(), &options).expect("the directory is sound");
    assert_eq!(recovered.entries.len(), 5);
    for _ in 0..20 {
        drop(open_with(dir.path(), &options).expect("the directory is sound"));
    }
    let files = std::fs::read_dir(dir.path().join("log")).expect("it is there").count();
    assert!(files <= 8, "{files} files are left of a log of fifty segments and twenty starts");
}

/// Rows of all shapes: small ones, values with pages of their own, deletions.
fn fill_checkpoint(running: &Running) {
    let big = |revision: i64, len: usize| match put(revision) {
        Change::Record(record) => {
            let value = Bytes::from(vec![revision as u8; len]);
            Change::Record(Arc::new(Record { value, ..(*record).clone() }))
        }
        other => other,
    };
    let changes = (2..1_000).map(|revision| big(revision, revision as usize % 17 * 400)).collect();
    running.checkpoint(1_000, changes);
    let gone = (2..900).map(|revision| Change::RecordGone(RevisionAt { main: Revision(revision), sub: 0 }));
    let leases = (1..50).map(|id| Change::Lease(lease(id, 1_000_000)));
    running.storage.checkpoint(checkpoint(1_500, gone.chain(leases).collect()));
    running.checkpoint(2_000, vec![Change::LeaseGone(LeaseId(7)), Change::Lease(lease(-3, 5))]);
}

fn rows(running: &Running) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (sender, rows) = mpsc::channel();
    let (done_sender, done) = mpsc::channel();
    running.storage.snapshot(
        move |key, value| {
            let _ = sender.send((key.to_vec(), value.to_vec()));
            Ok(())
        },
        move |result| {
            let _ = done_sender.send(result);
        },
    );
    done.recv().expect("it is answered").expect("it can be read");
    rows.iter().collect()
}

#[test]
fn a_snapshot_and_a_start_read_what_was_committed_also_after_a_defragmentation() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, running) = open(dir.path());
    fill_checkpoint(&running);
    let before = rows(&running);
    assert_eq!(before.len(), 100 + 49 + 3);
    let size = running.storage.sizes().checkpoint_bytes;
    let (sender, done) = mpsc::channel();
    running.storage.defragment(Box::new(move |result| {
        let _ = sender.send(result);
    }));
    done.recv().expect("it is answered").expect("there is space for a copy");
    assert!(running.storage.sizes().checkpoint_bytes < size / 2, "little was given back");
    assert_eq!(rows(&running), before);
    running.checkpoint(2_001, vec![put(2_002)]);
    assert_eq!(rows(&running).len(), before.len() + 1);
    running.storage.stop();
    drop(running);
    // The walk without LMDB must see exactly what LMDB sees.
    let mut walked = Vec::new();
    store::pages::walk::<io::Error>(&dir.path().join(CHECKPOINT_FILE), |met| {
        match met {
            Met::Row { key, value, .. } => walked.push((key.to_vec(), value.to_vec())),
            Met::Damage { offset, what } => panic!("{offset}: {what}"),
        }
        Ok(())
    })
    .expect("it can be read");
    assert_eq!(walked.len(), before.len() + 1);
    let (recovered, running) = open(dir.path());
    assert_eq!(rows(&running), walked);
    assert_eq!(recovered.state.stats().records, 101);
    assert_eq!(recovered.state.lease(LeaseId(-3)), Some(lease(-3, 5)));
    assert_eq!(recovered.state.lease(LeaseId(7)), None);
}

#[test]
fn a_checkpoint_that_falls_behind_commits_by_size() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let hours = Duration::from_secs(36_000);
    let options = StorageOptions { checkpoint_interval: hours, checkpoint_bytes: 10_000, ..options() };
    let (_, running) = open_with(dir.path(), &options).expect("the directory is new");
    for applied in 1..=200 {
        running.storage.checkpoint(checkpoint(applied, vec![put(applied as i64 + 1)]));
    }
    running.wait(|input| matches!(input, Input::Checkpointed { applied } if *applied > 100));
}

/// Each damage names its file, and the directory is refused with the exit code for it.
fn assert_refused(root: &Path, file: &str) -> String {
    let error = open_with(root, &options()).map(|_| ()).expect_err("it is damaged");
    assert!(error.is_damage(), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(file) && (message.contains("offset") || message.contains("missing")),
        "{message}"
    );
    assert!(message.contains("tenure check DIR") && message.contains("tenure export DIR"), "{message}");
    // Not what `Debug` writes.
    assert!(!message.contains('{') && !message.contains("Revision("), "{message}");
    let report = crate::inspect::check(root).expect("it can be looked at");
    assert_eq!(report.exit_code(), 65);
    assert_eq!(report.findings[0].file, file);
    message
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is that long");
    file.write_all_at(&[byte[0] ^ 4], at).expect("it can be written");
}

#[test]
fn a_flipped_bit_in_a_row_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, running) = open(dir.path());
    fill_checkpoint(&running);
    drop(running);
    let path = dir.path().join(CHECKPOINT_FILE);
    let mut places = Vec::new();
    store::pages::walk::<io::Error>(&path, |met| {
        if let Met::Row { offset, value, .. } = met {
            places.push(offset + value.len() as u64 / 2);
        }
        Ok(())
    })
    .expect("it can be read");
    for at in [places[0], places[1], places[50], places[places.len() - 1]] {
        flip(&path, at);
        let message = assert_refused(dir.path(), CHECKPOINT_FILE);
        assert!(message.contains("checksum") && !message.contains("offset 0:"), "{message}");
        flip(&path, at);
    }
    flip(&path, places[50]);
    assert!(assert_refused(dir.path(), CHECKPOINT_FILE).contains("(change 0 of revision 9"));
}

#[test]
fn a_damaged_store_never_reaches_lmdb() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, running) = open(dir.path());
    fill_checkpoint(&running);
    drop(running);
    let path = dir.path().join(CHECKPOINT_FILE);
    let sound = std::fs::read(&path).expect("it is there");
    let mut refused = 0;
    // Hundreds of starts, and no power loss.
    let options = StorageOptions { unsafe_no_fsync: true, ..options() };
    // The heads in whole, then something of everything.
    for at in (0..160)
        .step_by(2)
        .chain((4_096..4_256).step_by(2))
        .chain((8_192..sound.len() as u64).step_by(sound.len() / 100))
    {
        flip(&path, at);
        // Free pages, paddings and the older head are not looked at; a start on those is right.
        if let Err(error) = open_with(dir.path(), &options) {
            assert!(error.is_damage(), "at {at}: {error}");
            refused += 1;
        }
        flip(&path, at);
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), sound, "a start wrote to it");
    assert!(refused > 40, "only {refused} were refused");
    for len in [100, 4_096, 5_000, 8_191, 8_192, sound.len() / 2, sound.len() - 4_096] {
        std::fs::write(&path, &sound[..len]).expect("it can be written");
        assert_refused(dir.path(), CHECKPOINT_FILE);
    }
    std::fs::write(&path, &sound).expect("it can be written");
    drop(open(dir.path()));
}

#[test]
fn one_damaged_head_of_the_checkpoint_is_damage_though_the_other_one_is_whole() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, running) = open(dir.path());
    fill_checkpoint(&running);
    drop(running);
    let path = dir.path().join(CHECKPOINT_FILE);
    // LMDB would go on with the whole one, which may be the older one.
    for places in [&[20][..], &[4_116], &[20, 4_116]] {
        places.iter().for_each(|at| flip(&path, *at));
        assert_refused(dir.path(), CHECKPOINT_FILE);
        places.iter().for_each(|at| flip(&path, *at));
    }
    drop(open(dir.path()));
}

#[test]
fn another_members_start_changes_nothing() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let root = dir.path();
    drop(open(root));
    let identity = std::fs::read(root.join("identity")).expect("it is there");
    let start = |origin| {
        let tell: Tell = Arc::new(|_| {});
        Storage::open(root, &options(), origin, tell, Timings::default(), &mut |_| {}).map(|_| ())
    };
    let other = Origin { cluster: 0xc2, member: 0xa2 };
    let error = start(other).expect_err("it is another member's");
    assert!(
        !error.is_damage() && error.to_string().contains("belongs to member a1 of cluster c1"),
        "{error}"
    );
    assert_eq!(std::fs::read(root.join("identity")).expect("it is there"), identity);
    // Neither when there is nothing to compare with.
    std::fs::remove_file(root.join("identity")).expect("it is there");
    for origin in [other, ORIGIN] {
        let error = start(origin).expect_err("whose it is is not known");
        assert!(error.is_damage(), "{error}");
        assert!(!root.join("identity").exists());
    }
    std::fs::write(root.join("identity"), identity).expect("it can be written");
    drop(open(root));
}

#[test]
fn a_damaged_log_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, running) = open(dir.path());
    for batch in 1..=5 {
        running.append(batch, vec![entry(batch)], None);
    }
    drop(running);
    let path = dir.path().join("log/0000000000000001.wal");
    let sound = std::fs::read(&path).expect("it is there");
    flip(&path, 700);
    assert_refused(dir.path(), "log/0000000000000001.wal");
    std::fs::write(&path, &sound[..4_000]).expect("it can be written");
    assert!(assert_refused(dir.path(), "log/0000000000000001.wal").contains("cut off"));
    let mut newer = sound.clone();
    newer[8] = 9;
    let crc = tenure_replica::checksum::crc32c(&[&newer[..80]]);
    newer[80..84].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &newer).expect("it can be written");
    let error = open_with(dir.path(), &options()).map(|_| ()).expect_err("it is too new");
    assert!(!error.is_damage() && error.to_string().contains("format 9"), "{error}");
    std::fs::remove_file(&path).expect("it is there");
    let message = assert_refused(dir.path(), "log/0000000000000001.wal");
    assert!(message.contains("is missing") && message.contains("there is no segment at all"), "{message}");
}

#[test]
fn a_directory_in_use_is_refused_with_its_holder() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let (_, _running) = open(dir.path());
    let error = open_with(dir.path(), &options()).map(|_| ()).expect_err("it is in use").to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
}

/// Appends forever, as the child process of the test below, and prints what was acknowledged.
#[test]
#[ignore = "the child of `a_killed_process_loses_nothing_that_it_acknowledged`"]
fn child_that_appends() {
    let Some(root) = std::env::var_os("TENURE_TEST_APPEND_TO") else { return };
    let (recovered, running) = open(Path::new(&root));
    let mut last = recovered.entries.last().map_or(recovered.state.meta().applied, |entry| entry.index);
    for batch in 1.. {
        let count = batch % 7 + 1;
        running.append(batch, (last + 1..=last + count).map(entry).collect(), None);
        last += count;
        println!("acknowledged {last}");
        if batch % 20 == 0 {
            running.checkpoint(last - 3, vec![put(last as i64 - 2)]);
            running.storage.cut(last - 30);
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    use std::io::BufRead;
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let mut acknowledged = 0;
    for round in 1..=8 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this test has a file"))
            .args(["--exact", "--ignored", "--nocapture", "storage::tests::child_that_appends"])
            .env("TENURE_TEST_APPEND_TO", dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it can be started");
        let lines = io::BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut seen = 0;
        for line in lines {
            let line = line.expect("it is text");
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged = number.parse().expect("it is a number");
                seen += 1;
                if seen == 20 * round + round {
                    child.kill().expect("it runs");
                }
            }
        }
        child.wait().expect("it was started");
        let (recovered, running) = open(dir.path());
        let last = recovered.entries.last().map_or(recovered.state.meta().applied, |entry| entry.index);
        assert!(last >= acknowledged, "{acknowledged} was acknowledged, {last} is there");
        assert!(seen > 0 && recovered.entries.iter().all(|kept| *kept == entry(kept.index)));
        drop(running);
    }
}

/// A small file system of its own; `None` where the tests may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a place for temporary files");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs"]).arg(dir.path());
        let mounted = mount.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(SmallDisk(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_survived_on_spares_and_ballast_and_told_of() {
    let Some(disk) = SmallDisk::mount() else { return };
    let root = disk.0.path().join("data");
    let options =
        StorageOptions { segment_bytes: 64 << 10, spare_count: 2, ballast_bytes: 512 << 10, ..options() };
    let (_, running) = open_with(&root, &options).expect("the directory is new");
    let ready = Instant::now();
    while !root.join("ballast").exists() {
        assert!(ready.elapsed() < Duration::from_secs(20), "no ballast was made");
        std::thread::yield_now();
    }
    // Somebody else fills the disk.
    let filler = disk.0.path().join("filler");
    let file = File::create(&filler).expect("there is space");
    disk::fill(&file, 1 << 30).expect_err("it is a small disk");
    drop(file);
    let (mut told_full, mut last) = (false, 0);
    while last < 2_000 && !(told_full && last > 1_000) {
        running.storage.append(Append { batch: last + 1, entries: vec![entry(last + 1)], hard_state: None });
        running.wait(|input| {
            told_full |= matches!(input, Input::DiskSpace { full: true });
            matches!(input, Input::Appended { .. })
        });
        last += 1;
        if last % 100 == 0 {
            running.storage.checkpoint(checkpoint(last, vec![put(last as i64 + 1)]));
            running.wait(|input| {
                told_full |= matches!(input, Input::DiskSpace { full: true });
                matches!(input, Input::Checkpointed { .. })
            });
            running.storage.cut(last);
        }
    }
    assert!(told_full, "{last} entries were written to a full disk and nobody was told");
    assert!(!root.join("ballast").exists(), "the ballast was not given up");
    std::fs::remove_file(&filler).expect("it is there");
    running.wait(|input| matches!(input, Input::DiskSpace { full: false }));
    assert!(root.join("ballast").exists(), "space is only back when the ballast is");
    drop(running);
    let (recovered, _running) = open_with(&root, &options).expect("the directory is sound");
    let reached = recovered.entries.last().map_or(recovered.state.meta().applied, |entry| entry.index);
    assert_eq!(reached, last);
}

#[test]
fn a_commit_of_which_only_a_part_fits_is_a_full_disk_and_no_reason_to_end() {
    let Some(disk) = SmallDisk::mount() else { return };
    let root = disk.0.path().join("data");
    let options = StorageOptions { segment_bytes: 64 << 10, spare_count: 0, ballast_bytes: 0, ..options() };
    let (_, running) = open_with(&root, &options).expect("the directory is new");
    let large = |number: i64| match put(number + 1) {
        Change::Record(record) => {
            Change::Record(Arc::new(Record { value: vec![7; 100 << 10].into(), ..(*record).clone() }))
        }
        other => other,
    };
    running.storage.append(Append { batch: 1, entries: vec![entry(1)], hard_state: None });
    running.wait(|input| matches!(input, Input::Appended { .. }));
    running.storage.checkpoint(checkpoint(1, (1..=60).map(large).collect()));
    running.wait(|input| matches!(input, Input::DiskSpace { full: true }));
}
