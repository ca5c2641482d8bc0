//! The bodies that tools parse, from a replica that is played by a thread.

use http_body_util::{BodyExt, Empty};
use tenure_replica::effect::Header;
use tenure_replica::input::Input;
use tenure_state::command::Alarm;
use tenure_state::ids::MemberId;

use super::*;
use crate::handle::ToLoop;

/// What the played replica answers.
#[derive(Clone, Default)]
struct Script {
    status: Status,
    linearizable: Option<Failure>,
    serializable: Option<Failure>,
}

fn http(script: Script) -> Http {
    let (to_loop, inputs) = crossbeam_channel::unbounded();
    std::thread::spawn(move || {
        for message in inputs {
            let ToLoop::Ask { input: Input::Read { read, consistency, .. }, answer, .. } = message else {
                continue;
            };
            let failure = match consistency {
                Consistency::Linearizable => script.linearizable,
                Consistency::Serializable => script.serializable,
            };
            let answered = match (read, failure) {
                (_, Some(failure)) => Err(failure),
                (Read::Status, None) => {
                    Ok((Header::default(), Answer::Status(Box::new(script.status.clone()))))
                }
                (Read::Barrier, None) => Ok((Header::default(), Answer::Barrier)),
                (other, None) => panic!("nobody here asks for {other:?}"),
            };
            let _ = answer.send(answered);
        }
    });
    Http {
        handle: Handle::new(to_loop),
        metrics: Arc::new(Metrics::new(MemberId(1), 1, false)),
        request_timeout: Duration::from_secs(5),
        cors: vec!["*".to_owned()],
        host_whitelist: vec!["*".to_owned()],
        started: Instant::now(),
    }
}

fn leader() -> Script {
    Script { status: Status { leader: 1, is_leader: true, ..Status::default() }, ..Script::default() }
}

fn api() -> Option<Api> {
    Some(Api { grpc: Routes::default(), more: None })
}

fn request(method: &str, path: &str) -> Request<Empty<Bytes>> {
    Request::builder().method(method).uri(path).body(Empty::new()).expect("a request")
}

async fn ask(http: &Http, api: Option<Api>, method: &str, path: &str) -> (u16, String) {
    let response = http.answer(api, request(method, path)).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

async fn get(script: Script, path: &str) -> (u16, String) {
    ask(&http(script), api(), "GET", path).await
}

fn answered(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

#[tokio::test]
async fn version_and_health_of_a_leader() {
    let version = r#"{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}"#;
    assert_eq!(get(leader(), "/version").await, answered(200, version));
    let healthy = answered(200, r#"{"health":"true","reason":""}"#);
    for path in ["/health", "/health?serializable=true", "/health?exclude=NOSPACE&exclude=", "/health?"] {
        assert_eq!(get(leader(), path).await, healthy, "{path}");
    }
    for path in ["/livez", "/readyz", "/livez/serializable_read", "/readyz/linearizable_read", "/readyz/"] {
        assert_eq!(get(leader(), path).await, answered(200, "ok\n"), "{path}");
    }
}

#[tokio::test]
async fn verbose_probes() {
    let all =
        "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\nok\n";
    assert_eq!(get(leader(), "/readyz?verbose").await, answered(200, all));
    assert_eq!(get(leader(), "/livez?verbose=1").await, answered(200, "[+]serializable_read ok\nok\n"));
    let one_left_out = "[+]data_corruption ok\n[+]serializable_read ok\n[+]non_learner ok\nok\n";
    assert_eq!(get(leader(), "/readyz?verbose&exclude=linearizable_read").await, answered(200, one_left_out));
}

#[tokio::test]
async fn reasons_to_be_unhealthy() {
    let unhealthy =
        |reason: &str| answered(503, &format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n"));
    assert_eq!(get(Script::default(), "/health").await, unhealthy("RAFT NO LEADER"));
    assert_eq!(get(Script::default(), "/health?serializable=true").await.0, 200);

    let mut alarmed = leader();
    alarmed.status.alarms = vec![(MemberId(1), Alarm::NoSpace)];
    assert_eq!(get(alarmed.clone(), "/health").await, unhealthy("ALARM NOSPACE"));
    assert_eq!(get(alarmed.clone(), "/health?exclude=NOSPACE").await.0, 200);
    assert_eq!(get(alarmed.clone(), "/readyz").await.0, 200, "a full store is still ready to serve reads");
    alarmed.status.alarms = vec![(MemberId(1), Alarm::Corrupt)];
    assert_eq!(get(alarmed.clone(), "/health").await, unhealthy("ALARM CORRUPT"));
    let corrupt = "[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n\
                   [+]linearizable_read ok\n[+]non_learner ok\n";
    assert_eq!(get(alarmed.clone(), "/readyz").await, answered(503, corrupt));
    assert_eq!(get(alarmed, "/livez").await.0, 200);

    let cut_off = Script { linearizable: Some(Failure::TimedOut), ..leader() };
    assert_eq!(get(cut_off.clone(), "/health").await, unhealthy("RANGE ERROR:etcdserver: request timed out"));
    assert_eq!(get(cut_off.clone(), "/livez").await.0, 200);
    let (status, body) = get(cut_off, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("[-]linearizable_read failed: etcdserver: request timed out\n"), "{body}");

    let stopped = Script { serializable: Some(Failure::Stopped), ..leader() };
    assert_eq!(get(stopped.clone(), "/livez").await.0, 503);
    assert_eq!(get(stopped, "/health").await, unhealthy("RANGE ERROR:etcdserver: server stopped"));

    let mut learner = leader();
    learner.status.is_learner = true;
    let failed = "[-]non_learner failed: member is a learner\n";
    assert_eq!(get(learner, "/readyz/non_learner").await, answered(503, failed));
}

#[tokio::test]
async fn what_is_not_there_and_what_only_gets() {
    let http = http(leader());
    for path in ["/", "/livez/linearizable_read", "/readyz/x", "/v3/kv/range", "/metricsx", "/debug/pprof/"] {
        assert_eq!(ask(&http, api(), "GET", path).await, answered(404, "404 page not found\n"), "{path}");
    }
    for path in ["/version", "/health", "/livez", "/readyz", "/metrics", "/debug/vars"] {
        for method in ["POST", "HEAD", "PUT", "DELETE"] {
            let response = http.answer(api(), request(method, path)).await;
            assert_eq!(response.status(), 405, "{method} {path}");
            assert_eq!(response.headers()[header::ALLOW], "GET");
        }
    }
}

#[tokio::test]
async fn the_metrics_listener_serves_metrics_and_health_only() {
    let http = http(leader());
    for (path, status) in [
        ("/metrics", 200),
        ("/health", 200),
        ("/readyz", 200),
        ("/version", 404),
        ("/debug/vars", 404),
        ("/x", 404),
    ] {
        assert_eq!(ask(&http, None, "GET", path).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn metrics_come_from_the_replica_and_from_here() {
    let http = http(leader());
    ask(&http, api(), "GET", "/health").await;
    let (status, body) = ask(&http, api(), "GET", "/metrics").await;
    assert_eq!(status, 200);
    for line in ["etcd_server_is_leader 1", "etcd_server_health_success 1", "tenure_replica_answers 1"] {
        assert!(body.lines().any(|found| found == line), "{line}");
    }
}

#[tokio::test]
async fn variables_tell_nothing_of_the_command_line() {
    let (status, body) = get(leader(), "/debug/vars").await;
    assert_eq!(status, 200);
    let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let names: Vec<_> = parsed.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["etcd.version", "tenure.version", "uptime_seconds"]);
}

#[tokio::test]
async fn hosts_that_are_not_listed_are_misdirected() {
    let mut http = http(leader());
    http.host_whitelist = vec!["tenure.example".to_owned(), "::1".to_owned()];
    for (host, status) in [
        ("tenure.example", 200),
        ("Tenure.Example:2379", 200),
        ("[::1]:2379", 200),
        ("evil.example", 421),
        ("", 421),
        ("tenure.example.evil:1", 421),
    ] {
        let mut request = request("GET", "/version");
        request.headers_mut().insert(header::HOST, HeaderValue::from_static(host));
        assert_eq!(http.answer(api(), request).await.status(), status, "{host:?}");
    }
}

#[tokio::test]
async fn browsers_are_told_who_may_call() {
    let mut http = http(leader());
    let allowed = |http: &Http, origin: &'static str| {
        let mut request = request("OPTIONS", "/version");
        request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
        let headers = http.cors_headers(&request);
        headers.first().map(|(_, value)| value.to_str().expect("text").to_owned())
    };
    assert_eq!(allowed(&http, "https://any").as_deref(), Some("*"));
    http.cors = vec!["https://ours".to_owned()];
    assert_eq!(allowed(&http, "https://ours").as_deref(), Some("https://ours"));
    assert_eq!(allowed(&http, "https://theirs"), None);
}
