//! The services over a real connection, in front of a loop that answers what a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tenure_proto::etcdserverpb as pb;
use tenure_proto::etcdserverpb::auth_client::AuthClient;
use tenure_proto::etcdserverpb::cluster_client::ClusterClient;
use tenure_proto::etcdserverpb::kv_client::KvClient;
use tenure_proto::etcdserverpb::lease_client::LeaseClient;
use tenure_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_proto::health::health_client::HealthClient;
use tenure_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tenure_proto::{v3electionpb, v3lockpb};
use tenure_replica::Input;
use tenure_replica::effect::{Answer, Failure, RangePage, Status as MemberStatus, TimeToLive, TxnPage};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::applied::{PutReply, Reply, TxnReply};
use tenure_state::command::{Alarm, AlarmAction};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;
use tenure_state::refusal::Refusal;
use tokio_stream::StreamExt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status};

use super::fake::{CLUSTER, Fake, MEMBER, header};
use super::{Limits, MESSAGE_OVERHEAD_BYTES};

fn at(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision, raft_term: 3 })
}

fn check<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, text: &str) {
    let status = result.expect_err("an error");
    assert_eq!((status.code(), status.message()), (code, text));
}

fn put_of(value_bytes: usize) -> pb::PutRequest {
    pb::PutRequest { key: "k".into(), value: vec![b'v'; value_bytes].into(), ..Default::default() }
}

/// A loop that takes every put.
fn putting() -> Fake {
    Fake::new(|input| match input {
        Input::Write { write: Write::Put(_), .. } => Some(Ok((
            header(12),
            Answer::Applied(Reply::Put(PutReply { revision: Revision(11), prev: None })),
        ))),
        other => panic!("only puts, not {other:?}"),
    })
}

/// A loop that knows nothing but its own status.
fn knowing(status: MemberStatus) -> Fake {
    Fake::new(move |input| match input {
        Input::Read { read: Read::Status, .. } => {
            Some(Ok((header(9), Answer::Status(Box::new(status.clone())))))
        }
        Input::Read { read: Read::Barrier, .. } => Some(Ok((header(9), Answer::Barrier))),
        other => panic!("nothing but status and barrier, not {other:?}"),
    })
}

#[tokio::test]
async fn a_put_answers_its_own_revision_and_not_the_current_one() {
    let mut kv = KvClient::new(putting().serve().await);
    let answer = kv.put(put_of(5)).await.expect("a put").into_inner();
    assert_eq!(answer, pb::PutResponse { header: at(11), prev_kv: None });
}

#[tokio::test]
async fn a_request_may_be_as_large_as_the_limit_and_a_message_a_little_larger() {
    let max = Limits::default().max_request_bytes;
    let mut kv = KvClient::new(putting().serve().await);
    kv.put(put_of(max - 50)).await.expect("it just fits");
    let too_large = "etcdserver: request is too large";
    check(kv.put(put_of(max)).await, Code::InvalidArgument, too_large);
    check(kv.put(put_of(max + 100)).await, Code::InvalidArgument, too_large);
    check(kv.put(put_of(max + MESSAGE_OVERHEAD_BYTES - 100)).await, Code::InvalidArgument, too_large);
    let status = kv.put(put_of(max + MESSAGE_OVERHEAD_BYTES)).await.expect_err("no message is that large");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("grpc: received message larger than max"), "{status}");
    // What is wrong with the request itself is told first.
    let without_key = pb::PutRequest { key: Bytes::new(), ..put_of(max + 100) };
    check(kv.put(without_key).await, Code::InvalidArgument, "etcdserver: key is not provided");
}

#[tokio::test]
async fn a_transaction_nested_beyond_the_decoder_has_too_many_operations() {
    let mut kv = KvClient::new(Fake::unreachable().serve().await);
    for depth in [60, 1_000] {
        let mut txn = pb::TxnRequest::default();
        for _ in 0..depth {
            let op = pb::RequestOp { request: Some(pb::request_op::Request::RequestTxn(txn)) };
            txn = pb::TxnRequest { success: vec![op], ..Default::default() };
        }
        let text = "etcdserver: too many operations in txn request";
        check(kv.txn(txn).await, Code::InvalidArgument, text);
    }
}

#[tokio::test]
async fn what_is_invalid_never_reaches_the_loop() {
    let fake = Fake::unreachable();
    let channel = fake.serve().await;
    let (mut kv, mut lease) = (KvClient::new(channel.clone()), LeaseClient::new(channel));
    let empty = "etcdserver: key is not provided";
    check(kv.range(pb::RangeRequest::default()).await, Code::InvalidArgument, empty);
    check(kv.put(pb::PutRequest::default()).await, Code::InvalidArgument, empty);
    check(kv.delete_range(pb::DeleteRangeRequest::default()).await, Code::InvalidArgument, empty);
    check(kv.range_stream(pb::RangeRequest::default()).await, Code::InvalidArgument, empty);
    let empty_op = pb::TxnRequest { success: vec![pb::RequestOp::default()], ..Default::default() };
    check(kv.txn(empty_op).await, Code::InvalidArgument, "etcdserver: key not found");
    let forever = pb::LeaseGrantRequest { ttl: 9_000_000_001, id: 0 };
    check(lease.lease_grant(forever).await, Code::OutOfRange, "etcdserver: too large lease TTL");
}

#[tokio::test]
async fn a_range_is_collected_from_its_pages() {
    let record = |number: i64| {
        Arc::new(Record {
            key: Bytes::from(format!("k{number}")),
            value: Bytes::from_static(b"v"),
            create: Revision(2),
            at: RevisionAt { main: Revision(10 - number), sub: 0 },
            version: 1,
            lease: LeaseId(7),
        })
    };
    let mut next = 0;
    let fake = Fake::new(move |input| {
        match input {
            Input::Read { read: Read::Range(_), consistency, .. } => {
                assert_eq!(consistency, Consistency::Serializable);
                next = 0;
            }
            Input::NextPage { .. } => {}
            other => panic!("only ranges, not {other:?}"),
        }
        next += 1;
        // The store moves on while it is read.
        let page = RangePage {
            records: vec![record(2 * next - 1), record(2 * next)],
            at: Revision(20),
            count: (next == 3).then_some(6),
        };
        Some(Ok((header(20 + next), Answer::Page(page))))
    });
    let mut kv = KvClient::new(fake.serve().await);
    let all = pb::RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        serializable: true,
        ..Default::default()
    };
    let keys =
        |answer: &pb::RangeResponse| -> Vec<Bytes> { answer.kvs.iter().map(|kv| kv.key.clone()).collect() };

    let answer = kv.range(all.clone()).await.expect("a range").into_inner();
    assert_eq!((answer.header, answer.count, answer.more), (at(20), 6, false));
    assert_eq!(keys(&answer), ["k1", "k2", "k3", "k4", "k5", "k6"]);
    assert_eq!((answer.kvs[0].lease, &answer.kvs[0].value[..]), (7, &b"v"[..]));

    let old = pb::RangeRequest { revision: 12, keys_only: true, ..all.clone() };
    let answer = kv.range(old).await.expect("a range").into_inner();
    assert_eq!(answer.header, at(21));
    assert_eq!((answer.kvs[0].lease, &answer.kvs[0].value[..]), (0, &b""[..]));

    let newest = pb::RangeRequest { sort_order: 1, sort_target: 3, limit: 2, ..all.clone() };
    let answer = kv.range(newest).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.more, keys(&answer)), (6, true, vec!["k6".into(), "k5".into()]));

    let bounded = pb::RangeRequest { max_mod_revision: 5, limit: 2, ..all.clone() };
    let answer = kv.range(bounded).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.more, keys(&answer)), (6, false, vec!["k5".into(), "k6".into()]));

    let counted = pb::RangeRequest { count_only: true, limit: 2, ..all };
    let answer = kv.range(counted).await.expect("a range").into_inner();
    assert_eq!((answer.count, answer.more, keys(&answer)), (6, false, vec![]));
}

#[tokio::test]
async fn a_transaction_of_ranges_is_a_read_and_any_other_a_write() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = paths.clone();
    let fake = Fake::new(move |input| {
        let (path, answer) = match input {
            Input::Read { read: Read::Txn(txn), consistency, .. } => {
                let part = |_| RangePage { records: Vec::new(), at: Revision(8), count: Some(0) };
                let ranges = txn.success.iter().map(part).collect();
                let page = TxnPage { at: Revision(8), succeeded: true, ranges, done: true };
                (Some(consistency), Answer::Txn(page))
            }
            Input::Write { write: Write::Txn(_), .. } => {
                let reply = TxnReply { revision: Revision(8), succeeded: true, responses: Vec::new() };
                (None, Answer::Applied(Reply::Txn(reply)))
            }
            other => panic!("only transactions, not {other:?}"),
        };
        seen.lock().expect("no panic").push(path);
        Some(Ok((header(9), answer)))
    });
    let mut kv = KvClient::new(fake.serve().await);
    let op = |request| pb::RequestOp { request: Some(request) };
    let range = pb::RangeRequest { key: "k".into(), ..Default::default() };
    for success in [
        vec![],
        vec![op(pb::request_op::Request::RequestRange(range))],
        vec![op(pb::request_op::Request::RequestPut(put_of(1)))],
    ] {
        let answer = kv.txn(pb::TxnRequest { success, ..Default::default() }).await.expect("a transaction");
        assert_eq!(answer.into_inner().header, at(8));
    }
    let expected = [Some(Consistency::Serializable), Some(Consistency::Linearizable), None];
    assert_eq!(*paths.lock().expect("no panic"), expected);
}

#[tokio::test]
async fn an_open_lease_id_is_drawn_until_it_is_free() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let fake = Fake::new(move |input| {
        let Input::Write { write: Write::Grant { id, ttl, parent }, .. } = input else {
            panic!("only grants, not {input:?}")
        };
        assert!(parent.is_none());
        let mut asked = seen.lock().expect("no panic");
        asked.push(id.0);
        Some(match asked.len() {
            1 | 2 | 4 => Err(Failure::Refused(Refusal::LeaseExists)),
            _ => Ok((header(9), Answer::Applied(Reply::Grant { id, ttl, revision: Revision(8) }))),
        })
    });
    let mut lease = LeaseClient::new(fake.serve().await);
    let granted = lease.lease_grant(pb::LeaseGrantRequest { ttl: -5, id: 0 }).await.expect("a lease");
    let granted = granted.into_inner();
    let drawn = asked.lock().expect("no panic").clone();
    assert_eq!(drawn.len(), 3);
    assert!(drawn.iter().all(|id| *id > 0));
    let expected = pb::LeaseGrantResponse { header: at(8), id: drawn[2], ttl: 1, error: String::new() };
    assert_eq!(granted, expected);

    let taken = lease.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: i64::MIN }).await;
    check(taken, Code::FailedPrecondition, "etcdserver: lease already exists");
    let granted = lease.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: i64::MIN }).await;
    assert_eq!(granted.expect("a lease").into_inner().id, i64::MIN);
}

#[tokio::test]
async fn a_lease_tells_what_is_left_of_it() {
    let fake = Fake::new(|input| {
        let Input::Read { read: Read::TimeToLive { id, keys }, .. } = input else {
            panic!("only times to live, not {input:?}")
        };
        let lease = TimeToLive {
            granted: Nanos::from_secs(60),
            remaining: Nanos::from_millis(if id.0 == 1 { 59_999 } else { 3 }),
            keys: if keys { vec!["k".into()] } else { Vec::new() },
        };
        Some(Ok((header(9), Answer::TimeToLive((id.0 > 0).then_some(lease)))))
    });
    let mut lease = LeaseClient::new(fake.serve().await);
    let asked = async |lease: &mut LeaseClient<_>, id, keys| {
        let request = pb::LeaseTimeToLiveRequest { id, keys };
        let answer: pb::LeaseTimeToLiveResponse =
            lease.lease_time_to_live(request).await.expect("an answer").into_inner();
        assert_eq!((answer.header, answer.id), (at(9), id));
        (answer.ttl, answer.granted_ttl, answer.keys)
    };
    assert_eq!(asked(&mut lease, 1, true).await, (59, 60, vec!["k".into()]));
    assert_eq!(asked(&mut lease, 2, false).await, (1, 60, vec![]));
    assert_eq!(asked(&mut lease, -1, true).await, (-1, 0, vec![]));
}

#[tokio::test]
async fn a_leader_is_required_only_by_who_asks() {
    let required = || {
        let mut request = Request::new(put_of(1));
        request.metadata_mut().insert("hasleader", "true".parse().expect("ASCII"));
        request
    };
    let leaderless = Fake::new(|input| match input {
        Input::Read { read: Read::Status, .. } => Some(Ok((header(9), Answer::Status(Box::default())))),
        Input::Write { .. } => {
            Some(Ok((header(9), Answer::Applied(Reply::Put(PutReply { revision: Revision(9), prev: None })))))
        }
        other => panic!("only status and puts, not {other:?}"),
    });
    let mut kv = KvClient::new(leaderless.serve().await);
    kv.put(put_of(1)).await.expect("nobody asked for a leader");
    check(kv.put(required()).await, Code::Unavailable, "etcdserver: no leader");

    let led = Fake::new(|input| match input {
        Input::Read { read: Read::Status, .. } => {
            let status = MemberStatus { leader: 5, ..Default::default() };
            Some(Ok((header(9), Answer::Status(Box::new(status)))))
        }
        _ => {
            Some(Ok((header(9), Answer::Applied(Reply::Put(PutReply { revision: Revision(9), prev: None })))))
        }
    });
    KvClient::new(led.serve().await).put(required()).await.expect("there is a leader");
}

#[tokio::test]
async fn the_version_of_a_client_is_text() {
    let mut kv = KvClient::new(putting().serve().await);
    for (version, is_valid) in
        [(&b"3.7"[..], true), (b"", true), ("3.7-ä".as_bytes(), true), (b"\xff", false)]
    {
        let mut request = Request::new(put_of(1));
        let value = MetadataValue::<Ascii>::try_from(version).expect("a header may hold it");
        request.metadata_mut().insert("client-api-version", value);
        match is_valid {
            true => drop(kv.put(request).await.expect("a version")),
            false => {
                check(kv.put(request).await, Code::InvalidArgument, "etcdserver: invalid client api version")
            }
        }
    }
}

#[tokio::test]
async fn a_member_list_has_no_revision_and_waits_only_if_asked() {
    let mut cluster =
        ClusterClient::new(knowing(MemberStatus { leader: MEMBER, ..Default::default() }).serve().await);
    for linearizable in [false, true] {
        let list = cluster.member_list(pb::MemberListRequest { linearizable }).await.expect("a list");
        let list = list.into_inner();
        assert_eq!(list.header, at(0));
        let [member] = &list.members[..] else { panic!("one member, not {:?}", list.members) };
        assert_eq!((member.id, member.name.as_str()), (MEMBER, "default"));
        assert_eq!(member.client_ur_ls, ["http://localhost:2379"]);
    }
    check(
        cluster.member_add(pb::MemberAddRequest::default()).await,
        Code::Unimplemented,
        "Not yet implemented",
    );
}

#[tokio::test]
async fn status_fills_every_field() {
    let status = MemberStatus {
        leader: 0,
        is_learner: true,
        term: 3,
        committed: 14,
        applied: 13,
        alarms: vec![(MemberId(5), Alarm::NoSpace), (MemberId(6), Alarm::Corrupt)],
        stats: tenure_state::Stats { logical_bytes: 1234, ..Default::default() },
        ..Default::default()
    };
    let mut maintenance = MaintenanceClient::new(knowing(status).serve().await);
    let answer = maintenance.status(pb::StatusRequest {}).await.expect("a status").into_inner();
    let errors = ["etcdserver: no leader", "memberID:5 alarm:NOSPACE", "memberID:6 alarm:CORRUPT"];
    let expected = pb::StatusResponse {
        header: at(9),
        version: "3.7.3".to_owned(),
        // Nothing was ever written.
        db_size: 0,
        leader: 0,
        raft_index: 14,
        raft_term: 3,
        raft_applied_index: 13,
        errors: errors.map(str::to_owned).to_vec(),
        db_size_in_use: 1234,
        is_learner: true,
        storage_version: "3.7.0".to_owned(),
        db_size_quota: 2_147_483_648,
        downgrade_info: Some(pb::DowngradeInfo::default()),
    };
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn alarms_are_listed_raised_and_cleared() {
    let raised = Arc::new(Mutex::new(vec![(MemberId(5), Alarm::NoSpace), (MemberId(6), Alarm::Corrupt)]));
    let fake = Fake::new(move |input| {
        let mut raised = raised.lock().expect("no panic");
        Some(Ok(match input {
            Input::Read { read: Read::Status, .. } => {
                let status = MemberStatus { alarms: raised.clone(), ..Default::default() };
                (header(9), Answer::Status(Box::new(status)))
            }
            Input::Read { read: Read::Barrier, .. } => (header(9), Answer::Barrier),
            Input::Write { write: Write::Alarm { action, member, alarm }, .. } => {
                raised.retain(|one| *one != (member, alarm));
                if action == AlarmAction::Activate {
                    raised.push((member, alarm));
                }
                let reply = Reply::Alarms { alarms: raised.clone(), revision: Revision(9) };
                (header(9), Answer::Applied(reply))
            }
            other => panic!("only alarms, not {other:?}"),
        }))
    });
    let mut maintenance = MaintenanceClient::new(fake.serve().await);
    let mut ask = async |action, member_id, alarm| {
        let answer = maintenance.alarm(pb::AlarmRequest { action, member_id, alarm }).await;
        let answer = answer.expect("an answer").into_inner();
        assert_eq!(answer.header, at(9));
        answer.alarms.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect::<Vec<_>>()
    };
    let (get, activate, deactivate) = (0, 1, 2);
    let (none, no_space, corrupt) = (0, 1, 2);
    assert_eq!(ask(get, 0, none).await, [(5, no_space), (6, corrupt)]);
    assert_eq!(ask(get, 0, no_space).await, [(5, no_space)]);
    assert_eq!(ask(get, 0, corrupt).await, [(6, corrupt)]);
    assert_eq!(ask(activate, 7, none).await, []);
    assert_eq!(ask(activate, 7, no_space).await, [(7, no_space)]);
    assert_eq!(ask(activate, 7, no_space).await, [(7, no_space)], "raised already");
    assert_eq!(ask(deactivate, 7, no_space).await, [(7, no_space)]);
    assert_eq!(ask(deactivate, 7, no_space).await, [], "nothing to clear");
    assert_eq!(ask(9, 7, no_space).await, [], "an action that nobody knows");
    assert_eq!(ask(get, 0, none).await, [(5, no_space), (6, corrupt)]);
}

#[tokio::test]
async fn authentication_is_off() {
    let mut auth = AuthClient::new(knowing(MemberStatus::default()).serve().await);
    let status = auth.auth_status(pb::AuthStatusRequest {}).await.expect("a status").into_inner();
    assert_eq!((status.header, status.enabled), (at(9), false));
    let refused = auth.authenticate(pb::AuthenticateRequest::default()).await;
    check(refused, Code::FailedPrecondition, "etcdserver: authentication is not enabled");
    let unimplemented = auth.auth_enable(pb::AuthEnableRequest {}).await.expect_err("an error");
    assert_eq!(unimplemented.code(), Code::Unimplemented);
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let channel = Fake::unreachable().serve().await;
    let lock =
        v3lockpb::lock_client::LockClient::new(channel.clone()).lock(v3lockpb::LockRequest::default()).await;
    assert_eq!(lock.expect_err("an error").code(), Code::Unimplemented);
    let leader = v3electionpb::election_client::ElectionClient::new(channel.clone())
        .leader(v3electionpb::LeaderRequest::default())
        .await;
    assert_eq!(leader.expect_err("an error").code(), Code::Unimplemented);
    let moved = MaintenanceClient::new(channel).move_leader(pb::MoveLeaderRequest::default()).await;
    assert_eq!(moved.expect_err("an error").code(), Code::Unimplemented);
}

#[tokio::test]
async fn the_server_is_healthy_until_it_stops() {
    let fake = Fake::unreachable();
    let mut health = HealthClient::new(fake.serve().await);
    let about = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let serving = HealthCheckResponse { status: 1 };
    assert_eq!(health.check(about("")).await.expect("an answer").into_inner(), serving);
    check(health.check(about("etcdserverpb.KV")).await, Code::NotFound, "unknown service");

    let mut unknown = health.watch(about("x")).await.expect("a stream").into_inner();
    assert_eq!(unknown.next().await.expect("an answer").expect("no error").status, 3);
    let mut watch = health.watch(about("")).await.expect("a stream").into_inner();
    assert_eq!(watch.next().await.expect("an answer").expect("no error"), serving);
    tokio::time::timeout(Duration::from_millis(50), watch.next()).await.expect_err("it stays open");
    fake.stop();
    for mut stream in [watch, unknown] {
        let end = stream.next().await.expect("an end");
        check(end, Code::Unavailable, "etcdserver: server stopped");
    }
}

#[tokio::test]
async fn renewals_come_back_over_a_connection() {
    let fake = Fake::new(|input| {
        let Input::Renew { ids, .. } = input else { panic!("only renewals, not {input:?}") };
        let left = Some(Nanos::from_secs(30));
        let renewed = ids.into_iter().map(|id| tenure_state::applied::Renewed { id, remaining: left });
        Some(Ok((header(9), Answer::Renewed(renewed.collect()))))
    });
    let mut lease = LeaseClient::new(fake.serve().await);
    let requests = tokio_stream::iter((1..=1_000).map(|id| pb::LeaseKeepAliveRequest { id }));
    let mut answers = lease.lease_keep_alive(requests).await.expect("a stream").into_inner();
    for id in 1..=1_000 {
        let answer = answers.next().await.expect("an answer").expect("no error");
        assert_eq!(answer, pb::LeaseKeepAliveResponse { header: at(9), id, ttl: 30 });
    }
    assert!(answers.next().await.is_none(), "the client was done");
}
