//! Rows that contradict each other are refused, with a description that says what and where.

use bytes::Bytes;
use tenure_state::State;
use tenure_state::applied::{LeaseRow, Meta};
use tenure_state::command::Alarm;
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;

#[derive(Clone)]
struct Rows {
    meta: Meta,
    records: Vec<Record>,
    leases: Vec<LeaseRow>,
}

/// Key `a` was put at 2 and 3, deleted at 4 and put again at 5 on lease 7; key `b` was put at 6.
fn sound() -> Rows {
    Rows {
        meta: Meta {
            applied: 9,
            clock: Nanos::from_secs(3),
            revision: Revision(6),
            compacted: Revision(2),
            scrubbed: RevisionAt { main: Revision(3), sub: 0 },
            alarms: vec![(MemberId(1), Alarm::NoSpace), (MemberId(2), Alarm::NoSpace)],
        },
        records: vec![
            put("a", 2, 2, 1, 0),
            put("a", 3, 2, 2, 0),
            tombstone("a", 4),
            put("a", 5, 5, 1, 7),
            put("b", 6, 6, 1, 0),
        ],
        leases: vec![lease(7, LeaseId::NONE, 0), lease(8, LeaseId(7), 1)],
    }
}

fn put(key: &'static str, main: i64, create: i64, version: i64, lease: i64) -> Record {
    Record {
        key: Bytes::from(key),
        value: Bytes::from("v"),
        create: Revision(create),
        at: RevisionAt { main: Revision(main), sub: 0 },
        version,
        lease: LeaseId(lease),
    }
}

fn tombstone(key: &'static str, main: i64) -> Record {
    Record { value: Bytes::new(), ..put(key, main, 0, 0, 0) }
}

fn lease(id: i64, parent: LeaseId, depth: u32) -> LeaseRow {
    let deadline = Nanos::from_secs(9);
    let granted = Nanos::from_secs(1);
    LeaseRow { id: LeaseId(id), ttl: Nanos::from_secs(8), deadline, base: deadline, granted, parent, depth }
}

fn load(rows: Rows) -> Result<State, String> {
    let mut loader = State::load(rows.meta);
    for record in rows.records {
        loader.record(record);
    }
    for row in rows.leases {
        loader.lease(row);
    }
    loader.finish().map_err(|error| error.to_string())
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Rows), expected: &str) {
    let mut rows = sound();
    change(&mut rows);
    assert_eq!(load(rows).map(|_| ()), Err(expected.to_string()));
}

#[test]
fn sound_rows_load() {
    let state = load(sound()).expect("these are sound");
    state.assert_invariants();
    assert_eq!(state.meta(), sound().meta);
    assert_eq!(state.lease_keys(LeaseId(7)), [Bytes::from("a")]);
    assert_eq!((state.stats().keys, state.stats().records, state.stats().leases), (2, 5, 2));
    let none = Rows { records: Vec::new(), leases: Vec::new(), ..sound() };
    load(none).expect("an empty store may have a past");
}

#[test]
fn records_must_follow_each_other() {
    refused(|rows| rows.records.swap(0, 1), "record 2.0 is out of order");
    refused(|rows| rows.records.insert(0, put("a", 2, 2, 1, 0)), "record 2.0 is out of order");
    refused(|rows| rows.meta.revision = Revision(5), "record 6.0 is newer than the state");
    refused(|rows| drop(rows.records.remove(2)), "record 5.0: a gap in the versions of a key");
    refused(|rows| rows.records[1].create = Revision(1), "record 3.0: a gap in the versions of a key");
    refused(
        |rows| rows.records[3] = put("a", 5, 2, 3, 7),
        "record 5.0: a key that lives on after its deletion",
    );
    refused(|rows| rows.records[3] = tombstone("a", 5), "record 5.0: a tombstone after a tombstone");
    refused(
        |rows| rows.records[2].value = Bytes::from("v"),
        "record 4.0: a tombstone that carries something",
    );
    refused(|rows| rows.records[4].key = Bytes::new(), "record 6.0: an empty key");
    refused(|rows| rows.records[4].create = Revision(7), "record 6.0: a version that cannot be");
    refused(
        |rows| rows.records[4].create = Revision(5),
        "record 6.0: a first version that did not create its key, or a later one that did",
    );
}

#[test]
fn a_key_may_only_name_a_lease_that_lives() {
    refused(
        |rows| rows.records[4].lease = LeaseId(9),
        "record 6.0 is on lease 0000000000000009, which does not live",
    );
    // A version that was superseded may.
    let mut rows = sound();
    rows.records[0].lease = LeaseId(9);
    load(rows).expect("the lease may have ended since");
}

#[test]
fn leases_must_form_trees() {
    refused(|rows| rows.leases.push(lease(7, LeaseId::NONE, 0)), "two leases have the same id");
    refused(|rows| rows.leases[1].parent = LeaseId(9), "the parent of a lease is missing");
    refused(|rows| rows.leases[1].depth = 2, "a lease is at another depth than below its parent");
}

#[test]
fn the_meta_row_must_make_sense() {
    refused(|rows| rows.meta.revision = Revision(0), "revision 0 cannot be");
    refused(|rows| rows.meta.compacted = Revision(7), "compact revision 7 at revision 6 cannot be");
    refused(|rows| rows.meta.compacted = Revision(-2), "compact revision -2 at revision 6 cannot be");
    refused(|rows| rows.meta.alarms.swap(0, 1), "alarms are out of order");
    refused(
        |rows| rows.meta.scrubbed = RevisionAt { main: Revision(3), sub: 1 },
        "scrubbed up to 3.1 at compact revision 2 cannot be",
    );
    refused(
        |rows| {
            rows.meta.compacted = Revision(4);
            rows.meta.scrubbed = RevisionAt { main: Revision(5), sub: 0 };
        },
        "record 3.0 should be gone at scrub position 5.0",
    );
}
