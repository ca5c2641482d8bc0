//! The edge between a client that is a channel and a hub that is the test: what goes in, what comes out.

mod wire;

use std::sync::Arc;

use crossbeam_channel::Receiver;
use prost::Message;
use tenure_proto::mvccpb;
use tenure_replica::effect::{WatchBatch, WatchRefusal};
use tenure_replica::input::Input;
use tenure_state::ids::{LeaseId, MemberId, RevisionAt};
use tenure_state::record::{Event, Record};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::*;
use crate::edge::Limits;
use crate::edge::fake;
use crate::handle::{Handle, ToLoop};
use crate::identity::Identity;

type Requests = UnboundedReceiverStream<Result<pb::WatchRequest, Status>>;

/// A stream under test with both of its ends.
struct Pair {
    watching: Watching<Requests>,
    client: Option<mpsc::UnboundedSender<Result<pb::WatchRequest, Status>>>,
    hub: mpsc::UnboundedSender<WatchOutput>,
    to_loop: Receiver<ToLoop>,
    stop: tokio::sync::watch::Sender<bool>,
}

/// Member 2 of cluster 1, and what stops it.
fn context(handle: Handle) -> (Context, tokio::sync::watch::Sender<bool>) {
    let identity = Identity {
        cluster: 1,
        member: MemberId(2),
        name: "a".into(),
        peer_urls: Vec::new(),
        client_urls: Vec::new(),
    };
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let limits = Limits { max_request_bytes: 1000, ..Limits::default() };
    let (identity, storage) = (Arc::new(identity), fake::storage());
    (Context { handle, identity, limits, stopping, storage, slow: Arc::default() }, stop)
}

fn pair() -> Pair {
    let (sender, to_loop) = crossbeam_channel::unbounded();
    let (ctx, stop) = context(Handle::new(sender));
    ctx.handle.heard_term(3);
    let (client, requests) = mpsc::unbounded_channel();
    let watching = Watching::new(ctx, UnboundedReceiverStream::new(requests));
    let hub = match to_loop.try_recv() {
        Ok(ToLoop::OpenWatch { outputs, .. }) => outputs,
        _ => panic!("a stream opens first"),
    };
    Pair { watching, client: Some(client), hub, to_loop, stop }
}

impl Pair {
    fn ask(&self, request: pb::watch_request::RequestUnion) {
        let request = pb::WatchRequest { request_union: Some(request) };
        self.client.as_ref().expect("the client still talks").send(Ok(request)).expect("it is listened to");
    }

    fn create(&self, create: pb::WatchCreateRequest) {
        self.ask(pb::watch_request::RequestUnion::CreateRequest(create));
    }

    fn tell(&self, output: WatchOutput) {
        self.hub.send(output).expect("the edge listens");
    }

    /// What the client gets, read as a client reads it.
    async fn next(&mut self) -> pb::WatchResponse {
        let response = self.watching.next().await.expect("the stream goes on").expect("no error");
        let bytes = response.encode_to_vec();
        assert_eq!(bytes.len(), response.encoded_len());
        pb::WatchResponse::decode(&bytes[..]).expect("it is a WatchResponse")
    }

    /// Lets the edge work until it waits.
    async fn settle(&mut self) {
        let waits =
            std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut self.watching).poll_next(cx).is_pending()));
        assert!(waits.await, "nothing was to be sent");
    }

    fn asked(&self) -> Vec<WatchInput> {
        let asked = self.to_loop.try_iter().map(|message| match message {
            ToLoop::Tell(Input::Watch { request, .. }) => request,
            _ => panic!("only watch requests"),
        });
        asked.collect()
    }
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { cluster_id: 1, member_id: 2, revision, raft_term: 3 })
}

fn put(revision: i64, value_bytes: usize, prev: bool) -> Event {
    let record = |revision| Record {
        key: Bytes::from_static(b"k"),
        value: Bytes::from(vec![b'v'; value_bytes]),
        create: Revision(2),
        at: RevisionAt { main: Revision(revision), sub: 0 },
        version: revision - 1,
        lease: LeaseId(7),
    };
    Event { record: Arc::new(record(revision)), prev: prev.then(|| Arc::new(record(revision - 1))) }
}

fn events(id: i64, events: Vec<Event>, prev: bool, bytes: usize) -> WatchOutput {
    let revision = events.last().expect("events").record.at.main;
    WatchOutput::Events { id, revision, batch: Arc::new(WatchBatch::new(events)), prev, bytes }
}

#[tokio::test]
async fn requests_are_passed_on_in_order_as_the_hub_reads_them() {
    let mut pair = pair();
    pair.create(pb::WatchCreateRequest { key: "a".into(), range_end: "b".into(), ..Default::default() });
    pair.create(pb::WatchCreateRequest {
        range_end: vec![0].into(),
        start_revision: -3,
        progress_notify: true,
        filters: vec![0, 1],
        prev_kv: true,
        watch_id: 9,
        ..Default::default()
    });
    pair.ask(pb::watch_request::RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 4 }));
    pair.ask(pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
    pair.client.as_ref().expect("open").send(Ok(pb::WatchRequest { request_union: None })).expect("open");
    pair.settle().await;

    let asked = pair.asked();
    let [first, second, cancel, progress] = &asked[..] else { panic!("four requests, not {asked:?}") };
    let WatchInput::Create(first) = first else { panic!("{first:?}") };
    assert_eq!(first.range, KeyRange::new("a".into(), "b".into()));
    assert!(
        first.puts && first.deletes && !first.prev && !first.progress && first.id == 0 && first.start == 0
    );
    let WatchInput::Create(second) = second else { panic!("{second:?}") };
    // No key stands for the lowest one.
    assert_eq!(second.range, KeyRange::From(vec![0].into()));
    assert!(!second.puts && !second.deletes && second.prev && second.progress);
    assert_eq!((second.id, second.start), (9, -3));
    assert!(matches!(cancel, WatchInput::Cancel { id: 4 }));
    assert!(matches!(progress, WatchInput::Progress));
}

#[tokio::test]
async fn answers_look_as_those_of_etcd() {
    let mut pair = pair();
    for _ in 0..4 {
        pair.create(pb::WatchCreateRequest { key: "a".into(), ..Default::default() });
    }
    pair.settle().await;
    let revision = Revision(8);

    pair.tell(WatchOutput::Created { id: 0, revision });
    let created = pb::WatchResponse { header: header(8), created: true, ..Default::default() };
    assert_eq!(pair.next().await, created);

    for (why, text) in [
        (WatchRefusal::EmptyRange, "mvcc: watcher range is empty"),
        (WatchRefusal::DuplicateId, "mvcc: duplicate watch ID provided on the WatchStream"),
        (WatchRefusal::NegativeStart, "etcdserver: mvcc: required revision has been compacted"),
    ] {
        pair.tell(WatchOutput::Refused { why, revision });
        let refused = pb::WatchResponse {
            header: header(8),
            watch_id: -1,
            created: true,
            canceled: true,
            cancel_reason: text.into(),
            ..Default::default()
        };
        assert_eq!(pair.next().await, refused);
    }

    pair.tell(WatchOutput::Progress { id: -1, revision });
    let progress = pb::WatchResponse { header: header(8), watch_id: -1, ..Default::default() };
    assert_eq!(pair.next().await, progress);

    pair.tell(WatchOutput::Compacted { id: 5, compacted: Revision(6) });
    let compacted = pb::WatchResponse {
        header: header(0),
        watch_id: 5,
        canceled: true,
        compact_revision: 6,
        ..Default::default()
    };
    assert_eq!(pair.next().await, compacted);

    pair.tell(WatchOutput::Cancelled { id: 6, revision });
    let cancelled =
        pb::WatchResponse { header: header(8), watch_id: 6, canceled: true, ..Default::default() };
    assert_eq!(pair.next().await, cancelled);
}

#[tokio::test]
async fn events_are_packed_once_and_their_credit_given_back_when_they_are_out() {
    let mut pair = pair();
    let batch = Arc::new(WatchBatch::new(vec![put(3, 5, true)]));
    for id in [1, 2, 1] {
        let (batch, revision) = (Arc::clone(&batch), Revision(3));
        pair.tell(WatchOutput::Events { id, revision, batch, prev: true, bytes: 100 });
    }
    let shown = to_event(&put(3, 5, true), true);
    for id in [1, 2, 1] {
        let wanted = pb::WatchResponse {
            header: header(3),
            watch_id: id,
            events: vec![shown.clone()],
            ..Default::default()
        };
        assert_eq!(pair.next().await, wanted);
    }
    assert!(pair.asked().is_empty(), "the last one may not be out yet");
    pair.settle().await;
    let credits = pair.asked();
    assert!(
        matches!(
            credits[..],
            [WatchInput::Credit { id: 1, bytes: 200 }, WatchInput::Credit { id: 2, bytes: 100 }]
        ),
        "{credits:?}"
    );

    let never = batch.packed(|_| panic!("they were packed before"));
    assert!(!never.is_empty());
}

fn to_event(event: &Event, prev: bool) -> mvccpb::Event {
    crate::edge::to_proto::event(event, prev)
}

#[tokio::test]
async fn a_long_run_of_events_gives_credit_back_on_its_way() {
    let mut pair = pair();
    for revision in 3..6 {
        pair.tell(events(1, vec![put(revision, 1, false)], false, CREDIT_STEP_BYTES));
    }
    pair.next().await;
    pair.next().await;
    assert!(matches!(pair.asked()[..], [WatchInput::Credit { id: 1, bytes: CREDIT_STEP_BYTES }]));
}

#[tokio::test]
async fn a_watch_that_asked_for_it_gets_large_responses_in_pieces() {
    let mut pair = pair();
    for fragment in [true, false] {
        pair.create(pb::WatchCreateRequest { key: "a".into(), fragment, ..Default::default() });
    }
    pair.settle().await;
    pair.asked();
    for id in 0..2 {
        pair.tell(WatchOutput::Created { id, revision: Revision(2) });
        pair.next().await;
    }

    let limit = 1000 + MESSAGE_OVERHEAD_BYTES;
    let large: Vec<Event> = [limit / 2, limit / 3, limit / 2, 2 * limit, 1]
        .into_iter()
        .zip(3..)
        .map(|(bytes, revision)| put(revision, bytes, false))
        .collect();
    pair.tell(events(0, large.clone(), false, 77));
    pair.tell(events(1, large.clone(), false, 88));

    let mut got = Vec::new();
    for (count, fragment) in [(2, true), (1, true), (1, true), (1, false)] {
        let piece = pair.next().await;
        assert_eq!((piece.events.len(), piece.fragment), (count, fragment));
        assert_eq!((piece.watch_id, &piece.header), (0, &header(7)));
        assert!(piece.events.len() == 1 || piece.encoded_len() < limit);
        got.extend(piece.events);
    }
    assert!(pair.asked().is_empty());
    let whole = pair.next().await;
    assert_eq!((whole.watch_id, whole.fragment), (1, false));
    assert_eq!(got, whole.events, "the pieces are the whole");
    pair.settle().await;
    assert!(matches!(
        pair.asked()[..],
        [WatchInput::Credit { id: 0, bytes: 77 }, WatchInput::Credit { id: 1, bytes: 88 }]
    ));

    // One event alone is never cut, whatever its size; nor is what fits.
    pair.tell(events(0, vec![put(9, 2 * limit, false)], false, 1));
    assert!(!pair.next().await.fragment);
    pair.tell(events(0, vec![put(10, 9, false), put(11, 9, false)], false, 1));
    let small = pair.next().await;
    assert_eq!((small.events.len(), small.fragment), (2, false));
}

#[tokio::test]
async fn a_client_that_has_said_all_still_gets_its_events() {
    let mut pair = pair();
    pair.create(pb::WatchCreateRequest { key: "a".into(), ..Default::default() });
    pair.client = None;
    pair.settle().await;
    pair.tell(WatchOutput::Created { id: 0, revision: Revision(2) });
    assert!(pair.next().await.created);
    pair.tell(events(0, vec![put(3, 1, false)], false, 1));
    assert_eq!(pair.next().await.events.len(), 1);
}

#[tokio::test]
async fn a_stop_ends_the_stream_in_the_words_of_etcd() {
    async fn check(mut watching: Watching<Requests>) {
        let status = watching.next().await.expect("a last word").expect_err("an error");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: server stopped"));
        assert!(watching.next().await.is_none());
    }
    let stopped = pair();
    stopped.stop.send(true).expect("it is heard");
    check(stopped.watching).await;
    // The loop is gone without a word.
    let Pair { watching, hub, .. } = pair();
    drop(hub);
    check(watching).await;
}

#[tokio::test]
async fn a_request_that_cannot_be_read_ends_the_stream_and_dropping_it_closes_its_watches() {
    let mut pair = pair();
    let broken = Status::internal("failed to decode");
    pair.client.as_ref().expect("open").send(Err(broken)).expect("open");
    let status = pair.watching.next().await.expect("a last word").expect_err("an error");
    assert_eq!(status.code(), Code::Internal);
    let Pair { watching, to_loop, .. } = pair;
    drop(watching);
    let closed = to_loop.try_iter().last();
    assert!(matches!(closed, Some(ToLoop::Tell(Input::Watch { request: WatchInput::Close, .. }))));
}

#[tokio::test]
async fn requests_are_read_no_faster_than_responses() {
    let mut pair = pair();
    for _ in 0..10 {
        pair.create(pb::WatchCreateRequest { key: "a".into(), ..Default::default() });
    }
    pair.settle().await;
    pair.asked();
    for id in 0..10 {
        pair.tell(WatchOutput::Created { id, revision: Revision(2) });
        pair.create(pb::WatchCreateRequest { key: "a".into(), ..Default::default() });
    }
    pair.next().await;
    pair.next().await;
    assert_eq!(pair.asked().len(), 2);
}
