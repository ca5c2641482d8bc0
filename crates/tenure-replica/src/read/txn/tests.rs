//! A transaction in pages, against the same one evaluated at once.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tenure_state::applied::{OpReply, Progress, RangeReply, TxnReply};
use tenure_state::command::{
    Command, CompareResult, DeleteRange, Entry, Put, PutLease, Range, Sort, SortOrder, SortTarget,
};
use tenure_state::ids::LeaseId;
use tenure_state::key::KeyRange;
use tenure_state::range;

use super::*;

fn apply(state: &mut State, command: Command) {
    let entry = Entry { index: state.applied() + 1, term: 1, quota_bytes: 0, command };
    let mut progress = state.apply(&entry);
    while let Progress::Unfinished = progress {
        progress = state.resume();
    }
}

/// Takes the pages of a transaction and finishes its ranges. With `moving`, the state goes on between the turns.
fn paged(
    state: &mut State,
    txn: &Txn,
    room: Room,
    looks_max: usize,
    mut moving: Vec<Command>,
) -> Result<TxnReply, Refusal> {
    let mut read = TxnRead::new(txn.clone(), state, Nanos::ZERO);
    let mut responses = Vec::new();
    let mut records = Vec::new();
    loop {
        let mut looks = looks_max;
        let page = read.advance(state, room, &mut looks)?;
        assert!(page.is_some() || looks == 0, "a turn ends with a page or with its share");
        if let Some(command) = moving.pop() {
            apply(state, command);
        }
        let Some(page) = page else { continue };
        let count: usize = page.ranges.iter().map(|range| range.records.len()).sum();
        assert!(count < 2 * room.records, "{count} records on a page");
        for part in page.ranges {
            records.extend(part.records);
            let Some(count) = part.count else { continue };
            let Op::Range(range) = &txn.branch(page.succeeded)[responses.len()] else {
                unreachable!("only ranges")
            };
            let (records, more) = range::finish(std::mem::take(&mut records), range);
            let shown = range::shown(range);
            responses.push(OpReply::Range(RangeReply { revision: page.at, records, count, more, shown }));
        }
        if page.done {
            return Ok(TxnReply { revision: page.at, succeeded: page.succeeded, responses });
        }
    }
}

fn key() -> impl Strategy<Value = Bytes> {
    (0..12_u8).prop_map(|number| Bytes::from(format!("k{number:02}")))
}

fn value() -> impl Strategy<Value = Bytes> {
    select(vec!["", "x", "y", "zz"]).prop_map(Bytes::from)
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::One),
        (key(), key()).prop_map(|(start, end)| KeyRange::Span { start, end }),
        key().prop_map(KeyRange::From),
        Just(KeyRange::From("k".into())),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    use {CompareResult as Is, CompareTarget as Target};
    let target = prop_oneof![
        (0..3_i64).prop_map(Target::Version),
        (0..40_i64).prop_map(Target::Create),
        (0..40_i64).prop_map(Target::Mod),
        (0..2_i64).prop_map(Target::Lease),
        value().prop_map(Target::Value),
    ];
    let result = select(vec![Is::Equal, Is::NotEqual, Is::NotEqual, Is::Greater, Is::Less]);
    (key_range(), result, target).prop_map(|(range, result, target)| Compare { range, result, target })
}

fn range_op() -> impl Strategy<Value = Op> {
    use {SortOrder as Order, SortTarget as Target};
    let target = select(vec![Target::Key, Target::Version, Target::Create, Target::Mod, Target::Value]);
    let order = select(vec![Order::None, Order::Ascend, Order::Descend]);
    let revision = prop_oneof![8 => Just(0), 4 => 10..30_i64, 1 => -3..60_i64];
    let rare = || proptest::bool::weighted(0.2);
    let bound = || prop_oneof![5 => Just(0), 1 => 0..40_i64];
    (key_range(), revision, -1..5_i64, target, order, rare(), rare(), bound(), bound()).prop_map(
        |(range, revision, limit, target, order, keys_only, count_only, mod_min, create_max)| {
            let sort = Sort { target, order };
            let (mod_max, create_min) = (0, 0);
            Op::Range(Range {
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
            })
        },
    )
}

fn txn() -> impl Strategy<Value = Txn> {
    (vec(compare(), 0..4), vec(range_op(), 0..5), vec(range_op(), 0..5))
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn write() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Command::Put(Put {
            key,
            value: Some(value),
            lease: PutLease::Set(LeaseId::NONE),
            prev: false
        })),
        1 => key_range().prop_map(|range| Command::DeleteRange(DeleteRange { range, prev: false })),
    ]
}

fn history() -> impl Strategy<Value = Vec<Command>> {
    let compaction = (0..15_i64).prop_map(|revision| Command::Compact { revision: Revision(revision) });
    let scrub = (1..30_u32).prop_map(|limit| Command::Scrub { limit });
    vec(prop_oneof![12 => write(), 1 => compaction, 1 => scrub], 0..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn pages_come_to_what_the_transaction_is_at_once(
        history in history(),
        txns in vec(txn(), 1..6),
        moving in vec(write(), 0..20),
        records in 1..5_usize,
        bytes in 1..20_usize,
        looks_max in 1..20_usize,
    ) {
        let mut state = State::new();
        for command in history {
            apply(&mut state, command);
        }
        for txn in &txns {
            let at_once = state.read_txn(txn);
            let room = Room { records, bytes };
            prop_assert_eq!(paged(&mut state, txn, room, looks_max, moving.clone()), at_once, "{:?}", txn);
        }
    }
}
