//! Compaction, hashes, alarms, status and the member list.

use sha2::{Digest, Sha256};
use tenure_proto::etcdserverpb as pb;
use tenure_replica::recover::{Place, RowReader};
use tenure_replica::wal::Origin;
use tokio_stream::StreamExt;
use tonic::Code;

use super::served::{Served, check, delete_of, get, nest, op_delete, op_put, put, put_of, then};

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";

#[tokio::test]
async fn a_compaction_goes_forward_and_not_into_the_future() {
    let served = Served::start().await;
    for _ in 0..9 {
        put(&mut served.kv(), "k", "v").await;
    }
    // A store that was never compacted takes revision 0.
    assert_eq!(served.compact(0).await.expect("a compaction"), 10);
    assert_eq!(served.compact(5).await.expect("a compaction"), 10);
    for revision in [5, 4, 0, -1, i64::MIN] {
        check(served.compact(revision).await, Code::OutOfRange, COMPACTED);
    }
    for revision in [11, i64::MAX] {
        check(served.compact(revision).await, Code::OutOfRange, FUTURE);
    }
    assert_eq!(served.compact(10).await.expect("a compaction"), 10);
    assert_eq!(get(&mut served.kv(), "k").await.count, 1, "the last version of a living key stays");
}

#[tokio::test]
async fn a_physical_compaction_answers_when_it_is_done() {
    let served = Served::start().await;
    for _ in 0..50 {
        put(&mut served.kv(), "k", "v").await;
    }
    let physical = |revision| pb::CompactionRequest { revision, physical: true };
    served.kv().compact(physical(30)).await.expect("a compaction");
    check(served.kv().compact(physical(30)).await, Code::OutOfRange, COMPACTED);
    check(served.kv().compact(physical(99)).await, Code::OutOfRange, FUTURE);
}

async fn hash_kv(served: &Served, revision: i64) -> Result<pb::HashKvResponse, tonic::Status> {
    let request = pb::HashKvRequest { revision };
    served.maintenance().hash_kv(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn the_hash_of_a_revision_stays_what_it_was() {
    let served = Served::start().await;
    for key in ["a", "b", "a"] {
        put(&mut served.kv(), key, "v").await;
    }
    let now = hash_kv(&served, 0).await.expect("a hash");
    assert_eq!((now.hash_revision, now.compact_revision, now.header.expect("a header").revision), (4, -1, 4));
    put(&mut served.kv(), "c", "v").await;
    let then = hash_kv(&served, 4).await.expect("a hash");
    assert_eq!((then.hash, then.hash_revision, then.header.expect("a header").revision), (now.hash, 4, 5));
    assert_ne!(hash_kv(&served, 0).await.expect("a hash").hash, now.hash);
    check(hash_kv(&served, 6).await, Code::OutOfRange, FUTURE);
    served.compact(3).await.expect("a compaction");
    check(hash_kv(&served, 2).await, Code::OutOfRange, COMPACTED);
    assert_eq!(hash_kv(&served, 0).await.expect("a hash").compact_revision, 3);
}

#[tokio::test]
async fn the_hash_of_everything_sees_leases_too() {
    let served = Served::start().await;
    let mut maintenance = served.maintenance();
    let before = maintenance.hash(pb::HashRequest {}).await.expect("a hash").into_inner();
    assert!(before.header.is_some());
    served.grant(60).await;
    let after = maintenance.hash(pb::HashRequest {}).await.expect("a hash").into_inner();
    assert_ne!(before.hash, after.hash);
}

#[tokio::test]
async fn a_full_store_takes_what_makes_it_smaller() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let member = get(&mut kv, "k").await.header.expect("a header").member_id;
    let lease = served.grant(60).await;
    for key in ["a", "b"] {
        put(&mut kv, key, "v").await;
    }
    let (get_alarms, activate, deactivate, no_space) = (0, 1, 2, 1);
    let alarm = async |action, alarm| {
        let request = pb::AlarmRequest { action, member_id: member, alarm };
        served.maintenance().alarm(request).await.expect("an answer").into_inner().alarms
    };
    assert_eq!(alarm(get_alarms, 0).await, []);
    let raised = vec![pb::AlarmMember { member_id: member, alarm: no_space }];
    assert_eq!(alarm(activate, no_space).await, raised);
    assert_eq!(alarm(get_alarms, 0).await, raised);

    let full = "etcdserver: mvcc: database space exceeded";
    check(kv.put(put_of("c", "v")).await, Code::ResourceExhausted, full);
    check(kv.txn(then(vec![op_put("c", "v")])).await, Code::ResourceExhausted, full);
    check(kv.txn(then(vec![nest(then(vec![op_put("c", "v")]))])).await, Code::ResourceExhausted, full);
    let more = served.lease().lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await;
    check(more, Code::ResourceExhausted, full);
    assert_eq!(get(&mut kv, "a").await.count, 1);
    kv.delete_range(delete_of("a", "")).await.expect("a deletion");
    kv.txn(then(vec![op_delete("b", "")])).await.expect("a deletion");
    served.compact(4).await.expect("a compaction");
    served.lease().lease_revoke(pb::LeaseRevokeRequest { id: lease }).await.expect("it lived");
    let status = served.maintenance().status(pb::StatusRequest {}).await.expect("a status").into_inner();
    assert_eq!(status.errors, [format!("memberID:{member} alarm:NOSPACE")]);

    assert_eq!(alarm(deactivate, no_space).await, raised);
    assert_eq!(alarm(get_alarms, 0).await, []);
    put(&mut kv, "c", "v").await;
}

#[tokio::test]
async fn a_status_says_how_a_member_stands() {
    let served = Served::start().await;
    put(&mut served.kv(), "k", "v").await;
    let status = served.maintenance().status(pb::StatusRequest {}).await.expect("a status").into_inner();
    let header = status.header.expect("a header");
    assert_eq!((header.revision, status.leader, status.raft_term), (2, header.member_id, header.raft_term));
    assert_eq!((status.version.as_str(), status.storage_version.as_str()), ("3.7.3", "3.7.0"));
    assert!(status.raft_index >= status.raft_applied_index && status.raft_applied_index > 1, "{status:?}");
    assert!(status.db_size_in_use > 0 && status.db_size_quota == 2 << 30, "{status:?}");
    assert!(status.errors.is_empty() && !status.is_learner);
    assert_eq!(status.downgrade_info, Some(pb::DowngradeInfo::default()));
}

#[tokio::test]
async fn the_one_member_is_listed() {
    let served = Served::start().await;
    let header = get(&mut served.kv(), "k").await.header.expect("a header");
    for linearizable in [true, false] {
        let request = pb::MemberListRequest { linearizable };
        let list = served.cluster().member_list(request).await.expect("a list").into_inner();
        let shown = list.header.expect("a header");
        assert_eq!(
            (shown.revision, shown.cluster_id, shown.member_id),
            (0, header.cluster_id, header.member_id)
        );
        let [member] = &list.members[..] else { panic!("one member, not {:?}", list.members) };
        assert_eq!((member.id, member.is_learner), (header.member_id, false));
        assert!(!member.client_ur_ls.is_empty() && !member.peer_ur_ls.is_empty());
    }
}

/// A whole snapshot, checked as etcd's client does, without its hash.
async fn snapshot(served: &Served) -> Vec<u8> {
    let stream = served.maintenance().snapshot(pb::SnapshotRequest {}).await.expect("a stream").into_inner();
    let messages: Vec<pb::SnapshotResponse> = stream.collect::<Result<_, _>>().await.expect("no error");
    let (last, blobs) = messages.split_last().expect("a hash at least");
    assert_eq!((last.blob.len(), last.remaining_bytes), (32, 0));
    let mut bytes = Vec::new();
    let mut remaining_bytes = u64::MAX;
    for message in blobs {
        assert!(message.header.is_none() && message.version == "3.7.0");
        assert!(message.remaining_bytes > 0 && message.remaining_bytes <= remaining_bytes);
        remaining_bytes = message.remaining_bytes;
        bytes.extend_from_slice(&message.blob);
    }
    assert!(blobs.iter().rev().skip(1).all(|message| message.blob.len() == 32 * 1024));
    assert_eq!(Sha256::digest(&bytes)[..], last.blob[..]);
    assert_eq!(bytes.len() % 512, 0);
    bytes
}

/// The state that a snapshot holds.
fn restored(snapshot: &[u8], origin: Origin) -> tenure_state::State {
    let rest = snapshot.strip_prefix(b"TENURESN\x01\0\0\0").expect("the head of a snapshot");
    let mut rows = RowReader::new(origin);
    let mut at = 0;
    while rest[at] != 0 {
        let key_bytes = usize::from(rest[at]);
        let value_bytes = u32::from_le_bytes(rest[at + 1..at + 5].try_into().expect("four bytes")) as usize;
        let (key, value) = rest[at + 5..at + 5 + key_bytes + value_bytes].split_at(key_bytes);
        rows.row(Place { file: "snapshot", offset: at as u64 }, key, value).expect("a row");
        at += 5 + key_bytes + value_bytes;
    }
    rows.finish("snapshot").expect("all rows").state
}

#[tokio::test]
async fn a_snapshot_holds_what_was_acknowledged_before_it() {
    let served = Served::start().await;
    served.fill(2_000).await;
    let lease = served.grant(600).await;
    served.kv().put(pb::PutRequest { lease, ..put_of("last", "v") }).await.expect("a put");
    let header = get(&mut served.kv(), "last").await.header.expect("a header");
    let snapshot = snapshot(&served).await;
    let state = restored(&snapshot, Origin { cluster: header.cluster_id, member: header.member_id });
    assert_eq!((state.revision().0, state.stats().keys, state.lease_count()), (header.revision, 2_001, 1));
    state.assert_invariants();
}

#[tokio::test]
async fn an_empty_store_has_a_snapshot_too() {
    let served = Served::start().await;
    assert!(snapshot(&served).await.len() >= 512);
}

#[tokio::test]
async fn only_so_many_snapshots_are_read_at_once() {
    let served = Served::start().await;
    // More than what is on its way to a client that does not read.
    served.fill_large(6).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(served.maintenance().snapshot(pb::SnapshotRequest {}).await.expect("a stream"));
    }
    let fifth = served.maintenance().snapshot(pb::SnapshotRequest {}).await;
    check(fifth, Code::Unknown, "etcdserver: too many requests");
    drop(open);
    for tries in 0.. {
        if served.maintenance().snapshot(pb::SnapshotRequest {}).await.is_ok() {
            break;
        }
        assert!(tries < 100, "those that are gone still count");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_store_can_be_defragmented_while_it_serves() {
    let served = Served::start().await;
    served.fill(3_000).await;
    // Which has the checkpoint written with all of them in it.
    snapshot(&served).await;
    served.kv().delete_range(delete_of("\0", "\0")).await.expect("a deletion");
    let revision = put(&mut served.kv(), "k", "v").await;
    let request = pb::CompactionRequest { revision, physical: true };
    served.kv().compact(request).await.expect("a compaction");
    let size = async || {
        let status = served.maintenance().status(pb::StatusRequest {}).await.expect("a status").into_inner();
        status.db_size
    };
    let before = size().await;
    let answer = served.maintenance().defragment(pb::DefragmentRequest {}).await.expect("it is done");
    assert_eq!(answer.into_inner().header, None, "as on etcd");
    let after = size().await;
    assert!(after < before, "{before} bytes became {after}");
    assert_eq!(get(&mut served.kv(), "k").await.count, 1);
    put(&mut served.kv(), "l", "v").await;
    let served = served.restart().await;
    assert_eq!(served.keys().await, ["k", "l"]);
}
