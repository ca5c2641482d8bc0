//! What only shows in a store of many records: chunks of history that thin out and merge, keys with very many
//! versions, entries that take several turns, transactions nested very deep.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_state::applied::{Applied, Change, Progress, Reply};
use tenure_state::command::{
    Command, DeleteRange, Entry, Grant, LeaseStep, Op, Put, PutLease, Range, Sort, Stamp, Txn,
};
use tenure_state::ids::{LeaseId, Nanos, Revision};
use tenure_state::key::KeyRange;
use tenure_state::record::Record;
use tenure_state::txn::{self, TxnError};
use tenure_state::{HashKv, State};

struct Log {
    state: State,
    turns: usize,
    records: BTreeMap<(i64, u32), Record>,
}

impl Log {
    fn new() -> Log {
        Log { state: State::new(), turns: 0, records: BTreeMap::new() }
    }

    fn apply(&mut self, command: Command) -> Applied {
        let index = self.state.meta().applied + 1;
        let mut progress = self.state.apply(&Entry { index, term: 1, quota_bytes: 0, command });
        self.turns = 1;
        let applied = loop {
            match progress {
                Progress::Done(applied) => break applied,
                Progress::Unfinished => {
                    self.turns += 1;
                    progress = self.state.resume();
                }
            }
        };
        for change in &applied.changes {
            match change {
                Change::Record(record) => {
                    self.records.insert((record.at.main.0, record.at.sub), Record::clone(record));
                }
                Change::RecordGone(at) => {
                    self.records.remove(&(at.main.0, at.sub)).expect("it was stored");
                }
                Change::Lease(_) | Change::LeaseGone(_) => {}
            }
        }
        applied
    }

    fn put(&mut self, key: usize, lease: LeaseId) {
        let value = Some(Bytes::from("v"));
        let lease = PutLease::Set(lease);
        self.apply(Command::Put(Put { key: name(key), value, lease, prev: false })).reply.expect("it is put");
    }

    /// Compacts at the present and scrubs until nothing is left.
    fn compact(&mut self, limit: u32) {
        let revision = self.state.revision();
        self.apply(Command::Compact { revision }).reply.expect("the present can be compacted");
        while let Ok(Reply::Scrub { more: true }) = self.apply(Command::Scrub { limit }).reply {}
    }

    fn check(&self) {
        self.state.assert_invariants();
        let mut loader = State::load(self.state.meta());
        for record in self.records.values() {
            loader.record(record.clone());
        }
        let loaded = loader.finish().expect("the rows of a sound state load");
        assert_eq!(loaded.digest(), self.state.digest());
    }
}

fn name(key: usize) -> Bytes {
    Bytes::from(format!("key{key:06}"))
}

fn all() -> KeyRange {
    KeyRange::From(Bytes::from_static(b"\0"))
}

fn count(state: &State, revision: i64) -> i64 {
    let range = Range {
        range: all(),
        revision,
        limit: 0,
        sort: Sort::default(),
        keys_only: false,
        count_only: true,
        mod_min: 0,
        mod_max: 0,
        create_min: 0,
        create_max: 0,
    };
    state.range(&range).expect("it may be read").count
}

/// The same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn history_stays_whole_while_chunks_thin_out_and_merge() {
    let mut log = Log::new();
    let mut numbers = Numbers(1);
    for round in 0..12 {
        // Some keys are written all the time, others once and never again.
        for _ in 0..1500 {
            let key = if numbers.below(3) == 0 { numbers.below(5000) } else { numbers.below(40) };
            if numbers.below(4) == 0 {
                let delete = DeleteRange { range: KeyRange::One(name(key)), prev: false };
                log.apply(Command::DeleteRange(delete)).reply.expect("it is deleted");
            } else {
                log.put(key, LeaseId::NONE);
            }
        }
        let living = count(&log.state, 0);
        log.compact(1 + 700 * (round % 3));
        log.check();
        assert_eq!(count(&log.state, 0), living);
        // All that is left lives, but what the compact revision itself did.
        assert!(log.state.stats().records - log.state.stats().keys <= 1);
    }
}

#[test]
fn one_key_with_very_many_versions_is_scrubbed_in_bounded_steps() {
    let mut log = Log::new();
    for _ in 0..20_000 {
        log.put(1, LeaseId::NONE);
    }
    let revision = log.state.revision();
    log.apply(Command::Compact { revision }).reply.expect("the present can be compacted");
    let mut steps = 0;
    loop {
        let applied = log.apply(Command::Scrub { limit: 1000 });
        steps += 1;
        assert!(applied.changes.len() <= 1001, "a step is bounded");
        if applied.reply == Ok(Reply::Scrub { more: false }) {
            break;
        }
    }
    assert!((20..=21).contains(&steps), "{steps} steps");
    assert_eq!(log.state.stats().records, 1);
    log.check();
}

#[test]
fn a_delete_of_very_many_keys_takes_several_turns() {
    let mut log = Log::new();
    for key in 0..25_000 {
        log.put(key, LeaseId::NONE);
    }
    let applied = log.apply(Command::DeleteRange(DeleteRange { range: all(), prev: false }));
    assert_eq!(log.turns, 7);
    assert_eq!(applied.events.len(), 25_000);
    assert_eq!(log.state.revision(), Revision(25_002));
    // Dead keys cost looks, not turns without end.
    assert_eq!(count(&log.state, 25_001), 25_000);
    log.apply(Command::DeleteRange(DeleteRange { range: all(), prev: false }));
    assert_eq!(log.state.revision(), Revision(25_002));
    log.compact(10_000);
    log.put(1, LeaseId::NONE);
    log.compact(10_000);
    assert_eq!(log.state.stats().records, 1);
    log.check();
}

#[test]
fn a_lease_of_very_many_keys_takes_several_turns() {
    let mut log = Log::new();
    let stamp = |secs| Stamp { term: 1, clock: Nanos::from_secs(secs) };
    let (ttl, parent) = (Nanos::from_secs(5), LeaseId::NONE);
    log.apply(Command::Grant(Grant { stamp: stamp(0), id: LeaseId(7), ttl, parent })).reply.expect("granted");
    for key in 0..25_000 {
        log.put(key, LeaseId(7));
    }
    let step = LeaseStep { stamp: stamp(5), renew: Vec::new(), limit: 1000, last: true };
    let applied = log.apply(Command::LeaseStep(step));
    assert_eq!(log.turns, 7);
    assert_eq!(applied.events.len(), 25_000);
    assert!(applied.events.iter().all(|event| event.record.at.main == Revision(25_002)));
    assert_eq!((log.state.stats().keys, log.state.lease_count()), (0, 0));
    log.check();
}

#[test]
fn hashing_and_telling_in_pages_comes_to_the_same_while_scrubs_go_on() {
    let mut log = Log::new();
    let mut numbers = Numbers(2);
    for _ in 0..3000 {
        log.put(numbers.below(100), LeaseId::NONE);
    }
    let at = log.state.revision();
    log.apply(Command::Compact { revision: Revision(2000) }).reply.expect("it can be compacted");
    let start = HashKv { at, ..HashKv::default() };
    let expected = log.state.hash_kv(start.clone(), usize::MAX).expect("it may be hashed").hash;
    let mut hash = start;
    while !hash.done {
        hash = log.state.hash_kv(hash, 100).expect("it may be hashed");
        log.apply(Command::Scrub { limit: 10 }).reply.expect("it is scrubbed");
    }
    assert_eq!(hash.hash, expected);
    // A compaction in between starts it over.
    let half = log.state.hash_kv(HashKv { at, ..HashKv::default() }, 100).expect("it may be hashed");
    log.apply(Command::Compact { revision: Revision(2500) }).reply.expect("it can be compacted");
    let mut hash = half;
    while !hash.done {
        hash = log.state.hash_kv(hash, 100).expect("it may be hashed");
    }
    let whole = log.state.hash_kv(HashKv { at, ..HashKv::default() }, usize::MAX).expect("it may be hashed");
    assert_eq!((hash.hash, hash.compacted), (whole.hash, Revision(2500)));
}

#[test]
fn pages_of_a_read_go_on_after_a_compaction_until_it_is_scrubbed() {
    let mut log = Log::new();
    for key in 0..10 {
        log.put(key, LeaseId::NONE);
    }
    let at = log.state.revision();
    let first = log.state.range_page(&all(), None, at, 4).expect("it may be read");
    for key in 0..10 {
        log.put(key, LeaseId::NONE);
    }
    log.apply(Command::Compact { revision: log.state.revision() }).reply.expect("it can be compacted");
    let second = log.state.range_page(&all(), first.next.as_ref(), at, 4).expect("nothing is dropped yet");
    assert!(second.records.iter().all(|record| record.at.main <= at));
    assert_eq!((second.records.len(), second.next.as_ref()), (4, Some(&name(8))));
    log.apply(Command::Scrub { limit: 1 }).reply.expect("it is scrubbed");
    assert!(log.state.range_page(&all(), second.next.as_ref(), at, 4).is_err());
}

#[test]
fn a_transaction_nested_very_deep_is_refused_and_not_followed() {
    let mut txn = Txn::default();
    for _ in 0..1000 {
        txn = Txn { compare: Vec::new(), success: vec![Op::Txn(Box::new(txn))], failure: Vec::new() };
    }
    assert_eq!(txn::check(&txn, 128), Err(TxnError::TooManyOps));
}
