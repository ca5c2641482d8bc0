//! Random commands against a naive model of the same rules: every answer, every event, every revision.
//!
//! Beside the state under test run one that works in slices of one key and one that is rebuilt from the rows
//! of a checkpoint halfway. All of them must stay equal.

#[path = "model/naive.rs"]
mod naive;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tenure_state::applied::{Applied, Change, LeaseRow, Progress, Reply};
use tenure_state::command::{
    Alarm, AlarmAction, Command, Compare, CompareResult, CompareTarget, DeleteRange, Entry, Grant, LeaseStep,
    Op, Put, PutLease, Range, Sort, SortOrder, SortTarget, Stamp, TakeOver, Txn,
};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use tenure_state::key::KeyRange;
use tenure_state::record::Record;
use tenure_state::refusal::Refusal;
use tenure_state::{HashKv, State, range, txn};

use crate::naive::Model;

/// Enough for leases to be granted, used, renewed and to end within one run.
const COMMANDS_MAX: usize = 60;

/// A compact revision near this one is meant relative to the current one.
const BACK_FROM: i64 = 1000;

#[derive(Clone, Debug)]
struct Step {
    command: Command,
    /// How far the lease clock goes on before a lease command.
    elapsed: Nanos,
    /// Whether a lease command carries the stamp of another term.
    stale: bool,
    quota_bytes: u64,
    /// Reads that are asked after it.
    reads: Vec<Range>,
    read_txn: Vec<Range>,
}

/// The rows of a checkpoint, as a store thread would hold them.
#[derive(Clone, Default)]
struct Rows {
    records: BTreeMap<RevisionAt, Arc<Record>>,
    leases: BTreeMap<LeaseId, LeaseRow>,
}

impl Rows {
    fn fold(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Record(record) => {
                    self.records.insert(record.at, Arc::clone(record));
                }
                Change::RecordGone(at) => {
                    assert!(self.records.remove(at).is_some(), "only what was stored goes");
                }
                Change::Lease(row) => {
                    self.leases.insert(row.id, *row);
                }
                Change::LeaseGone(id) => {
                    assert!(self.leases.remove(id).is_some(), "only what was stored goes");
                }
            }
        }
    }

    fn load(&self, state: &State) -> State {
        let mut loader = State::load(state.meta());
        // In descending order, so that children come before their parents.
        for row in self.leases.values().rev() {
            loader.lease(*row);
        }
        for record in self.records.values() {
            loader.record(Record::clone(record));
        }
        loader.finish().expect("the rows of a sound state load")
    }
}

fn apply(state: &mut State, entry: &Entry) -> Applied {
    let before = (state.revision(), state.stats(), state.meta().applied);
    let mut progress = state.apply(entry);
    loop {
        match progress {
            Progress::Done(applied) => return applied,
            Progress::Unfinished => {
                assert_eq!(before, (state.revision(), state.stats(), state.meta().applied));
                progress = state.resume();
            }
        }
    }
}

/// Applies to a state that works in slices of one key, and looks in between whether anything can be seen.
fn apply_sliced(state: &mut State, entry: &Entry, model: &Model) -> Applied {
    let mut progress = state.apply(entry);
    loop {
        match progress {
            Progress::Done(applied) => return applied,
            Progress::Unfinished => {
                state.assert_invariants();
                let now = state.range(&everything(0)).expect("the present can be read");
                assert!(now.records.iter().eq(model.at(model.revision()).values()), "nothing is seen yet");
                for id in model.leases.keys() {
                    assert!(state.lease(*id).is_some());
                    assert_eq!(state.lease_keys(*id), model.lease_keys(*id));
                }
                let replay = state.replay(Revision(model.revision() + 1), 10).expect("the future is empty");
                assert!(replay.events.is_empty());
                progress = state.resume();
            }
        }
    }
}

fn everything(revision: i64) -> Range {
    Range {
        range: KeyRange::From(Bytes::from_static(b"\0")),
        revision,
        limit: 0,
        sort: Sort::default(),
        keys_only: false,
        count_only: false,
        mod_min: 0,
        mod_max: 0,
        create_min: 0,
        create_max: 0,
    }
}

/// Gives the command the stamp that a leader would give it now.
fn stamped(step: &Step, model: &Model, term: u64) -> Command {
    let stamp = Stamp { term: if step.stale { term - 1 } else { term }, clock: model.clock + step.elapsed };
    match step.command.clone() {
        Command::Grant(grant) => Command::Grant(Grant { stamp, ..grant }),
        Command::LeaseStep(lease_step) => Command::LeaseStep(LeaseStep { stamp, ..lease_step }),
        Command::TakeOver(take_over) => Command::TakeOver(TakeOver { term: stamp.term, ..take_over }),
        Command::Compact { revision: Revision(revision) } if revision > BACK_FROM / 2 => {
            Command::Compact { revision: Revision(model.revision() + revision - BACK_FROM) }
        }
        // What the edge would refuse never gets into the log.
        Command::Txn(txn) if txn::check(&txn, 8).is_err() => Command::Nothing,
        command => command,
    }
}

fn run(steps: &[Step], split: usize) {
    let mut model = Model::new();
    let mut state = State::new();
    let mut sliced = State::new();
    sliced.set_slice_max(1);
    let mut rebuilt: Option<State> = None;
    let mut rows = Rows::default();
    for (index, step) in steps.iter().enumerate() {
        if index == split {
            rebuilt = Some(rows.load(&state));
        }
        let command = stamped(step, &model, 5);
        let entry = Entry { index: index as u64 + 1, term: 5, quota_bytes: step.quota_bytes, command };
        let revision_before = model.revision();
        let slices = apply_sliced(&mut sliced, &entry, &model);
        let mut expected = model.apply(&entry, state.stats().logical_bytes);
        let applied = apply(&mut state, &entry);
        if let (Ok(Reply::Scrub { more }), Ok(Reply::Scrub { more: answered })) =
            (&mut expected, &applied.reply)
        {
            // The model does not scrub.
            *more = *answered;
        }
        assert_eq!(applied.reply, expected, "the answer to {entry:?}");
        let events: Vec<_> = (revision_before..model.revision())
            .flat_map(|revision| &model.events[revision as usize])
            .collect();
        assert!(applied.events.iter().eq(events), "the events of {entry:?}");
        assert_eq!((&slices.reply, &slices.events), (&applied.reply, &applied.events));
        assert_eq!(slices.changes, applied.changes);
        if let Some(rebuilt) = &mut rebuilt {
            let again = apply(rebuilt, &entry);
            assert_eq!((again.reply, again.events), (applied.reply.clone(), applied.events.clone()));
            assert_eq!(again.changes, applied.changes);
        }
        rows.fold(&applied.changes);
        state.assert_invariants();
        assert_eq!(state.meta().applied, entry.index);
        compare(&state, &model, step);
        if let Ok(Reply::Scrub { more: false }) = &applied.reply {
            compare_scrubbed(&state, &model);
        }
        let loaded = rows.load(&state);
        loaded.assert_invariants();
        assert_eq!(loaded.digest(), state.digest(), "rows hold everything");
        assert_eq!(loaded.meta(), state.meta());
        assert_eq!(sliced.digest(), state.digest(), "slices change nothing");
    }
    compare_past(&state, &model);
    if let Some(rebuilt) = rebuilt {
        assert_eq!(rebuilt.digest(), state.digest(), "a rebuilt state stays equal");
        compare_past(&rebuilt, &model);
    }
}

fn compare(state: &State, model: &Model, step: &Step) {
    assert_eq!(state.revision().0, model.revision());
    assert_eq!(state.compacted().0, model.compacted);
    assert_eq!(state.clock(), model.clock);
    assert_eq!(state.stats().keys, model.at(model.revision()).len() as u64);
    for read in &step.reads {
        let answer = state.range(read);
        assert_eq!(answer, model.range(read), "{read:?}");
        if let Ok(answer) = answer {
            let (records, more) = range::finish(paged(state, read), read);
            assert_eq!((records, more, range::shown(read)), (answer.records, answer.more, answer.shown));
        }
    }
    let reads = Txn {
        compare: Vec::new(),
        success: step.read_txn.iter().cloned().map(Op::Range).collect(),
        failure: Vec::new(),
    };
    assert_eq!(state.read_txn(&reads), model.read_txn(&reads), "{reads:?}");
    assert_eq!(state.lease_count(), model.leases.len());
    let mut order: Vec<_> = model.leases.values().map(|lease| (lease.deadline, lease.id)).collect();
    order.sort();
    assert_eq!(state.leases(), order.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    for (id, row) in &model.leases {
        assert_eq!(state.lease(*id).as_ref(), Some(row));
        assert_eq!(state.lease_keys(*id), model.lease_keys(*id));
    }
}

/// What a long read collects in pages before it is finished.
fn paged(state: &State, read: &Range) -> Vec<Arc<Record>> {
    let at = if read.revision > 0 { Revision(read.revision) } else { state.revision() };
    let (mut from, mut records) = (None, Vec::new());
    loop {
        let left = range::needed(read).saturating_sub(records.len()).min(2);
        if left == 0 {
            return records;
        }
        let page = state.range_page(&read.range, from.as_ref(), at, left).expect("it may be read");
        records.extend(page.records);
        from = page.next;
        if from.is_none() {
            return records;
        }
    }
}

/// What a finished scrub leaves is what the model says, and is counted so.
fn compare_scrubbed(state: &State, model: &Model) {
    let kept = model.kept();
    let record_bytes = |record: &Arc<Record>| 128 + record.key.len() as u64 + record.value.len() as u64;
    let bytes = kept.iter().map(record_bytes).sum::<u64>() + 150 * model.leases.len() as u64;
    assert_eq!(state.stats().records, kept.len() as u64);
    assert_eq!(state.stats().logical_bytes, bytes);
}

/// Every revision that may be read, and every point that history may be told from.
fn compare_past(state: &State, model: &Model) {
    for revision in 1..=model.revision() {
        let read = state.range(&everything(revision));
        let page = state.range_page(&everything(0).range, None, Revision(revision), 1000);
        let replay = state.replay(Revision(revision), usize::MAX);
        if revision < model.compacted {
            assert_eq!(read, Err(Refusal::Compacted));
            assert_eq!(replay.map(|_| ()), Err(Refusal::Compacted));
            continue;
        }
        let keys = model.at(revision);
        assert!(read.expect("it may be read").records.iter().eq(keys.values()), "revision {revision}");
        assert!(page.expect("it may be read").records.iter().eq(keys.values()), "revision {revision}");
        let told = replay.expect("it may be told");
        assert_eq!(told.next, None);
        let mut expected =
            model.events[revision as usize - 1..].iter().flatten().cloned().collect::<Vec<_>>();
        for event in &mut expected {
            if event.record.at.main.0 <= model.compacted {
                event.prev = None;
            }
        }
        assert_eq!(told.events, expected, "history from {revision}");
        compare_pages(state, model, revision, expected.len());
    }
}

/// Reading, telling and hashing in small pages comes to the same as at once.
fn compare_pages(state: &State, model: &Model, revision: i64, event_count: usize) {
    let (mut from, mut count) = (Some(Revision(revision)), 0);
    while let Some(next) = from {
        let part = state.replay(next, 1).expect("it may be told");
        let first = part.events.first().map(|event| event.record.at.main);
        assert!(part.events.iter().all(|event| Some(event.record.at.main) == first), "one revision a part");
        count += part.events.len();
        from = part.next;
    }
    assert_eq!(count, event_count);
    let (mut from, mut records) = (None, Vec::new());
    loop {
        let page = state.range_page(&everything(0).range, from.as_ref(), Revision(revision), 1);
        let page = page.expect("it may be read");
        assert!(page.records.len() <= 1);
        records.extend(page.records);
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert!(records.iter().eq(model.at(revision).values()));
    let (mut from, mut count) = (None, 0);
    loop {
        let page = state.count_page(&everything(0).range, from.as_ref(), Revision(revision), 1);
        let page = page.expect("it may be read");
        count += page.count;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(count, records.len() as u64);
    let start = HashKv { at: Revision(revision), ..HashKv::default() };
    let at_once = state.hash_kv(start.clone(), usize::MAX).expect("it may be hashed");
    assert!(at_once.done);
    assert_eq!(at_once.hash, model.hash_kv(revision));
    let mut hash = start;
    while !hash.done {
        hash = state.hash_kv(hash, 1).expect("it may be hashed");
    }
    assert_eq!(hash.hash, at_once.hash);
}

fn key() -> impl Strategy<Value = Bytes> {
    select(vec!["a", "ab", "b", "c", "d"]).prop_map(Bytes::from)
}

/// `wide`, in percent, is how often it is meant to cover many keys.
fn key_range(wide: u32) -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        100 - wide => key().prop_map(KeyRange::One),
        wide / 2 => (key(), key()).prop_map(|(start, end)| KeyRange::Span { start, end }),
        wide / 2 => key().prop_map(KeyRange::From),
        wide => Just(KeyRange::From(Bytes::from_static(b"a"))),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    select(vec!["", "x", "y", "zz"]).prop_map(Bytes::from)
}

fn lease_id() -> impl Strategy<Value = LeaseId> {
    select(vec![-3, 1, 2, 3, 4]).prop_map(LeaseId)
}

fn put() -> impl Strategy<Value = Put> {
    let lease = prop_oneof![
        3 => Just(PutLease::Set(LeaseId::NONE)),
        6 => lease_id().prop_map(PutLease::Set),
        1 => Just(PutLease::Keep),
    ];
    (key(), option::weighted(0.85, value()), lease, any::<bool>()).prop_map(|(key, value, lease, prev)| Put {
        key,
        value,
        lease,
        prev,
    })
}

fn delete() -> impl Strategy<Value = DeleteRange> {
    (key_range(10), any::<bool>()).prop_map(|(range, prev)| DeleteRange { range, prev })
}

fn bound() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0), 1 => -1..20_i64]
}

fn read() -> impl Strategy<Value = Range> {
    use {SortOrder as Order, SortTarget as Target};
    let target = select(vec![Target::Key, Target::Version, Target::Create, Target::Mod, Target::Value]);
    let order = select(vec![Order::None, Order::Ascend, Order::Descend]);
    let revision = prop_oneof![3 => Just(0), 2 => -3..30_i64];
    let limit = prop_oneof![1 => Just(0), 1 => -1..4_i64];
    let rare = || proptest::bool::weighted(0.15);
    let bounds = (bound(), bound(), bound(), bound());
    (key_range(60), revision, limit, target, order, rare(), rare(), bounds).prop_map(
        |(range, revision, limit, target, order, keys_only, count_only, bounds)| {
            let (mod_min, mod_max, create_min, create_max) = bounds;
            let sort = Sort { target, order };
            Range {
                range,
                revision,
                limit,
                sort,
                keys_only,
                count_only,
                mod_min,
                mod_max,
                create_min,
                create_max,
            }
        },
    )
}

fn compare_strategy() -> impl Strategy<Value = Compare> {
    use {CompareResult as Is, CompareTarget as Target};
    let result = select(vec![Is::Equal, Is::NotEqual, Is::Greater, Is::Less]);
    let target = prop_oneof![
        (0..4_i64).prop_map(Target::Version),
        (0..10_i64).prop_map(Target::Create),
        (0..15_i64).prop_map(Target::Mod),
        (0..4_i64).prop_map(Target::Lease),
        value().prop_map(Target::Value),
    ];
    (key_range(30), result, target).prop_map(|(range, result, target)| Compare { range, result, target })
}

fn txn_strategy() -> impl Strategy<Value = Txn> {
    let op = prop_oneof![
        2 => read().prop_map(Op::Range),
        3 => put().prop_map(Op::Put),
        2 => delete().prop_map(Op::DeleteRange),
    ];
    let op = op.prop_recursive(2, 12, 3, |op| {
        (vec(compare_strategy(), 0..2), vec(op.clone(), 0..3), vec(op, 0..3))
            .prop_map(|(compare, success, failure)| Op::Txn(Box::new(Txn { compare, success, failure })))
    });
    (vec(compare_strategy(), 0..3), vec(op.clone(), 0..4), vec(op, 0..4))
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn compact_revision() -> impl Strategy<Value = i64> {
    prop_oneof![1 => -1..20_i64, 3 => (0..4_i64).prop_map(|back| BACK_FROM - back)]
}

fn command() -> impl Strategy<Value = Command> {
    // The runner puts the right stamp in.
    let stamp = Stamp { term: 0, clock: Nanos::ZERO };
    let seconds = |range| proptest::strategy::Strategy::prop_map(range, Nanos::from_secs);
    let parent = prop_oneof![2 => Just(LeaseId::NONE), 1 => lease_id()];
    let action = select(vec![AlarmAction::Activate, AlarmAction::Deactivate, AlarmAction::Deactivate]);
    let alarm = select(vec![Alarm::NoSpace, Alarm::Corrupt]);
    prop_oneof![
        1 => Just(Command::Nothing),
        12 => put().prop_map(Command::Put),
        4 => delete().prop_map(Command::DeleteRange),
        8 => txn_strategy().prop_map(Command::Txn),
        3 => compact_revision().prop_map(|revision| Command::Compact { revision: Revision(revision) }),
        6 => prop_oneof![0..5_u32, Just(1000)].prop_map(|limit| Command::Scrub { limit }),
        10 => (lease_id(), seconds(1..6_u64), parent)
            .prop_map(move |(id, ttl, parent)| Command::Grant(Grant { stamp, id, ttl, parent })),
        1 => lease_id().prop_map(|id| Command::Revoke { id }),
        5 => (btree_set(lease_id(), 0..3), 0..12_u32, proptest::bool::weighted(0.8)).prop_map(
            move |(renew, limit, last)| {
                Command::LeaseStep(LeaseStep { stamp, renew: renew.into_iter().collect(), limit, last })
            }
        ),
        1 => seconds(0..3_u64).prop_map(|grace| Command::TakeOver(TakeOver { term: 0, grace })),
        1 => (action, alarm, 1..3_u64).prop_map(|(action, alarm, member)| Command::Alarm {
            action,
            alarm,
            member: MemberId(member)
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let elapsed =
        prop_oneof![3 => 0..4_u64, 1 => 4..10_u64].prop_map(|halves| Nanos::from_millis(halves * 500));
    let quota_bytes = prop_oneof![9 => Just(0), 1 => 500..4000_u64];
    (command(), elapsed, proptest::bool::weighted(0.05), quota_bytes, vec(read(), 0..4), vec(read(), 0..2))
        .prop_map(|(command, elapsed, stale, quota_bytes, reads, read_txn)| Step {
            command,
            elapsed,
            stale,
            quota_bytes,
            reads,
            read_txn,
        })
}

/// A put that only the state has seen.
#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_state_that_differs_from_the_model_is_found() {
    let mut state = State::new();
    let put =
        Put { key: "a".into(), value: Some("x".into()), lease: PutLease::Set(LeaseId::NONE), prev: false };
    let put = Command::Put(put);
    apply(&mut state, &Entry { index: 1, term: 5, quota_bytes: 0, command: put });
    compare_past(&state, &Model::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_state_does_what_the_model_does(
        steps in vec(step(), 1..COMMANDS_MAX),
        split in 0..COMMANDS_MAX,
    ) {
        run(&steps, split);
    }
}
