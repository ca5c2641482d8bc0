//! What only a broken or hostile client sends. Whatever it is, it is answered and others are served.

use std::time::Duration;

use bytes::Bytes;
use tenure_proto::etcdserverpb as pb;
use tokio_stream::StreamExt;
use tonic::Code;

use super::served::{Served, check, del, get, nest, op_put, put, put_of, then};

const MAX_REQUEST_BYTES: usize = 1_572_864;

fn put_of_bytes(bytes: usize) -> pb::PutRequest {
    pb::PutRequest { key: "k".into(), value: vec![b'v'; bytes].into(), ..Default::default() }
}

#[tokio::test]
async fn a_request_at_its_limit_is_kept_and_one_over_it_is_not() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let largest = MAX_REQUEST_BYTES - 50;
    kv.put(put_of_bytes(largest)).await.expect("it just fits");
    let request = pb::RangeRequest { key: "k".into(), ..Default::default() };
    assert_eq!(kv.range(request).await.expect("a range").into_inner().kvs[0].value.len(), largest);
    for bytes in [MAX_REQUEST_BYTES, MAX_REQUEST_BYTES + 100, MAX_REQUEST_BYTES + 500 * 1024] {
        check(kv.put(put_of_bytes(bytes)).await, Code::InvalidArgument, "etcdserver: request is too large");
    }
    for bytes in [MAX_REQUEST_BYTES + 512 * 1024, 9 << 20] {
        let status = kv.put(put_of_bytes(bytes)).await.expect_err("no message is that large");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    assert_eq!(put(&mut kv, "k", "v").await, 3, "the connection goes on");
}

#[tokio::test]
async fn transactions_a_thousand_deep_are_too_many_operations() {
    let served = Served::start().await;
    for depth in [30, 100, 1_000] {
        let mut txn = pb::TxnRequest::default();
        for _ in 0..depth {
            let op = pb::RequestOp { request: Some(pb::request_op::Request::RequestTxn(txn)) };
            txn = pb::TxnRequest { success: vec![op], ..Default::default() };
        }
        match depth {
            30 => drop(served.kv().txn(txn).await.expect("a transaction")),
            _ => {
                let text = "etcdserver: too many operations in txn request";
                check(served.kv().txn(txn).await, Code::InvalidArgument, text);
            }
        }
    }
}

/// 74,088 operations are within etcd's budget for nested ones and fit into a request of half the largest size. To
/// look at each put for each deletion took 90 s in a build without optimisation.
#[tokio::test]
async fn a_transaction_as_full_as_it_may_be_is_soon_checked() {
    let served = Served::start().await;
    let mut names = (0u32..).map(|number| Bytes::copy_from_slice(&number.to_be_bytes()));
    let mut next = || names.next().expect("there are plenty");
    let first = next();
    let mut leaf = || {
        let deletion = |key| del(pb::DeleteRangeRequest { key, ..Default::default() });
        nest(then((0..21).flat_map(|_| [op_put(next(), ""), deletion(next())]).collect()))
    };
    let mut ops: Vec<_> = (0..42).map(|_| nest(then((0..42).map(|_| leaf()).collect()))).collect();
    // What is wrong with it is found last, and nothing of it is carried out.
    ops.extend([op_put(first.clone(), ""), op_put(first, "")]);
    let refused = tokio::time::timeout(Duration::from_secs(30), served.kv().txn(then(ops))).await;
    let text = "etcdserver: duplicate key given in txn request";
    check(refused.expect("it is soon checked"), Code::InvalidArgument, text);
}

#[tokio::test]
async fn numbers_that_nobody_knows_are_refused_where_etcd_refuses_them() {
    let served = Served::start().await;
    let of = |sort_order, sort_target| pb::RangeRequest {
        key: "k".into(),
        sort_order,
        sort_target,
        ..Default::default()
    };
    for request in [of(3, 0), of(-1, 0), of(0, 5), of(i32::MAX, i32::MIN)] {
        check(served.kv().range(request).await, Code::InvalidArgument, "etcdserver: invalid sort option");
    }
    for alarm in [3, -1] {
        for action in [0, 1, 2, 7] {
            let request = pb::AlarmRequest { action, member_id: 1, alarm };
            assert_eq!(served.maintenance().alarm(request).await.expect("an answer").into_inner().alarms, []);
        }
    }
}

#[tokio::test]
async fn a_client_that_never_reads_its_answers_holds_up_nobody() {
    let served = Served::start().await;
    let lease = served.grant(600).await;
    let requests = tokio_stream::iter(std::iter::repeat(pb::LeaseKeepAliveRequest { id: lease }));
    // More requests than there will ever be answers, none of which is read. On a connection of its own: HTTP/2
    // lets a stream that is not read fill what all streams of a connection share.
    let mut client = pb::lease_client::LeaseClient::new(served.connect().await);
    let unread = client.lease_keep_alive(requests).await.expect("a stream");
    served.fill_large(20).await;
    let all = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let long = served.kv().range_stream(all).await.expect("a stream");
    for number in 0..50 {
        let answered = tokio::time::timeout(Duration::from_secs(5), served.kv().put(put_of("k", "v"))).await;
        answered.unwrap_or_else(|_| panic!("put {number} waits")).expect("a put");
    }
    drop((unread, long));
}

#[tokio::test]
async fn a_thousand_streams_that_are_half_closed_end_well() {
    let served = Served::start().await;
    let lease = served.grant(600).await;
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        let requests = tokio_stream::once(pb::LeaseKeepAliveRequest { id: lease });
        streams.push(served.lease().lease_keep_alive(requests).await.expect("a stream").into_inner());
    }
    for stream in streams {
        let answers: Vec<_> = stream.collect::<Result<_, _>>().await.expect("it ends well");
        assert_eq!(answers.len(), 1);
    }
}

#[tokio::test]
async fn ten_thousand_idle_streams_are_carried() {
    let served = Served::start().await;
    let lease = served.grant(600).await;
    let mut streams = Vec::new();
    for number in 0..10_000 {
        let client = if number % 1_000 == 0 { served.connect().await } else { served.channel() };
        let mut client = pb::lease_client::LeaseClient::new(client);
        streams.push(client.lease_keep_alive(tokio_stream::pending()).await.expect("a stream"));
    }
    let requests = tokio_stream::once(pb::LeaseKeepAliveRequest { id: lease });
    let mut answers = served.lease().lease_keep_alive(requests).await.expect("a stream").into_inner();
    assert_eq!(answers.message().await.expect("no error").expect("an answer").id, lease);
    assert_eq!(get(&mut served.kv(), "k").await.count, 0);
}
