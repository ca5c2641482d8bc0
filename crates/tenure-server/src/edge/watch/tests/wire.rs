//! A generated client, a socket, the service as it is mounted, and a hub on a real state behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_proto::etcdserverpb::watch_client::WatchClient;
use tenure_replica::effect::{Answer, Header};
use tenure_replica::input::{StreamId, Write};
use tenure_replica::watch::{Hub, Outputs, WatchConfig};
use tenure_state::State;
use tenure_state::applied::Progress;
use tenure_state::command::{Command, Entry, Put, PutLease};
use tenure_state::ids::Nanos;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};

use super::*;

/// A replica without Raft: what is written is applied.
fn replica(to_loop: Receiver<ToLoop>) {
    let mut state = State::new();
    let mut hub = Hub::new(WatchConfig::default());
    let mut streams: BTreeMap<StreamId, mpsc::UnboundedSender<WatchOutput>> = BTreeMap::new();
    let now = Nanos::ZERO;
    let mut index = 0;
    for message in to_loop {
        let mut out = Outputs::new();
        match message {
            ToLoop::OpenWatch { stream, outputs } => {
                streams.insert(stream, outputs);
            }
            ToLoop::Tell(Input::Watch { stream, request }) => {
                if matches!(request, WatchInput::Close) {
                    streams.remove(&stream);
                }
                hub.request(&state, now, stream, request, &mut out);
            }
            ToLoop::Ask { input: Input::Write { write: Write::Put(put), .. }, answer, .. } => {
                index += 1;
                let entry = Entry { index, term: 5, quota_bytes: 0, command: Command::Put(put) };
                let Progress::Done(applied) = state.apply(&entry) else { panic!("a put is small") };
                hub.publish(&state, &applied.events, &mut out);
                let header = Header { revision: state.revision(), term: 5 };
                let reply = applied.reply.expect("a put is not refused");
                let _ = answer.send(Ok((header, Answer::Applied(reply))));
            }
            ToLoop::Stop => return,
            _ => panic!("nothing else is asked here"),
        }
        while hub.turn(&state, now, &mut out) {}
        for (stream, output) in out {
            if let Some(outputs) = streams.get(&stream) {
                let _ = outputs.send(output);
            }
        }
    }
}

struct Served {
    ctx: Context,
    stop: tokio::sync::watch::Sender<bool>,
    client: WatchClient<Channel>,
}

async fn serve() -> Served {
    let (sender, to_loop) = crossbeam_channel::unbounded();
    std::thread::spawn(move || replica(to_loop));
    let (ctx, stop) = context(Handle::new(sender));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = Server::builder().add_routes(crate::edge::routes(ctx.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let client = WatchClient::new(endpoint.connect().await.expect("it listens"));
    Served { ctx, stop, client }
}

impl Served {
    async fn put(&self, key: &'static str, value_bytes: usize) {
        let put = Put {
            key: key.into(),
            value: Some(vec![b'v'; value_bytes].into()),
            lease: PutLease::Set(LeaseId::NONE),
            prev: false,
        };
        self.ctx.handle.write(Write::Put(put)).await.expect("it is applied");
    }
}

fn create(key: &'static str, start_revision: i64) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest { key: key.into(), start_revision, ..Default::default() };
    pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) }
}

async fn next(responses: &mut Streaming<pb::WatchResponse>) -> pb::WatchResponse {
    let response = tokio::time::timeout(Duration::from_secs(10), responses.message());
    response.await.expect("in time").expect("no error").expect("the stream goes on")
}

#[tokio::test]
async fn a_watch_goes_over_the_wire_and_past_the_last_request() {
    let mut served = serve().await;
    served.put("a", 1).await;
    // The request stream ends at once.
    let requests = tokio_stream::iter([create("a", 1), create("b", 0)]);
    let mut responses = served.client.watch(requests).await.expect("it is served").into_inner();
    assert!(next(&mut responses).await.created);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let response = next(&mut responses).await;
        seen.push((response.watch_id, response.created, response.events.len()));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, false, 1), (1, true, 0)]);

    // More than the credit of a watch.
    for _ in 0..40 {
        served.put("b", 100_000).await;
    }
    let mut revisions = Vec::new();
    while revisions.len() < 40 {
        let response = next(&mut responses).await;
        assert_eq!((response.watch_id, response.header.as_ref().map(|it| it.raft_term)), (1, Some(5)));
        revisions.extend(response.events.into_iter().filter_map(|event| event.kv).map(|kv| kv.mod_revision));
    }
    assert_eq!(revisions, (3..43).collect::<Vec<i64>>());

    served.stop.send(true).expect("it is heard");
    let status = responses.message().await.expect_err("the server stopped");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: server stopped"));
}

#[tokio::test]
async fn a_reader_who_comes_late_gets_all_of_it() {
    let mut served = serve().await;
    let (requests, asked) = mpsc::unbounded_channel();
    requests.send(create("a", 0)).expect("it is open");
    let asked = UnboundedReceiverStream::new(asked);
    let mut responses = served.client.watch(asked).await.expect("it is served").into_inner();
    assert!(next(&mut responses).await.created);
    // Ten times the credit of a watch, and nobody reads.
    for _ in 0..100 {
        served.put("a", 100_000).await;
    }
    let mut revisions = Vec::new();
    while revisions.len() < 100 {
        let response = next(&mut responses).await;
        revisions.extend(response.events.into_iter().filter_map(|event| event.kv).map(|kv| kv.mod_revision));
    }
    assert_eq!(revisions, (2..102).collect::<Vec<i64>>());
}

#[tokio::test]
async fn an_unknown_method_is_not_a_watch() {
    let served = serve().await;
    let request = http::Request::post("/etcdserverpb.Watch/Look").body(Body::empty()).expect("a request");
    let response = WatchServer::new(served.ctx.clone()).call(request).await.expect("it answers");
    let status = response.headers().get("grpc-status").expect("a status");
    assert_eq!(status, "12");
}
