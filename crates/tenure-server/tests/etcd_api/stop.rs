//! How a server goes, and what it knows when it comes back.

use std::time::{Duration, Instant};

use tenure_proto::etcdserverpb as pb;
use tenure_proto::health::HealthCheckRequest;
use tenure_proto::health::health_client::HealthClient;
use tonic::Code;

use super::served::{Served, check, delete_of, get, put, put_of};

#[tokio::test]
async fn open_streams_are_told_that_the_server_stops() {
    let mut served = Served::start().await;
    let mut lease = served.lease();
    let keeping = lease.lease_keep_alive(tokio_stream::pending()).await.expect("a stream").into_inner();
    let watching = pb::watch_client::WatchClient::new(served.channel())
        .watch(tokio_stream::pending())
        .await
        .expect("a stream")
        .into_inner();
    let mut health = HealthClient::new(served.channel())
        .watch(HealthCheckRequest::default())
        .await
        .expect("a stream")
        .into_inner();
    health.message().await.expect("no error").expect("an answer");
    let started = Instant::now();
    served.stop().await;
    assert!(started.elapsed() < Duration::from_secs(2), "it took {:?}", started.elapsed());
    let stopped = "etcdserver: server stopped";
    check({ keeping }.message().await, Code::Unavailable, stopped);
    check({ watching }.message().await, Code::Unavailable, stopped);
    check(health.message().await, Code::Unavailable, stopped);
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for id in [7, -8] {
        let granted = served.lease().lease_grant(pb::LeaseGrantRequest { id, ttl: 600 }).await;
        granted.expect("a lease");
    }
    put(&mut kv, "a", "1").await;
    put(&mut kv, "a", "2").await;
    kv.put(pb::PutRequest { lease: 7, ..put_of("b", "1") }).await.expect("a put");
    put(&mut kv, "c", "1").await;
    kv.delete_range(delete_of("c", "")).await.expect("a deletion");
    served.compact(3).await.expect("a compaction");
    let all = || pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let before = kv.range(all()).await.expect("a range").into_inner();
    let hash = |served: &Served| {
        let mut maintenance = served.maintenance();
        async move {
            let answer =
                maintenance.hash_kv(pb::HashKvRequest::default()).await.expect("a hash").into_inner();
            (answer.hash, answer.hash_revision, answer.compact_revision)
        }
    };
    let hash_before = hash(&served).await;

    let served = served.restart().await;
    let after = served.kv().range(all()).await.expect("a range").into_inner();
    assert_eq!(after.kvs, before.kvs);
    let (old, new) = (before.header.expect("a header"), after.header.expect("a header"));
    assert_eq!((new.revision, new.cluster_id, new.member_id), (old.revision, old.cluster_id, old.member_id));
    assert!(new.raft_term > old.raft_term, "a new life is a new term");
    assert_eq!(hash(&served).await, hash_before);
    let refused = served.kv().range(pb::RangeRequest { revision: 2, ..all() }).await;
    check(refused, Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
    let request = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let lease = served.lease().lease_time_to_live(request).await.expect("an answer").into_inner();
    assert!((590..=600).contains(&lease.ttl), "{lease:?}");
    assert_eq!(lease.keys, ["b"]);
    assert_eq!(put(&mut served.kv(), "d", "1").await, old.revision + 1);
    assert_eq!(get(&mut served.kv(), "d").await.count, 1);
}
