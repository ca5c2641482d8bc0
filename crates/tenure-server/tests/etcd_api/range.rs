//! Reads: ranges, revisions, limits, filters, sorting, and the answer in chunks.

use tenure_proto::etcdserverpb as pb;
use tonic::Code;

use super::served::{Served, check, delete_of, get, put, put_of};

const ALL: &str = "\0";

fn all() -> pb::RangeRequest {
    pb::RangeRequest { key: ALL.into(), range_end: ALL.into(), ..Default::default() }
}

fn keys(answer: &pb::RangeResponse) -> Vec<&str> {
    answer.kvs.iter().map(|kv| std::str::from_utf8(&kv.key).expect("a text")).collect()
}

/// a..e, with values in the opposite order, `c` written twice more and `b` created last.
async fn five() -> Served {
    let served = Served::start().await;
    let mut kv = served.kv();
    for (key, value) in [("a", "9"), ("c", "7"), ("d", "6"), ("e", "5"), ("b", "8"), ("c", "7"), ("c", "7")] {
        put(&mut kv, key, value).await;
    }
    served
}

#[tokio::test]
async fn a_range_is_what_its_ends_say() {
    let served = five().await;
    let mut kv = served.kv();
    for (key, range_end, found) in [
        ("b", "", vec!["b"]),
        ("x", "", vec![]),
        ("b", "d", vec!["b", "c"]),
        ("b", "\0", vec!["b", "c", "d", "e"]),
        ("\0", "\0", vec!["a", "b", "c", "d", "e"]),
        // Upside down is empty and no error.
        ("d", "b", vec![]),
        ("b", "b", vec![]),
        ("\0", "a", vec![]),
    ] {
        let request = pb::RangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
        let answer = kv.range(request).await.expect("a range").into_inner();
        assert_eq!(keys(&answer), found, "{key:?} to {range_end:?}");
        assert_eq!(answer.count as usize, found.len());
    }
}

#[tokio::test]
async fn a_limit_cuts_and_a_count_does_not_care() {
    let served = five().await;
    let mut kv = served.kv();
    for (limit, found, more) in [
        (0, 5, false),
        (-1, 5, false),
        (i64::MIN, 5, false),
        (1, 1, true),
        (4, 4, true),
        (5, 5, false),
        (i64::MAX, 5, false),
    ] {
        let answer = kv.range(pb::RangeRequest { limit, ..all() }).await.expect("a range").into_inner();
        assert_eq!((answer.kvs.len(), answer.more, answer.count), (found, more, 5), "limit {limit}");
    }
    let counting = pb::RangeRequest { count_only: true, limit: 2, ..all() };
    let answer = kv.range(counting).await.expect("a range").into_inner();
    assert_eq!((answer.kvs.len(), answer.more, answer.count), (0, false, 5));
}

#[tokio::test]
async fn the_past_can_be_read_until_it_is_compacted() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for value in ["2", "3", "4", "5"] {
        put(&mut kv, "k", value).await;
    }
    kv.delete_range(delete_of("k", "")).await.expect("a deletion");
    let read = async |revision: i64| {
        let request =
            pb::RangeRequest { revision, ..pb::RangeRequest { key: "k".into(), ..Default::default() } };
        served.kv().range(request).await.map(|answer| {
            let answer = answer.into_inner();
            assert_eq!(answer.header.expect("a header").revision, 6, "the current one");
            answer.kvs.first().map(|kv| String::from_utf8(kv.value.to_vec()).expect("a text"))
        })
    };
    for (revision, value) in
        [(1, None), (2, Some("2")), (4, Some("4")), (5, Some("5")), (6, None), (0, None), (-3, None)]
    {
        assert_eq!(read(revision).await.expect("a range").as_deref(), value, "at {revision}");
    }
    let future = "etcdserver: mvcc: required revision is a future revision";
    check(read(7).await, Code::OutOfRange, future);
    check(read(i64::MAX).await, Code::OutOfRange, future);

    served.compact(4).await.expect("a compaction");
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    check(read(3).await, Code::OutOfRange, compacted);
    check(read(1).await, Code::OutOfRange, compacted);
    // The compact revision itself stays readable, and below zero still means now.
    assert_eq!(read(4).await.expect("a range").as_deref(), Some("4"));
    assert_eq!(read(-3).await.expect("a range"), None);
}

#[tokio::test]
async fn answers_are_sorted_by_what_was_asked() {
    let served = five().await;
    let mut kv = served.kv();
    let (none, ascend, descend) = (0, 1, 2);
    let (key, version, create, modified, value) = (0, 1, 2, 3, 4);
    for (target, order, limit, found) in [
        (key, none, 0, vec!["a", "b", "c", "d", "e"]),
        (key, ascend, 2, vec!["a", "b"]),
        (key, descend, 2, vec!["e", "d"]),
        (create, ascend, 0, vec!["a", "c", "d", "e", "b"]),
        (create, descend, 2, vec!["b", "e"]),
        (modified, ascend, 0, vec!["a", "d", "e", "b", "c"]),
        (modified, descend, 1, vec!["c"]),
        (value, ascend, 3, vec!["e", "d", "c"]),
        (value, descend, 1, vec!["a"]),
        (version, descend, 1, vec!["c"]),
        // Without an order a target sorts what the limit let through in key order: one more than the limit, which
        // etcd reads to know whether there is more.
        (value, none, 2, vec!["c", "b"]),
        (create, none, 3, vec!["a", "c", "d"]),
    ] {
        let request = pb::RangeRequest { sort_target: target, sort_order: order, limit, ..all() };
        let answer = kv.range(request).await.expect("a range").into_inner();
        assert_eq!(keys(&answer), found, "target {target}, order {order}, limit {limit}");
        assert_eq!((answer.count, answer.more), (5, limit > 0));
    }
}

#[tokio::test]
async fn bounds_filter_before_the_limit() {
    let served = five().await;
    let mut kv = served.kv();
    let of = |min_mod, max_mod, min_create, max_create| pb::RangeRequest {
        min_mod_revision: min_mod,
        max_mod_revision: max_mod,
        min_create_revision: min_create,
        max_create_revision: max_create,
        ..all()
    };
    for (request, found, more) in [
        (of(4, 0, 0, 0), vec!["b", "c", "d", "e"], false),
        (of(0, 4, 0, 0), vec!["a", "d"], false),
        (of(4, 5, 0, 0), vec!["d", "e"], false),
        (of(0, 0, 4, 0), vec!["b", "d", "e"], false),
        (of(0, 0, 0, 3), vec!["a", "c"], false),
        (of(100, 0, 0, 0), vec![], false),
        (of(-5, 0, 0, 0), vec!["a", "b", "c", "d", "e"], false),
        (pb::RangeRequest { limit: 1, ..of(0, 4, 0, 0) }, vec!["a"], true),
    ] {
        let answer = kv.range(request.clone()).await.expect("a range").into_inner();
        assert_eq!((keys(&answer), answer.more, answer.count), (found, more, 5), "{request:?}");
    }
}

#[tokio::test]
async fn keys_only_leaves_out_values_and_with_them_the_lease() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let lease = served.grant(60).await;
    kv.put(pb::PutRequest { lease, ..put_of("k", "v") }).await.expect("a put");
    let (target_value, target_mod) = (4, 3);
    for (sort_target, shown_lease) in [(0, 0), (target_mod, 0), (target_value, lease)] {
        let request = pb::RangeRequest { keys_only: true, sort_target, ..all() };
        let record = kv.range(request).await.expect("a range").into_inner().kvs.remove(0);
        assert_eq!((record.value.len(), record.lease, record.version), (0, shown_lease, 1));
    }
}

#[tokio::test]
async fn a_serializable_read_sees_what_this_member_knows() {
    let served = Served::start().await;
    let mut kv = served.kv();
    put(&mut kv, "k", "v").await;
    let answer =
        kv.range(pb::RangeRequest { serializable: true, ..all() }).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.header.expect("a header").revision), (1, 2));
}

#[tokio::test]
async fn a_long_range_comes_whole() {
    let served = Served::start().await;
    served.fill(3_500).await;
    let answer = served.kv().range(all()).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.kvs.len()), (3_500, 3_500));
    assert!(answer.kvs.is_sorted_by(|a, b| a.key < b.key));
    let limited = pb::RangeRequest { limit: 2_400, ..all() };
    let answer = served.kv().range(limited).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.kvs.len(), answer.more), (3_500, 2_400, true));
}

/// All chunks, checked to be one answer.
async fn streamed(served: &Served, request: pb::RangeRequest) -> pb::RangeResponse {
    let mut stream = served.kv().range_stream(request).await.expect("a stream").into_inner();
    let mut whole = pb::RangeResponse::default();
    while let Some(chunk) = stream.message().await.expect("no error") {
        assert_eq!(whole.header, None, "nothing comes after the last chunk");
        let chunk = chunk.range_response.expect("every chunk is filled");
        whole.header = chunk.header;
        whole.count = chunk.count;
        whole.more = chunk.more;
        whole.kvs.extend(chunk.kvs);
    }
    assert!(whole.header.is_some(), "the last chunk has a header");
    whole
}

#[tokio::test]
async fn a_range_in_chunks_is_the_same_range() {
    let served = Served::start().await;
    served.fill(2_500).await;
    for request in [
        all(),
        pb::RangeRequest { limit: 1_234, ..all() },
        pb::RangeRequest { limit: 2_500, ..all() },
        pb::RangeRequest { keys_only: true, ..all() },
        pb::RangeRequest { count_only: true, ..all() },
        pb::RangeRequest { serializable: true, revision: 5, ..all() },
        pb::RangeRequest { key: "nothing".into(), ..Default::default() },
    ] {
        let whole = served.kv().range(request.clone()).await.expect("a range").into_inner();
        assert_eq!(streamed(&served, request.clone()).await, whole, "{request:?}");
    }
}

#[tokio::test]
async fn a_range_in_chunks_stands_at_one_revision() {
    let served = Served::start().await;
    served.fill(5_000).await;
    let before = get(&mut served.kv(), "k").await.header.expect("a header").revision;
    let mut stream = served.kv().range_stream(all()).await.expect("a stream").into_inner();
    let first = stream.message().await.expect("no error").expect("a chunk");
    let mut found = first.range_response.expect("a filled chunk").kvs.len();
    served.kv().delete_range(delete_of(ALL, ALL)).await.expect("a deletion");
    let mut header = None;
    while let Some(chunk) = stream.message().await.expect("no error") {
        let chunk = chunk.range_response.expect("a filled chunk");
        found += chunk.kvs.len();
        header = chunk.header;
    }
    assert_eq!((found, header.expect("a header").revision), (5_000, before));
}

#[tokio::test]
async fn a_range_in_chunks_is_refused_like_any_other() {
    let served = five().await;
    for (request, code, text) in [
        (
            pb::RangeRequest { sort_order: 2, ..all() },
            Code::Unimplemented,
            "RangeStream does not support custom sort orders",
        ),
        (
            pb::RangeRequest { max_mod_revision: 2, ..all() },
            Code::Unimplemented,
            "RangeStream does not support revision filters",
        ),
        (pb::RangeRequest::default(), Code::InvalidArgument, "etcdserver: key is not provided"),
        (
            pb::RangeRequest { revision: 100, ..all() },
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
        ),
    ] {
        let end = match served.kv().range_stream(request).await {
            Ok(stream) => stream.into_inner().message().await,
            Err(status) => Err(status),
        };
        check(end, code, text);
    }
}
