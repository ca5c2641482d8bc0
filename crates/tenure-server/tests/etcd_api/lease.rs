//! Leases: granting, renewing, ending, and what becomes of their keys.

use std::time::{Duration, Instant};

use tenure_proto::etcdserverpb as pb;
use tokio_stream::StreamExt;
use tonic::Code;

use super::served::{Served, check, get, put, put_of};

async fn grant(served: &Served, id: i64, ttl: i64) -> Result<pb::LeaseGrantResponse, tonic::Status> {
    let request = pb::LeaseGrantRequest { id, ttl };
    served.lease().lease_grant(request).await.map(tonic::Response::into_inner)
}

async fn time_to_live(served: &Served, id: i64) -> pb::LeaseTimeToLiveResponse {
    let request = pb::LeaseTimeToLiveRequest { id, keys: true };
    served.lease().lease_time_to_live(request).await.expect("an answer").into_inner()
}

async fn revoke(served: &Served, id: i64) -> Result<i64, tonic::Status> {
    let answer = served.lease().lease_revoke(pb::LeaseRevokeRequest { id }).await?.into_inner();
    Ok(answer.header.expect("a header").revision)
}

/// The answers to renewals of `ids` on one stream that is then closed.
async fn keep_alive(served: &Served, ids: Vec<i64>) -> Vec<pb::LeaseKeepAliveResponse> {
    let requests = tokio_stream::iter(ids.into_iter().map(|id| pb::LeaseKeepAliveRequest { id }));
    let answers = served.lease().lease_keep_alive(requests).await.expect("a stream").into_inner();
    answers.collect::<Result<_, _>>().await.expect("it ends well")
}

#[tokio::test]
async fn a_ttl_is_what_was_asked_for_within_its_bounds() {
    let served = Served::start().await;
    for (asked, granted) in
        [(-5, 1), (i64::MIN, 1), (0, 1), (1, 1), (2, 2), (60, 60), (9_000_000_000, 9_000_000_000)]
    {
        let lease = grant(&served, 0, asked).await.expect("a lease");
        assert_eq!((lease.ttl, lease.error.as_str()), (granted, ""), "asked for {asked}");
        assert!(lease.id > 0, "drawn ids are positive");
        let header = lease.header.expect("a header");
        assert!(header.revision == 1 && header.cluster_id != 0 && header.raft_term != 0, "{header:?}");
    }
    for asked in [9_000_000_001, i64::MAX] {
        check(grant(&served, 0, asked).await, Code::OutOfRange, "etcdserver: too large lease TTL");
    }
}

#[tokio::test]
async fn any_number_is_a_lease_and_lives_once() {
    let served = Served::start().await;
    for id in [1, 77, -9, i64::MIN, i64::MAX] {
        assert_eq!(grant(&served, id, 60).await.expect("a lease").id, id);
        check(grant(&served, id, 60).await, Code::FailedPrecondition, "etcdserver: lease already exists");
        revoke(&served, id).await.expect("it lived");
        assert_eq!(grant(&served, id, 60).await.expect("granted anew").id, id);
    }
    let leases = served.lease().lease_leases(pb::LeaseLeasesRequest {}).await.expect("a list").into_inner();
    let mut ids: Vec<i64> = leases.leases.iter().map(|lease| lease.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [i64::MIN, -9, 1, 77, i64::MAX]);
    assert!(leases.header.is_some());
}

#[tokio::test]
async fn leases_are_listed_by_what_is_left_of_them() {
    let served = Served::start().await;
    for (id, ttl) in [(1, 300), (2, 100), (3, 200)] {
        grant(&served, id, ttl).await.expect("a lease");
    }
    let leases = served.lease().lease_leases(pb::LeaseLeasesRequest {}).await.expect("a list").into_inner();
    assert_eq!(leases.leases.iter().map(|lease| lease.id).collect::<Vec<_>>(), [2, 3, 1]);
}

#[tokio::test]
async fn a_revoked_lease_takes_its_keys_along_at_one_revision() {
    let served = Served::start().await;
    let mut kv = served.kv();
    grant(&served, 7, 60).await.expect("a lease");
    for key in ["c", "a", "b"] {
        kv.put(pb::PutRequest { lease: 7, ..put_of(key, "v") }).await.expect("a put");
    }
    put(&mut kv, "d", "v").await;
    assert_eq!(time_to_live(&served, 7).await.keys, ["a", "b", "c"]);
    assert_eq!(revoke(&served, 7).await.expect("it lived"), 6);
    assert_eq!(served.keys().await, ["d"]);
    check(revoke(&served, 7).await, Code::NotFound, "etcdserver: requested lease not found");

    grant(&served, 8, 60).await.expect("a lease");
    assert_eq!(revoke(&served, 8).await.expect("it lived"), 6, "without keys it is no revision");
    for id in [0, -1] {
        check(revoke(&served, id).await, Code::NotFound, "etcdserver: requested lease not found");
    }
}

#[tokio::test]
async fn a_key_belongs_to_the_lease_of_its_last_put() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for id in [1, 2] {
        grant(&served, id, 60).await.expect("a lease");
    }
    kv.put(pb::PutRequest { lease: 1, ..put_of("k", "v") }).await.expect("a put");
    kv.put(pb::PutRequest { lease: 2, ..put_of("k", "v") }).await.expect("a put");
    kv.put(pb::PutRequest { lease: 1, ..put_of("free", "v") }).await.expect("a put");
    put(&mut kv, "free", "v").await;
    assert_eq!(get(&mut kv, "k").await.kvs[0].lease, 2);
    revoke(&served, 1).await.expect("it lived");
    assert_eq!(served.keys().await, ["free", "k"]);
    revoke(&served, 2).await.expect("it lived");
    assert_eq!(served.keys().await, ["free"]);
}

#[tokio::test]
async fn what_is_left_is_told_in_whole_seconds() {
    let served = Served::start().await;
    grant(&served, 7, 60).await.expect("a lease");
    let alive = time_to_live(&served, 7).await;
    assert!((58..=60).contains(&alive.ttl), "{alive:?}");
    assert_eq!((alive.id, alive.granted_ttl, alive.keys.len()), (7, 60, 0));
    for id in [0, 8, -7] {
        let missing = time_to_live(&served, id).await;
        assert_eq!((missing.id, missing.ttl, missing.granted_ttl), (id, -1, 0));
        assert!(missing.header.is_some());
    }
}

#[tokio::test]
async fn renewals_are_answered_in_order_and_the_stream_ends_with_the_client() {
    let served = Served::start().await;
    for id in [1, 2, -3] {
        grant(&served, id, 60).await.expect("a lease");
    }
    let answers = keep_alive(&served, vec![1, 99, 2, -3, 1, 0]).await;
    let told: Vec<(i64, bool)> = answers.iter().map(|answer| (answer.id, answer.ttl >= 59)).collect();
    assert_eq!(told, [(1, true), (99, false), (2, true), (-3, true), (1, true), (0, false)]);
    assert!(answers.iter().all(|answer| answer.ttl == 0 || answer.ttl >= 59), "{answers:?}");
    let header = answers[1].header.expect("a header, also for what does not live");
    assert!(header.revision == 1 && header.member_id != 0, "{header:?}");
    assert_eq!(keep_alive(&served, vec![]).await, [], "nothing asked, nothing answered");
}

#[tokio::test]
async fn a_stream_goes_on_after_a_lease_that_does_not_live() {
    let served = Served::start().await;
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let requests = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
    let mut answers = served.lease().lease_keep_alive(requests).await.expect("a stream").into_inner();
    for (id, lives) in [(7, false), (7, true), (8, false), (7, true)] {
        if lives && id == 7 {
            let _ = grant(&served, 7, 60).await;
        }
        sender.send(pb::LeaseKeepAliveRequest { id }).expect("the stream is open");
        let answer = answers.message().await.expect("no error").expect("an answer");
        assert_eq!((answer.id, answer.ttl > 0), (id, lives));
    }
}

#[tokio::test]
async fn a_lease_ends_when_it_was_told_and_not_before() {
    let served = Served::start().await;
    let mut kv = served.kv();
    grant(&served, 1, 1).await.expect("a lease");
    let granted = Instant::now();
    for key in ["a", "b"] {
        kv.put(pb::PutRequest { lease: 1, ..put_of(key, "v") }).await.expect("a put");
    }
    while !served.keys().await.is_empty() {
        assert!(granted.elapsed() < Duration::from_secs(3), "it is long over");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(granted.elapsed() >= Duration::from_millis(950), "after {:?}", granted.elapsed());
    let answer = get(&mut kv, "a").await;
    assert_eq!(answer.header.expect("a header").revision, 4, "both went at one revision");
    assert_eq!(time_to_live(&served, 1).await.ttl, -1);
    assert_eq!(keep_alive(&served, vec![1]).await[0].ttl, 0);
    check(revoke(&served, 1).await, Code::NotFound, "etcdserver: requested lease not found");
}

#[tokio::test]
async fn a_lease_that_is_renewed_lives_on() {
    let served = Served::start().await;
    grant(&served, 1, 1).await.expect("a lease");
    served.kv().put(pb::PutRequest { lease: 1, ..put_of("k", "v") }).await.expect("a put");
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let answers = keep_alive(&served, vec![1]).await;
        assert_eq!(answers[0].ttl, 1, "a living lease never shows 0");
    }
    assert_eq!(served.keys().await, ["k"]);
}
