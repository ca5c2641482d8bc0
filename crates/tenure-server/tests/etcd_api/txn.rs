//! Transactions: compares, branches, what they may contain, and what a refusal leaves behind.

use tenure_proto::etcdserverpb as pb;
use tenure_proto::etcdserverpb::compare::TargetUnion;
use tonic::{Code, Status};

use super::served::{
    Served, check, del, delete_of, get, nest, op_delete, op_put, op_range, put, put_of, then,
};

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const LESS: i32 = 2;
const NOT_EQUAL: i32 = 3;

fn when(key: &'static str, result: i32, operand: TargetUnion) -> pb::Compare {
    let target = match operand {
        TargetUnion::Version(_) => 0,
        TargetUnion::CreateRevision(_) => 1,
        TargetUnion::ModRevision(_) => 2,
        TargetUnion::Value(_) => 3,
        TargetUnion::Lease(_) => 4,
    };
    let (key, target_union) = (key.into(), Some(operand));
    pb::Compare { result, target, key, range_end: Default::default(), target_union }
}

async fn txn(served: &Served, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
    served.kv().txn(request).await.map(tonic::Response::into_inner)
}

async fn holds(served: &Served, compare: Vec<pb::Compare>) -> bool {
    let request = pb::TxnRequest { compare, ..Default::default() };
    txn(served, request).await.expect("a transaction").succeeded
}

async fn revision(served: &Served) -> i64 {
    get(&mut served.kv(), "k").await.header.expect("a header").revision
}

#[tokio::test]
async fn a_compare_of_a_living_key_is_arithmetic() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let lease = served.grant(60).await;
    put(&mut kv, "other", "x").await;
    put(&mut kv, "k", "m").await;
    kv.put(pb::PutRequest { lease, ..put_of("k", "m") }).await.expect("a put");
    // Version 2, created at 3, modified at 4.
    type Operand = fn(i64) -> TargetUnion;
    let operands: [(Operand, i64); 4] = [
        (TargetUnion::Version, 2),
        (TargetUnion::CreateRevision, 3),
        (TargetUnion::ModRevision, 4),
        (TargetUnion::Lease, lease),
    ];
    for (operand, actual) in operands {
        for (offset, expected) in [
            (-1, [false, true, false, true]),
            (0, [true, false, false, false]),
            (1, [false, false, true, true]),
        ] {
            for (result, expected) in [EQUAL, GREATER, LESS, NOT_EQUAL].into_iter().zip(expected) {
                let compare = when("k", result, operand(actual + offset));
                assert_eq!(holds(&served, vec![compare.clone()]).await, expected, "{compare:?}");
            }
        }
    }
    for (value, expected) in [
        ("l", [false, true, false, true]),
        ("m", [true, false, false, false]),
        ("ma", [false, false, true, true]),
        ("", [false, true, false, true]),
    ] {
        for (result, expected) in [EQUAL, GREATER, LESS, NOT_EQUAL].into_iter().zip(expected) {
            let compare = when("k", result, TargetUnion::Value(value.into()));
            assert_eq!(holds(&served, vec![compare.clone()]).await, expected, "{compare:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_key_compares_as_zeros_and_has_no_value() {
    let served = Served::start().await;
    for operand in [
        TargetUnion::Version(0),
        TargetUnion::CreateRevision(0),
        TargetUnion::ModRevision(0),
        TargetUnion::Lease(0),
    ] {
        assert!(holds(&served, vec![when("x", EQUAL, operand.clone())]).await, "{operand:?}");
        assert!(!holds(&served, vec![when("x", NOT_EQUAL, operand)]).await);
    }
    assert!(holds(&served, vec![when("x", LESS, TargetUnion::CreateRevision(1))]).await);
    for result in [EQUAL, GREATER, LESS, NOT_EQUAL] {
        for value in ["", "v"] {
            assert!(!holds(&served, vec![when("x", result, TargetUnion::Value(value.into()))]).await);
        }
    }
}

#[tokio::test]
async fn a_compare_of_a_range_holds_for_every_key() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for key in ["a", "b", "c"] {
        put(&mut kv, key, "v").await;
    }
    put(&mut kv, "c", "w").await;
    let of = |range_end: &'static str, result, operand| {
        vec![pb::Compare { range_end: range_end.into(), ..when("a", result, operand) }]
    };
    assert!(holds(&served, of("c", EQUAL, TargetUnion::Version(1))).await);
    assert!(!holds(&served, of("d", EQUAL, TargetUnion::Version(1))).await);
    assert!(holds(&served, of("\0", GREATER, TargetUnion::Version(0))).await);
    assert!(!holds(&served, of("\0", EQUAL, TargetUnion::Value("v".into()))).await);
    let empty = |operand| vec![pb::Compare { range_end: "z".into(), ..when("x", EQUAL, operand) }];
    assert!(holds(&served, empty(TargetUnion::CreateRevision(0))).await);
    assert!(!holds(&served, empty(TargetUnion::Value("".into()))).await);
}

#[tokio::test]
async fn all_compares_must_hold() {
    let served = Served::start().await;
    put(&mut served.kv(), "k", "v").await;
    let yes = || when("k", EQUAL, TargetUnion::Version(1));
    let no = || when("k", EQUAL, TargetUnion::Version(2));
    assert!(holds(&served, vec![]).await);
    assert!(holds(&served, vec![yes(), yes()]).await);
    assert!(!holds(&served, vec![yes(), no()]).await);
}

#[tokio::test]
async fn numbers_that_nobody_knows_compare_as_on_etcd() {
    let served = Served::start().await;
    put(&mut served.kv(), "k", "v").await;
    let raw = |key: &'static str, result, target| {
        vec![pb::Compare { result, target, key: key.into(), ..Default::default() }]
    };
    for (key, result, target, expected) in [
        ("k", 99, 0, true),
        ("x", 99, 0, true),
        ("k", 99, 3, true),
        ("x", 99, 3, false),
        ("k", EQUAL, 99, true),
        ("k", NOT_EQUAL, 99, false),
        ("k", GREATER, 99, false),
        ("k", -1, -1, true),
    ] {
        assert_eq!(holds(&served, raw(key, result, target)).await, expected, "{key} {result} {target}");
    }
}

#[tokio::test]
async fn one_branch_is_taken_at_one_revision() {
    let served = Served::start().await;
    let request = |version| pb::TxnRequest {
        compare: vec![when("a", EQUAL, TargetUnion::Version(version))],
        success: vec![op_range("a"), op_put("a", "1"), op_range("a"), op_put("b", "2"), op_delete("a", "z")],
        failure: vec![op_range("zzz")],
    };
    // A deletion of what the same transaction puts is refused, so the first try is without it.
    let mut first = request(0);
    first.success.truncate(4);
    let answer = txn(&served, first).await.expect("a transaction");
    assert!(answer.succeeded);
    let header = answer.header.expect("a header");
    assert_eq!(header.revision, 2);
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);

    let inner: Vec<_> = answer.responses.iter().map(|one| one.response.clone().expect("filled")).collect();
    use pb::response_op::Response::{ResponsePut, ResponseRange};
    let [ResponseRange(before), ResponsePut(put_a), ResponseRange(after), ResponsePut(put_b)] = &inner[..]
    else {
        panic!("in the order of the operations, not {inner:?}")
    };
    let only = |revision| Some(pb::ResponseHeader { revision, ..Default::default() });
    assert_eq!((before.header, before.count), (only(1), 0), "before the first change");
    assert_eq!((after.header, after.count), (only(2), 1), "it sees its own writes");
    assert_eq!((put_a.header, put_b.header), (only(2), only(2)));

    check(
        txn(&served, request(0)).await,
        Code::InvalidArgument,
        "etcdserver: duplicate key given in txn request",
    );
    let mut second = request(0);
    second.success.clear();
    let answer = txn(&served, second).await.expect("a transaction");
    assert!(!answer.succeeded);
    assert_eq!((answer.responses.len(), answer.header.expect("a header").revision), (1, 2));
    let both = pb::RangeRequest { key: "a".into(), range_end: "c".into(), ..Default::default() };
    let both = served.kv().range(both).await.expect("a range").into_inner();
    let revisions: Vec<i64> = both.kvs.iter().map(|kv| kv.mod_revision).collect();
    assert_eq!(revisions, [2, 2]);
}

#[tokio::test]
async fn a_transaction_that_changes_nothing_is_no_revision() {
    let served = Served::start().await;
    for success in [vec![], vec![op_range("a")], vec![op_delete("a", "")], vec![nest(then(vec![]))]] {
        let answer = txn(&served, then(success)).await.expect("a transaction");
        assert_eq!(answer.header.expect("a header").revision, 1);
    }
}

#[tokio::test]
async fn nested_transactions_decide_before_anything_is_written() {
    let served = Served::start().await;
    let nested = pb::TxnRequest {
        compare: vec![when("a", EQUAL, TargetUnion::Version(1))],
        success: vec![op_put("then", "x")],
        failure: vec![op_put("else", "x"), op_range("a")],
    };
    let answer = txn(&served, then(vec![op_put("a", "1"), nest(nested)])).await.expect("a transaction");
    assert_eq!(served.keys().await, ["a", "else"]);
    let Some(pb::response_op::Response::ResponseTxn(nested)) = &answer.responses[1].response else {
        panic!("the second answer is that of the nested one")
    };
    assert_eq!((nested.header, nested.succeeded), (Some(pb::ResponseHeader::default()), false));
    let Some(pb::response_op::Response::ResponseRange(range)) = &nested.responses[1].response else {
        panic!("a range")
    };
    assert_eq!((range.count, range.header.expect("a header").revision), (1, 2), "it sees the put before it");
}

#[tokio::test]
async fn no_key_is_written_twice() {
    let served = Served::start().await;
    let either = |success, failure| nest(pb::TxnRequest { success, failure, ..Default::default() });
    let put = |key| op_put(key, "v");
    for (name, ops, is_valid) in [
        ("two puts", vec![put("k"), put("k")], false),
        ("two keys", vec![put("k"), put("l")], true),
        ("put, then its deletion", vec![put("k"), op_delete("k", "")], false),
        ("deletion, then a put", vec![op_delete("k", ""), put("k")], false),
        ("put within a deleted range", vec![op_delete("a", "z"), put("k")], false),
        ("put beside a deleted range", vec![op_delete("a", "k"), put("k")], true),
        ("put after all from a key on", vec![op_delete("l", "\0"), put("k")], true),
        // As on etcd, which reads the end of the range as a key.
        ("put among all from a key on", vec![op_delete("k", "\0"), put("l")], true),
        ("deletions overlap", vec![op_delete("a", "z"), op_delete("k", "")], true),
        ("read and written", vec![op_range("k"), put("k"), op_range("k")], true),
        ("then and else of one", vec![either(vec![put("k")], vec![put("k")])], true),
        ("nested and outside", vec![either(vec![put("k")], vec![]), put("k")], false),
        ("two nested ones", vec![either(vec![put("k")], vec![]), either(vec![], vec![put("k")])], false),
        ("deleted outside", vec![op_delete("a", "z"), either(vec![], vec![put("k")])], false),
        ("deleted inside", vec![either(vec![op_delete("a", "z")], vec![]), put("k")], false),
    ] {
        let result = txn(&served, then(ops)).await;
        match is_valid {
            true => drop(result.unwrap_or_else(|status| panic!("{name}: {status}"))),
            false => {
                let text = "etcdserver: duplicate key given in txn request";
                assert_eq!(result.expect_err(name).message(), text, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_operation_undoes_all() {
    let served = Served::start().await;
    put(&mut served.kv(), "k", "v").await;
    let range_at = |revision| {
        let range = pb::RangeRequest { key: "k".into(), revision, ..Default::default() };
        pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(range)) }
    };
    let raw_put = |put| pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) };
    let future = "etcdserver: mvcc: required revision is a future revision";
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let no_lease = "etcdserver: requested lease not found";
    let no_key = "etcdserver: key not found";
    for (op, code, text) in [
        // The very revision that the transaction would make is still the future.
        (range_at(3), Code::OutOfRange, future),
        (range_at(i64::MAX), Code::OutOfRange, future),
        // A negative one is compared as it is.
        (range_at(-5), Code::OutOfRange, compacted),
        (raw_put(pb::PutRequest { lease: 999, ..put_of("x", "v") }), Code::NotFound, no_lease),
        (raw_put(pb::PutRequest { ignore_value: true, ..put_of("x", "") }), Code::InvalidArgument, no_key),
        (raw_put(pb::PutRequest { ignore_lease: true, ..put_of("x", "v") }), Code::InvalidArgument, no_key),
        (pb::RequestOp::default(), Code::InvalidArgument, no_key),
    ] {
        for ops in [vec![op_put("a", "1"), op.clone()], vec![nest(then(vec![op_put("a", "1"), op]))]] {
            check(txn(&served, then(ops)).await, code, text);
        }
        assert_eq!((revision(&served).await, served.keys().await), (2, vec!["k".to_owned()]));
    }
    // What is not taken is not looked at.
    let request = pb::TxnRequest { failure: vec![range_at(99)], success: vec![], compare: vec![] };
    txn(&served, request).await.expect("a transaction");
}

#[tokio::test]
async fn a_transaction_has_room_for_so_many_operations() {
    let served = Served::start().await;
    let names: Vec<String> = (0..129).map(|number| format!("k{number}")).collect();
    let puts = |count: usize| names[..count].iter().map(|name| op_put(name.clone(), "v")).collect::<Vec<_>>();
    txn(&served, then(puts(128))).await.expect("just enough");
    let too_many = "etcdserver: too many operations in txn request";
    check(txn(&served, then(puts(129))).await, Code::InvalidArgument, too_many);
    txn(&served, then(vec![nest(then(puts(127)))])).await.expect("just enough");
    check(txn(&served, then(vec![nest(then(puts(128)))])).await, Code::InvalidArgument, too_many);
    let compares = vec![when("k", EQUAL, TargetUnion::Version(0)); 129];
    let request = pb::TxnRequest { compare: compares, ..Default::default() };
    check(txn(&served, request).await, Code::InvalidArgument, too_many);
}

#[tokio::test]
async fn deletions_in_a_transaction_answer_what_they_deleted() {
    let served = Served::start().await;
    let mut kv = served.kv();
    put(&mut kv, "a", "1").await;
    put(&mut kv, "b", "2").await;
    let asking = pb::DeleteRangeRequest { prev_kv: true, ..delete_of("a", "z") };
    let answer = txn(&served, then(vec![del(asking), op_delete("a", "z")])).await.expect("a transaction");
    assert_eq!(answer.header.expect("a header").revision, 4);
    let deleted: Vec<(i64, usize)> = answer
        .responses
        .into_iter()
        .map(|one| match one.response.expect("filled") {
            pb::response_op::Response::ResponseDeleteRange(gone) => (gone.deleted, gone.prev_kvs.len()),
            other => panic!("a deletion, not {other:?}"),
        })
        .collect();
    assert_eq!(deleted, [(2, 2), (0, 0)]);
}
