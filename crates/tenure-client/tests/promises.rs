//! What this client promises when members fail, against members that fail on purpose.

mod fake;

use std::time::{Duration, Instant};

use fake::{Fake, Script};
use tenure_client::{
    Client, ClientError, Get, LeaseId, Loss, Notice, Options, Put, Watch,
    etcdserverpb::{ResponseHeader, WatchResponse},
    mvccpb::{Event, KeyValue},
};
use tonic::{Code, Status};

fn client(members: &[&Fake]) -> Client {
    let options =
        Options { dial_timeout: Duration::from_millis(500), request_timeout: Duration::from_millis(800) };
    Client::new(members.iter().map(|member| member.endpoint()), options).expect("well formed endpoints")
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future).await.expect("it comes in time")
}

#[tokio::test]
async fn a_silent_member_loses_the_lease_before_its_time_is_over() {
    let member = Fake::start(Script { renewal_ttl_s: None, ..Script::default() });
    let asked = Instant::now();
    let grant = client(&[&member]).grant(Duration::from_secs(1)).await.expect("granted");
    assert_eq!(grant.id, LeaseId(7));
    let alive = client(&[&member]).keep_alive(&grant);
    assert!(alive.is_held());
    let loss = within(Duration::from_secs(5), alive.lost()).await;
    let lasted = asked.elapsed();
    assert!(matches!(loss, Loss::Unanswered { last_error: Some(_), .. }), "{loss}");
    assert!(!alive.is_held());
    // 1 s, less one hundredth, less 5 ms; the upper bound leaves room for a slow machine, whose late waking changes nothing about
    // `is_held`.
    assert!(lasted >= Duration::from_millis(980) && lasted < Duration::from_millis(1400), "{lasted:?}");
    assert!(member.script().renewals.len() >= 2, "a silent answer is asked for again");
}

#[tokio::test]
async fn a_lease_is_kept_beyond_its_ttl_until_the_server_says_that_it_is_gone() {
    let member = Fake::start(Script { renewal_ttl_s: Some(1), ..Script::default() });
    let client = client(&[&member]);
    let grant = client.grant(Duration::from_secs(1)).await.expect("granted");
    let alive = client.keep_alive(&grant);
    let watched = tokio::time::timeout(Duration::from_millis(2200), alive.lost()).await;
    assert!(watched.is_err(), "{watched:?}");
    assert!(alive.is_held());
    let renewals = member.script().renewals.clone();
    assert!((5..=9).contains(&renewals.len()), "{}", renewals.len());

    member.script().renewal_ttl_s = Some(0);
    let loss = within(Duration::from_secs(1), alive.lost()).await;
    assert_eq!(loss, Loss::Gone { id: grant.id });
    assert_eq!(alive.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn a_renewal_finds_another_member_when_its_own_dies() {
    let mut first = Fake::start(Script { renewal_ttl_s: Some(2), ..Script::default() });
    let second = Fake::start(Script { renewal_ttl_s: Some(2), ..Script::default() });
    let client = client(&[&first, &second]);
    let grant = client.grant(Duration::from_secs(2)).await.expect("granted");
    let alive = client.keep_alive(&grant);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(!first.script().renewals.is_empty());
    first.kill();
    let lost = tokio::time::timeout(Duration::from_millis(2500), alive.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(!second.script().renewals.is_empty());
}

#[tokio::test]
async fn renewing_once_tells_a_lease_that_is_gone_from_a_failure() {
    let member = Fake::start(Script { renewal_ttl_s: Some(0), ..Script::default() });
    let error = client(&[&member]).keep_alive_once(LeaseId(9)).await.expect_err("gone");
    assert!(matches!(error, ClientError::LeaseNotFound { id: LeaseId(9) }), "{error}");
}

fn put_event(revision: i64) -> WatchResponse {
    let kv = KeyValue { key: "k".into(), mod_revision: revision, ..Default::default() };
    WatchResponse {
        header: Some(ResponseHeader { revision, ..Default::default() }),
        events: vec![Event { kv: Some(kv), ..Default::default() }],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_watch_goes_on_at_another_member_after_the_last_revision_it_told() {
    let mut first = Fake::start(Script {
        revision: 10,
        watch_answers: vec![put_event(11), put_event(14)],
        ..Script::default()
    });
    let second =
        Fake::start(Script { revision: 20, watch_answers: vec![put_event(15)], ..Script::default() });
    let mut watcher = client(&[&first, &second]).watch(Watch::prefix("")).await.expect("watching");
    let limit = Duration::from_secs(3);
    let mut next = async || within(limit, watcher.next()).await;
    assert_eq!(next().await.expect("created"), Notice::Created { revision: 10 });
    for revision in [11, 14] {
        assert!(matches!(next().await, Ok(Notice::Events { revision: told, .. }) if told == revision));
    }
    first.kill();
    assert!(matches!(next().await, Ok(Notice::Events { revision: 15, .. })));
    assert_eq!(first.script().watch_starts, [0]);
    assert_eq!(second.script().watch_starts, [15]);
}

#[tokio::test]
async fn a_watch_that_asks_for_compacted_history_says_so() {
    let gone = WatchResponse { canceled: true, compact_revision: 5, ..Default::default() };
    let member = Fake::start(Script { revision: 10, watch_answers: vec![gone], ..Script::default() });
    let watch = Watch::key("k").start_revision(2);
    let mut watcher = client(&[&member]).watch(watch).await.expect("created first, as etcd does");
    assert_eq!(watcher.next().await.expect("created"), Notice::Created { revision: 10 });
    let error = watcher.next().await.expect_err("the history is gone");
    assert!(matches!(error, ClientError::Compacted { compact_revision: 5 }), "{error}");
}

#[tokio::test]
async fn a_watch_that_cannot_start_says_why_and_one_that_is_refused_says_so_at_once() {
    let refusal = |status| Script { watch_refusal: Some(status), ..Script::default() };
    let member = Fake::start(refusal(Status::unavailable("etcdserver: no leader")));
    let error = client(&[&member]).watch(Watch::key("k")).await.expect_err("no leader all the time");
    assert_eq!(error.to_string(), "etcdserver: no leader");

    let member = Fake::start(refusal(Status::unauthenticated("etcdserver: invalid auth token")));
    let asked = Instant::now();
    let error = client(&[&member]).watch(Watch::key("k")).await.expect_err("refused");
    assert_eq!(error.code(), Some(Code::Unauthenticated));
    assert!(asked.elapsed() < Duration::from_millis(700), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn reads_are_repeated_while_there_is_no_leader_and_writes_never() {
    let no_leader = || Some(Status::unavailable("etcdserver: no leader"));
    let member = Fake::start(Script { kv_refusal: no_leader(), ..Script::default() });
    let client = client(&[&member]);

    let error = client.put(Put::new("k", "v")).await.expect_err("no leader");
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(error.to_string(), "etcdserver: no leader");
    assert_eq!(member.script().kv_requests, 1);

    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get(Get::key("k")).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    member.script().kv_refusal = None;
    read.await.expect("no panic").expect("the leader is back");
    assert!(member.script().kv_requests > 3);
}

#[tokio::test]
async fn a_write_goes_to_the_next_member_when_the_connection_was_gone_before_it_was_sent() {
    let mut first = Fake::start(Script::default());
    let second = Fake::start(Script::default());
    let client = client(&[&first, &second]);
    client.put(Put::new("k", "1")).await.expect("served by the first");
    first.kill();
    // Long enough for the client's connection to notice.
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.put(Put::new("k", "2")).await.expect("served by the second");
    assert_eq!((first.script().kv_requests, second.script().kv_requests), (1, 1));
}

#[tokio::test]
async fn each_endpoint_answers_for_itself_or_with_the_reason_why_not() {
    let member = Fake::start(Script { revision: 3, ..Script::default() });
    let mut dead = Fake::start(Script::default());
    dead.kill();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let answers = client(&[&member, &dead]).status_of_each().await;
    assert_eq!(answers[0].1.as_ref().map(|status| status.version.as_str()).ok(), Some("3.7.3"));
    assert!(answers[1].1.as_ref().is_err_and(ClientError::is_unavailable));
}
