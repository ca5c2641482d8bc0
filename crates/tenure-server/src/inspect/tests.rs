//! A look at directories that are sound, and at some that are not.

use std::sync::Arc;

use tenure_replica::effect::{Append, Checkpoint, HardState, Membership};
use tenure_replica::wal::Origin;
use tenure_state::applied::Change;
use tenure_state::command::{Put, PutLease};
use tenure_state::ids::{LeaseId, MemberId};

use super::*;
use crate::storage::{Storage, StorageOptions, Timings};

#[test]
fn base64_is_the_usual_one() {
    let expected = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
    for (bytes, text) in expected {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
    assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
}

/// A directory with `keys` in the checkpoint and as many more in the log behind it.
fn directory(keys: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let origin = Origin { cluster: 1, member: 2 };
    let (done, told) = crossbeam_channel::unbounded();
    let tell = Arc::new(move |input| {
        let _ = done.send(input);
    });
    let options = StorageOptions { segment_bytes: 4096, ..StorageOptions::small() };
    let (recovered, storage) =
        Storage::open(dir.path(), &options, origin, tell, Timings::default(), &mut |_| {})
            .expect("the directory is new");
    let mut state = recovered.state;
    let mut entries = Vec::new();
    let mut changes: Vec<Change> = Vec::new();
    let mut at_half = None;
    for index in 1..=2 * keys {
        let put = Put {
            key: format!("key-{index:04}").into(),
            value: Some(vec![b'v'; 50].into()),
            lease: PutLease::Set(LeaseId::NONE),
            prev: false,
        };
        let command = Command::Put(put);
        let proposal = Proposal {
            origin: tenure_replica::entry::Origin { member: MemberId(2), incarnation: 1, number: index },
            quota_bytes: 0,
            command: command.clone(),
            batches: Vec::new(),
        };
        entries.push(LogEntry { term: 1, index, kind: EntryKind::Command, data: proposal.encode() });
        match state.apply(&Entry { index, term: 1, quota_bytes: 0, command }) {
            Progress::Done(applied) => changes.extend(applied.changes),
            Progress::Unfinished => panic!("a put is done at once"),
        }
        if index == keys {
            at_half = Some((state.meta(), std::mem::take(&mut changes)));
        }
    }
    let hard_state = Some(HardState { term: 1, vote: 2, commit: 2 * keys });
    storage.append(Append { batch: 1, entries, hard_state });
    let (meta, changes) = at_half.expect("it was passed");
    let membership = Membership { voters: vec![2], ..Membership::default() };
    storage.checkpoint(Checkpoint { meta, term: 1, membership, changes });
    told.recv().expect("the log answers");
    storage.stop();
    dir
}

fn exported(dir: &tempfile::TempDir) -> (Exported, Vec<String>) {
    let mut out = Vec::new();
    let exported = export(dir.path(), &mut out).expect("it can be looked at");
    let text = String::from_utf8(out).expect("JSON is text");
    (exported, text.lines().map(str::to_owned).collect())
}

#[test]
fn a_sound_directory_has_no_findings_and_is_exported_in_whole() {
    let dir = directory(100);
    let report = check(dir.path()).expect("it can be looked at");
    assert_eq!(report.findings, []);
    assert_eq!(report.exit_code(), 0);
    assert_eq!((report.checkpoint.applied, report.checkpoint.rows), (100, 103));
    assert_eq!((report.log.entries, report.log.last_index), (100, 200));
    assert!(serde_json::to_string(&report).expect("it is plain data").contains("\"applied\":100"));
    let (exported, lines) = exported(&dir);
    assert_eq!(exported, Exported { keys: 200, leases: 0, is_complete: true });
    assert_eq!(
        lines[0],
        format!(
            r#"{{"kind":"key","key":"a2V5LTAwMDE=","value":"{}","create_revision":2,"mod_revision":2,"version":1}}"#,
            base64(&[b'v'; 50])
        )
    );
}

#[test]
fn of_a_damaged_directory_everything_else_is_exported() {
    let dir = directory(100);
    let path = dir.path().join(CHECKPOINT_FILE);
    let sound = std::fs::read(&path).expect("it is there");
    let mut damaged = sound.clone();
    let at = sound.windows(8).rposition(|window| window == b"key-0077").expect("it is there");
    damaged[at] ^= 1;
    std::fs::write(&path, &damaged).expect("it can be written");
    let report = check(dir.path()).expect("it can be looked at");
    assert_eq!(report.exit_code(), 65);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].offset as usize <= at && at - (report.findings[0].offset as usize) < 64);
    let (found, lines) = exported(&dir);
    assert_eq!(found, Exported { keys: 99, leases: 0, is_complete: false });
    assert!(!lines.iter().any(|line| line.contains(&base64(b"key-0077"))));
    std::fs::write(&path, &sound).expect("it can be written");

    // Damage in the second half of the log.
    let mut segments = disk::list_segments(&dir.path().join("log")).expect("it is there");
    segments.sort();
    assert!(segments.len() > 3, "the log is meant to roll");
    let path = &segments[segments.len() / 2].1;
    let mut damaged = std::fs::read(path).expect("it is there");
    damaged[2_000] ^= 1;
    std::fs::write(path, &damaged).expect("it can be written");
    assert_eq!(check(dir.path()).expect("it can be looked at").findings.len(), 1);
    let (found, _) = exported(&dir);
    assert!(!found.is_complete && (110..190).contains(&found.keys), "{found:?}");
}

#[test]
fn a_directory_without_its_identity_is_exported_in_whole() {
    let dir = directory(100);
    let path = dir.path().join("identity");
    for damage in [|path: &Path| std::fs::remove_file(path), |path: &Path| std::fs::write(path, "garbage")] {
        damage(&path).expect("it can be done");
        let report = check(dir.path()).expect("it can be looked at");
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        assert_eq!((report.findings[0].file.as_str(), report.exit_code()), ("identity", 65));
        assert_eq!(report.log.last_index, 200);
        let (found, lines) = exported(&dir);
        assert_eq!(found, Exported { keys: 200, leases: 0, is_complete: false });
        assert_eq!(lines.len(), 200);
        std::fs::write(&path, "").expect("it can be written");
    }
    // The checkpoint alone says it, too.
    std::fs::remove_dir_all(dir.path().join("log")).expect("it is there");
    std::fs::create_dir(dir.path().join("log")).expect("it can be made");
    assert_eq!(exported(&dir).0.keys, 100);
}

#[test]
fn a_missing_checkpoint_is_what_is_missing() {
    let dir = directory(100);
    // The next start begins the log behind the checkpoint.
    let options = StorageOptions { segment_bytes: 4096, ..StorageOptions::small() };
    let origin = Origin { cluster: 1, member: 2 };
    let opened =
        Storage::open(dir.path(), &options, origin, Arc::new(|_| {}), Timings::default(), &mut |_| {});
    opened.map(|_| ()).expect("it is sound");
    let path = dir.path().join(CHECKPOINT_FILE);
    let sound = std::fs::read(&path).expect("it is there");
    std::fs::remove_file(&path).expect("it is there");
    let report = check(dir.path()).expect("it can be looked at");
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].file, CHECKPOINT_FILE);
    assert!(report.findings[0].what.contains("missing"), "{:?}", report.findings);
    // Damage to it is no damage to the log.
    std::fs::write(&path, &sound[..5_000]).expect("it can be written");
    let report = check(dir.path()).expect("it can be looked at");
    assert!(report.findings.iter().all(|finding| finding.file == CHECKPOINT_FILE), "{:?}", report.findings);
    assert!(!report.findings.is_empty());
}

#[test]
fn a_place_that_is_no_data_directory_is_said_to_be_none() {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let error = check(dir.path()).expect_err("there is nothing");
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("not a data directory"), "{error}");
    assert!(std::fs::read_dir(dir.path()).expect("it is there").next().is_none(), "looking left something");
}
