use tenure_proto::etcdserverpb::request_op::Request;

use super::*;

const OPS_MAX: usize = 128;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn range_of(key: &'static str) -> pb::RangeRequest {
    pb::RangeRequest { key: bytes(key), ..Default::default() }
}

fn put_to(key: &'static str) -> pb::PutRequest {
    pb::PutRequest { key: bytes(key), ..Default::default() }
}

fn op_of(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn nested(txn: pb::TxnRequest) -> pb::RequestOp {
    op_of(Request::RequestTxn(txn))
}

fn read_txn(request: pb::TxnRequest) -> Result<Txn, Invalid> {
    txn(request, OPS_MAX, 0)
}

#[test]
fn a_pair_of_keys_is_read_as_etcd_reads_it() {
    let read = |key, end| key_range(bytes(key), bytes(end));
    assert_eq!(read("", ""), Err(Invalid::EmptyKey));
    assert_eq!(read("", "z"), Err(Invalid::EmptyKey));
    assert_eq!(read("a", ""), Ok(KeyRange::One(bytes("a"))));
    assert_eq!(read("a", "\0"), Ok(KeyRange::From(bytes("a"))));
    assert_eq!(read("\0", "\0"), Ok(KeyRange::From(bytes("\0"))));
    assert_eq!(read("b", "a"), Ok(KeyRange::Span { start: bytes("b"), end: bytes("a") }));
}

#[test]
fn the_first_thing_wrong_with_a_range_is_the_answer() {
    let cases: [(pb::RangeRequest, Option<Invalid>); 7] = [
        (range_of("k"), None),
        (pb::RangeRequest { limit: -1, revision: -7, ..range_of("k") }, None),
        (range_of(""), Some(Invalid::EmptyKey)),
        (pb::RangeRequest { sort_order: 99, ..range_of("") }, Some(Invalid::EmptyKey)),
        (pb::RangeRequest { sort_order: 3, ..range_of("k") }, Some(Invalid::SortOption)),
        (pb::RangeRequest { sort_order: -1, ..range_of("k") }, Some(Invalid::SortOption)),
        (pb::RangeRequest { sort_target: 5, ..range_of("k") }, Some(Invalid::SortOption)),
    ];
    for (request, wrong) in cases {
        assert_eq!(range(request.clone()).err(), wrong, "{request:?}");
    }
}

#[test]
fn every_option_of_a_range_arrives() {
    let request = pb::RangeRequest {
        key: bytes("a"),
        range_end: bytes("b"),
        limit: 1,
        revision: 2,
        sort_order: 2,
        sort_target: 4,
        serializable: true,
        keys_only: true,
        count_only: true,
        min_mod_revision: 3,
        max_mod_revision: 4,
        min_create_revision: 5,
        max_create_revision: 6,
    };
    let read = Range {
        range: KeyRange::Span { start: bytes("a"), end: bytes("b") },
        revision: 2,
        limit: 1,
        sort: Sort { target: SortTarget::Value, order: SortOrder::Descend },
        keys_only: true,
        count_only: true,
        mod_min: 3,
        mod_max: 4,
        create_min: 5,
        create_max: 6,
    };
    assert_eq!(range(request), Ok(read));
}

#[test]
fn a_range_stream_takes_the_default_order_only() {
    let sorted = |target, order| pb::RangeRequest { sort_target: target, sort_order: order, ..range_of("k") };
    let bounded =
        |min, max| pb::RangeRequest { min_mod_revision: min, max_create_revision: max, ..range_of("k") };
    let cases = [
        (sorted(0, 0), None),
        (sorted(0, 1), None),
        // A target without an order is etcd's default order too.
        (sorted(3, 0), None),
        (sorted(0, 2), Some(Invalid::StreamOrder)),
        (sorted(1, 1), Some(Invalid::StreamOrder)),
        (sorted(0, 9), Some(Invalid::SortOption)),
        (bounded(1, 0), Some(Invalid::StreamBounds)),
        (bounded(0, 1), Some(Invalid::StreamBounds)),
        (pb::RangeRequest { min_mod_revision: 1, ..sorted(0, 2) }, Some(Invalid::StreamOrder)),
        (range_of(""), Some(Invalid::EmptyKey)),
    ];
    for (request, wrong) in cases {
        assert_eq!(range_stream(request.clone()).err(), wrong, "{request:?}");
    }
}

#[test]
fn the_first_thing_wrong_with_a_put_is_the_answer() {
    let with_value = pb::PutRequest { value: bytes("v"), ignore_value: true, ..put_to("k") };
    let with_lease = pb::PutRequest { lease: 7, ignore_lease: true, ..put_to("k") };
    let with_both = pb::PutRequest { lease: 7, ignore_lease: true, ..with_value.clone() };
    let cases = [
        (put_to("k"), None),
        (put_to(""), Some(Invalid::EmptyKey)),
        (pb::PutRequest { key: Bytes::new(), ..with_both.clone() }, Some(Invalid::EmptyKey)),
        (with_value, Some(Invalid::ValueProvided)),
        (with_lease, Some(Invalid::LeaseProvided)),
        (with_both, Some(Invalid::ValueProvided)),
    ];
    for (request, wrong) in cases {
        assert_eq!(put(request.clone()).err(), wrong, "{request:?}");
    }

    let kept = put(pb::PutRequest { ignore_value: true, ignore_lease: true, prev_kv: true, ..put_to("k") });
    assert_eq!(kept, Ok(Put { key: bytes("k"), value: None, lease: PutLease::Keep, prev: true }));
    // A value that is empty is a value; a lease may have any number.
    let set = put(pb::PutRequest { lease: i64::MIN, ..put_to("k") });
    let lease = PutLease::Set(LeaseId(i64::MIN));
    assert_eq!(set, Ok(Put { key: bytes("k"), value: Some(Bytes::new()), lease, prev: false }));
}

#[test]
fn a_small_value_leaves_the_network_buffer_and_a_large_one_stays() {
    let is_shared = |value_bytes: usize, message_bytes: usize| {
        let buffer = Bytes::from(vec![b'x'; value_bytes]);
        let kept = stored(buffer.clone(), message_bytes);
        assert_eq!(kept, buffer);
        kept.as_ptr() == buffer.as_ptr()
    };
    assert!(!is_shared(100, 110));
    assert!(!is_shared(SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN));
    assert!(is_shared(SHARED_BYTES_MIN, SHARED_BYTES_MIN + 10));
    assert!(is_shared(1_000_000, 1_000_100));
    // One of many in a large transaction.
    assert!(!is_shared(SHARED_BYTES_MIN, 1_000_000));
}

#[test]
fn a_transaction_is_checked_in_the_order_of_etcd() {
    let ranges = |count: usize| vec![op_of(Request::RequestRange(range_of("k"))); count];
    let compares = |count: usize| vec![pb::Compare { key: bytes("k"), ..Default::default() }; count];
    let success = |success| pb::TxnRequest { success, ..Default::default() };
    let deletes = |key| {
        op_of(Request::RequestDeleteRange(pb::DeleteRangeRequest { key: bytes(key), ..Default::default() }))
    };
    let cases = [
        ("nothing at all", pb::TxnRequest::default(), None),
        (
            "as much as fits",
            pb::TxnRequest { compare: compares(128), success: ranges(128), failure: ranges(128) },
            None,
        ),
        (
            "too many compares",
            pb::TxnRequest { compare: compares(129), ..Default::default() },
            Some(Invalid::TooManyOps),
        ),
        ("too many then", success(ranges(129)), Some(Invalid::TooManyOps)),
        (
            "too many else",
            pb::TxnRequest { failure: ranges(129), ..Default::default() },
            Some(Invalid::TooManyOps),
        ),
        (
            "too many before anything else",
            pb::TxnRequest {
                compare: vec![pb::Compare::default()],
                success: ranges(129),
                ..Default::default()
            },
            Some(Invalid::TooManyOps),
        ),
        ("nested, as much as is left", success(vec![nested(success(ranges(127)))]), None),
        ("nested, more than is left", success(vec![nested(success(ranges(128)))]), Some(Invalid::TooManyOps)),
        (
            "compare without a key before an empty operation",
            pb::TxnRequest {
                compare: vec![pb::Compare::default()],
                success: vec![pb::RequestOp::default()],
                ..Default::default()
            },
            Some(Invalid::EmptyKey),
        ),
        ("empty operation", success(vec![pb::RequestOp::default()]), Some(Invalid::EmptyOp)),
        (
            "the first operation counts",
            success(vec![deletes(""), pb::RequestOp::default()]),
            Some(Invalid::EmptyKey),
        ),
        (
            "then before else",
            pb::TxnRequest {
                success: vec![op_of(Request::RequestRange(pb::RangeRequest {
                    sort_order: 9,
                    ..range_of("k")
                }))],
                failure: vec![op_of(Request::RequestPut(put_to("")))],
                ..Default::default()
            },
            Some(Invalid::SortOption),
        ),
        (
            "a put in a branch is checked like any put",
            success(vec![op_of(Request::RequestPut(pb::PutRequest {
                ignore_lease: true,
                lease: 1,
                ..put_to("k")
            }))]),
            Some(Invalid::LeaseProvided),
        ),
        (
            "whatever is nested is checked too",
            success(vec![nested(success(vec![pb::RequestOp::default()]))]),
            Some(Invalid::EmptyOp),
        ),
        (
            "a key twice",
            success(vec![op_of(Request::RequestPut(put_to("k"))), op_of(Request::RequestPut(put_to("k")))]),
            Some(Invalid::DuplicateKey),
        ),
        (
            "a key twice, and worse after it",
            success(vec![
                op_of(Request::RequestPut(put_to("k"))),
                op_of(Request::RequestPut(put_to("k"))),
                pb::RequestOp::default(),
            ]),
            Some(Invalid::EmptyOp),
        ),
        ("deletes may overlap", success(vec![deletes("k"), deletes("k")]), None),
    ];
    for (name, request, wrong) in cases {
        assert_eq!(read_txn(request).err(), wrong, "{name}");
    }
}

#[test]
fn only_ranges_are_read_without_the_log() {
    let at = |serializable| op_of(Request::RequestRange(pb::RangeRequest { serializable, ..range_of("k") }));
    let of = |success, failure| txn_path(&pb::TxnRequest { success, failure, ..Default::default() });
    let read = |consistency| TxnPath::Read(consistency);
    assert_eq!(of(vec![at(false)], vec![]), read(Consistency::Linearizable));
    assert_eq!(of(vec![at(true)], vec![at(false)]), read(Consistency::Linearizable));
    assert_eq!(of(vec![at(true)], vec![at(true)]), read(Consistency::Serializable));
    // Nothing but compares, as far as etcd is concerned.
    assert_eq!(of(vec![], vec![]), read(Consistency::Serializable));
    assert_eq!(of(vec![op_of(Request::RequestPut(put_to("k")))], vec![]), TxnPath::Write);
    assert_eq!(of(vec![at(true)], vec![nested(pb::TxnRequest::default())]), TxnPath::Write);
}

#[test]
fn a_compare_takes_the_operand_of_its_target() {
    use pb::compare::TargetUnion;
    let read = |result: i32, target: i32, operand: Option<TargetUnion>| {
        let request =
            pb::Compare { result, target, key: bytes("k"), range_end: Bytes::new(), target_union: operand };
        let compare = compare(request).expect("it has a key");
        assert_eq!(compare.range, KeyRange::One(bytes("k")));
        (compare.result, compare.target)
    };
    let (always, never, lives) = (
        (CompareResult::Greater, CompareTarget::Version(-1)),
        (CompareResult::Less, CompareTarget::Version(-1)),
        (CompareResult::Greater, CompareTarget::Version(0)),
    );
    let cases = [
        ((0, 0, Some(TargetUnion::Version(5))), (CompareResult::Equal, CompareTarget::Version(5))),
        ((1, 1, Some(TargetUnion::CreateRevision(5))), (CompareResult::Greater, CompareTarget::Create(5))),
        ((2, 2, Some(TargetUnion::ModRevision(5))), (CompareResult::Less, CompareTarget::Mod(5))),
        (
            (3, 3, Some(TargetUnion::Value(bytes("v")))),
            (CompareResult::NotEqual, CompareTarget::Value(bytes("v"))),
        ),
        ((0, 4, Some(TargetUnion::Lease(-5))), (CompareResult::Equal, CompareTarget::Lease(-5))),
        // No operand, or one of another kind.
        ((0, 0, None), (CompareResult::Equal, CompareTarget::Version(0))),
        ((0, 2, Some(TargetUnion::Version(5))), (CompareResult::Equal, CompareTarget::Mod(0))),
        ((0, 3, None), (CompareResult::Equal, CompareTarget::Value(Bytes::new()))),
        // Numbers that nobody knows.
        ((9, 0, None), always.clone()),
        ((9, 3, None), lives),
        ((0, 9, None), always.clone()),
        ((9, 9, None), always),
        ((1, 9, None), never.clone()),
        ((2, 9, None), never.clone()),
        ((3, 9, None), never),
    ];
    for ((result, target, operand), expected) in cases {
        assert_eq!(read(result, target, operand.clone()), expected, "{result} {target} {operand:?}");
    }
}

#[test]
fn a_ttl_is_raised_to_a_second_and_has_an_end() {
    for (seconds, granted) in [
        (i64::MIN, Ok(1)),
        (-5, Ok(1)),
        (0, Ok(1)),
        (1, Ok(1)),
        (2, Ok(2)),
        (9_000_000_000, Ok(9_000_000_000)),
        (9_000_000_001, Err(Invalid::TtlTooLarge)),
        (i64::MAX, Err(Invalid::TtlTooLarge)),
    ] {
        assert_eq!(ttl(seconds), granted.map(Nanos::from_secs), "{seconds} s");
    }
}

#[test]
fn an_alarm_that_nobody_knows_is_none() {
    assert_eq!([0, 1, 2, 3, -1].map(alarm), [None, Some(Alarm::NoSpace), Some(Alarm::Corrupt), None, None]);
}
