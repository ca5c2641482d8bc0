//! Rows that make a state, and rows that do not. What a log gives back is tested with the log.

use std::sync::Arc;

use tenure_state::applied::{Change, Meta};
use tenure_state::ids::{LeaseId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;

use super::*;
use crate::effect::EntryKind;
use crate::row::{encode_change, encode_format, encode_head, encode_membership};

const ORIGIN: Origin = Origin { cluster: 1, member: 2 };
const FILE: &str = "rows";

type Stored = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of a store with two keys, written at index 5 and term 3.
fn rows() -> Stored {
    let meta = Meta {
        applied: 5,
        clock: Nanos(9),
        revision: Revision(3),
        compacted: Revision(-1),
        scrubbed: RevisionAt::default(),
        alarms: Vec::new(),
    };
    let membership = Membership { voters: vec![2], ..Membership::default() };
    let mut rows = vec![
        (RowKey::Format.encode().to_vec(), encode_format(ORIGIN)),
        (RowKey::Head.encode().to_vec(), encode_head(&Head { meta, term: 3, row_count: 5 })),
        (RowKey::Membership.encode().to_vec(), encode_membership(&membership)),
    ];
    for revision in [2, 3] {
        let change = Change::Record(Arc::new(Record {
            key: format!("key-{revision}").into(),
            value: "value".into(),
            create: Revision(revision),
            at: RevisionAt { main: Revision(revision), sub: 0 },
            version: 1,
            lease: LeaseId::NONE,
        }));
        rows.push((
            RowKey::of(&change).encode().to_vec(),
            encode_change(&change).expect("it is not a deletion"),
        ));
    }
    rows
}

fn load(rows: &Stored) -> Result<Loaded, RecoverError> {
    let mut reader = RowReader::new(ORIGIN);
    for (number, (key, value)) in rows.iter().enumerate() {
        reader.row(Place { file: FILE, offset: number as u64 }, key, value)?;
    }
    reader.finish(FILE)
}

fn damage(rows: &Stored) -> (u64, String) {
    match load(rows).map(|_| ()).expect_err("it is damaged") {
        RecoverError::Damaged { file, offset, what } => {
            assert_eq!(file, FILE);
            (offset, what)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn rows_make_the_state_they_were_made_from() {
    let loaded = load(&rows()).expect("they are sound");
    assert_eq!((loaded.state.meta().applied, loaded.applied_term), (5, 3));
    assert_eq!(loaded.membership.voters, [2]);
    assert_eq!(loaded.state.stats().keys, 2);
}

#[test]
fn no_rows_are_a_fresh_state() {
    let loaded = load(&Vec::new()).expect("they are sound");
    assert_eq!((loaded.state.meta().applied, loaded.applied_term), (0, 0));
    assert_eq!(loaded.membership, Membership::default());
}

#[test]
fn a_row_too_few_or_twice_or_changed_is_damage() {
    for number in 0..rows().len() {
        let mut missing = rows();
        missing.remove(number);
        damage(&missing);
        let mut twice = rows();
        twice.insert(number, twice[number].clone());
        assert_eq!(damage(&twice).0, number as u64 + 1);
        let mut changed = rows();
        changed[number].1[0] ^= 0x80;
        assert_eq!(damage(&changed).0, number as u64);
    }
}

#[test]
fn another_members_rows_are_refused() {
    let mut rows = rows();
    let found = Origin { member: 3, ..ORIGIN };
    rows[0].1 = encode_format(found);
    let expected = RecoverError::Foreign { file: FILE.into(), found, expected: ORIGIN };
    assert_eq!(load(&rows).map(|_| ()), Err(expected));
}

/// Reads a log of one segment that a member began behind index 5 of term 3.
fn log(state: HardState, entries: &[LogEntry], applied: (u64, u64)) -> Result<Log, RecoverError> {
    let settings = Settings { origin: ORIGIN, segment_bytes: 4096, salt: 1 };
    let restart = Restart::new(settings, 1, 5, state, entries);
    let mut file = restart.image;
    file.resize(restart.capacity as usize, 0);
    let head = file[..wal::HEADER_BYTES as usize].to_vec();
    let segments = plan(ORIGIN, 1, vec![SegmentFile { file: "1".into(), number: 1, head }])?;
    let mut log = LogReader::new(applied.0, applied.1);
    log.segment(&segments[0], &file)?;
    log.finish("1")
}

fn entry(term: u64, index: u64) -> LogEntry {
    LogEntry { term, index, kind: EntryKind::Command, data: bytes::Bytes::new() }
}

#[test]
fn what_is_committed_never_ends_before_the_checkpoint() {
    let state = HardState { term: 3, vote: 2, commit: 4 };
    let found = log(state, &[entry(3, 6), entry(3, 7)], (6, 3)).expect("it is sound");
    assert_eq!(found.hard_state, HardState { commit: 6, ..state });
    assert_eq!(found.entries, [entry(3, 7)]);
}

#[test]
fn a_log_that_contradicts_the_checkpoint_is_refused() {
    let state = HardState { term: 4, vote: 2, commit: 6 };
    let entries = [entry(3, 6), entry(4, 7)];
    log(state, &entries, (5, 3)).expect("it goes on from there");
    log(state, &entries, (7, 4)).expect("the checkpoint is further than the log was begun at");
    log(state, &entries, (4, 3)).expect_err("entry 5 is missing");
    log(state, &entries, (6, 2)).expect_err("entry 6 is of another term");
    log(HardState { commit: 8, ..state }, &entries, (5, 3)).expect_err("entry 8 was committed");
}

#[test]
fn a_term_in_the_log_is_never_forgotten() {
    let state = HardState { term: 3, vote: 2, commit: 5 };
    let found = log(state, &[entry(3, 6), entry(7, 7)], (5, 3)).expect("it is sound");
    assert_eq!((found.hard_state.term, found.hard_state.vote), (7, 0));
}
