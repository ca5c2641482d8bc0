//! etcd's watch service: many watches on one stream in both directions.
//!
//! The stream is polled by whoever sends its responses, so requests of a client are read as fast as it reads what
//! it is told: one that only asks cannot pile up answers. What watches are sent is bounded by the hub, which is
//! told here what has gone out.
//!
//! The service is written by hand rather than generated for one reason: its messages are [`Response`]s, whose
//! events were packed once for all streams that are sent the same.

mod response;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use tenure_proto::codec::SmallCodec;
use tenure_proto::etcdserverpb as pb;
use tenure_replica::effect::WatchOutput;
use tenure_replica::input::{WatchCreate, WatchInput};
use tenure_state::ids::Revision;
use tenure_state::key::KeyRange;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Status, Streaming};

use self::response::{Pieces, Response};
use super::gate::Wording;
use super::{Context, MESSAGE_OVERHEAD_BYTES, status};
use crate::handle::WatchStream;

/// Credit goes back to the hub when there is nothing to send, or when this much was sent: a fourth of what a watch
/// has.
const CREDIT_STEP_BYTES: usize = 256 * 1024;
/// Requests read at a stretch before others get their turn.
const REQUESTS_PER_POLL: usize = 128;

/// The service as the router holds it.
#[derive(Clone)]
pub(super) struct WatchServer {
    ctx: Context,
}

impl WatchServer {
    pub(super) fn new(ctx: Context) -> WatchServer {
        WatchServer { ctx }
    }
}

impl NamedService for WatchServer {
    const NAME: &'static str = "etcdserverpb.Watch";
}

impl Service<http::Request<Body>> for WatchServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let ctx = self.ctx.clone();
        Box::pin(async move {
            if request.uri().path() != "/etcdserverpb.Watch/Watch" {
                let text = format!("unknown method {}", request.uri().path());
                return Ok(Status::unimplemented(text).into_http());
            }
            let request_bytes_max = ctx.limits.max_request_bytes + MESSAGE_OVERHEAD_BYTES;
            let mut grpc = Grpc::new(SmallCodec::<Response, pb::WatchRequest>::default())
                .max_decoding_message_size(request_bytes_max)
                .max_encoding_message_size(usize::MAX);
            Ok(grpc.streaming(Watch { ctx }, request).await)
        })
    }
}

/// The one method of the service.
struct Watch {
    ctx: Context,
}

impl Service<Request<Streaming<pb::WatchRequest>>> for Watch {
    type Response = tonic::Response<Watching<Streaming<pb::WatchRequest>>>;
    type Error = Status;
    type Future = Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<pb::WatchRequest>>) -> Self::Future {
        ready(Ok(tonic::Response::new(Watching::new(self.ctx.clone(), request.into_inner()))))
    }
}

/// A watch stream: its responses, made out of requests and of what the hub says.
pub(crate) struct Watching<R> {
    ctx: Context,
    /// `None` once the client has said all that it wants to: its watches go on.
    requests: Option<R>,
    asks: WatchStream,
    outputs: UnboundedReceiver<WatchOutput>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Whether each watch that was asked for and not answered yet is to be fragmented; answers come in order.
    asked: VecDeque<bool>,
    fragmented: BTreeSet<i64>,
    /// The rest of an output that was cut.
    pieces: Option<Pieces>,
    /// What is being sent: its watch and its credit.
    sending: Option<(i64, usize)>,
    /// What was sent and the hub does not know of.
    sent: BTreeMap<i64, usize>,
    sent_bytes: usize,
    ended: bool,
}

impl<R: Stream<Item = Result<pb::WatchRequest, Status>> + Unpin> Watching<R> {
    pub(crate) fn new(ctx: Context, requests: R) -> Watching<R> {
        let (asks, outputs) = ctx.handle.watch();
        Watching {
            requests: Some(requests),
            asks,
            outputs,
            stopped: ctx.stopped(),
            asked: VecDeque::new(),
            fragmented: BTreeSet::new(),
            pieces: None,
            sending: None,
            sent: BTreeMap::new(),
            sent_bytes: 0,
            ended: false,
            ctx,
        }
    }

    /// Passes one request on. `Ready` if there was one.
    fn poll_request(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Status>> {
        let Some(requests) = &mut self.requests else { return Poll::Pending };
        match Pin::new(requests).poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(request))) => {
                self.request(request);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Some(Err(status))) => {
                let wording = Wording { is_txn: false, request_bytes_max: self.ctx.limits.max_request_bytes };
                Poll::Ready(Err(wording.of(&status).unwrap_or(status)))
            }
            Poll::Ready(None) => {
                self.requests = None;
                Poll::Pending
            }
        }
    }

    fn request(&mut self, request: pb::WatchRequest) {
        use pb::watch_request::RequestUnion;
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                self.asked.push_back(create.fragment);
                self.asks.send(WatchInput::Create(watch_create(create)));
            }
            Some(RequestUnion::CancelRequest(cancel)) => {
                self.asks.send(WatchInput::Cancel { id: cancel.watch_id });
            }
            Some(RequestUnion::ProgressRequest(_)) => self.asks.send(WatchInput::Progress),
            // etcd reads over what it does not know.
            None => {}
        }
    }

    /// What the client is told of an output.
    fn respond(&mut self, output: WatchOutput) -> Response {
        match output {
            WatchOutput::Created { id, revision } => {
                if self.asked.pop_front().expect("the hub answers what was asked") {
                    self.fragmented.insert(id);
                }
                self.message(id, revision, |message| message.created = true)
            }
            WatchOutput::Refused { why, revision } => {
                self.asked.pop_front().expect("the hub answers what was asked");
                self.message(-1, revision, |message| {
                    message.created = true;
                    message.canceled = true;
                    message.cancel_reason = why.to_string();
                })
            }
            WatchOutput::Cancelled { id, revision } => {
                self.fragmented.remove(&id);
                self.message(id, revision, |message| message.canceled = true)
            }
            WatchOutput::Compacted { id, compacted } => {
                self.fragmented.remove(&id);
                // etcd says nothing of the present here.
                self.message(id, Revision::ZERO, |message| {
                    message.canceled = true;
                    message.compact_revision = compacted.0;
                })
            }
            WatchOutput::Progress { id, revision } => self.message(id, revision, |_| ()),
            WatchOutput::Events { id, revision, batch, prev, bytes } => {
                self.sending = Some((id, bytes));
                let mut response = self.message(id, revision, |_| ());
                response.pack(&batch, prev);
                let bytes_max = self.ctx.limits.max_request_bytes + MESSAGE_OVERHEAD_BYTES;
                if self.fragmented.contains(&id) && response.is_over(bytes_max, &batch) {
                    let mut pieces = Pieces::new(response.head, batch, prev, bytes_max);
                    response = pieces.next().expect("what is over the limit has a first piece");
                    self.pieces = Some(pieces);
                }
                response
            }
        }
    }

    fn message(&self, id: i64, revision: Revision, fill: impl FnOnce(&mut pb::WatchResponse)) -> Response {
        let header = Some(self.ctx.header(revision, self.ctx.handle.term()));
        let mut head = pb::WatchResponse { header, watch_id: id, ..Default::default() };
        fill(&mut head);
        Response { head, events: Bytes::new() }
    }

    /// The next response is asked for, so the last one has gone out.
    fn count_sent(&mut self) {
        if self.pieces.is_some() {
            return;
        }
        if let Some((id, bytes)) = self.sending.take() {
            *self.sent.entry(id).or_default() += bytes;
            self.sent_bytes += bytes;
            if self.sent_bytes >= CREDIT_STEP_BYTES {
                self.give_back();
            }
        }
    }

    fn give_back(&mut self) {
        self.sent_bytes = 0;
        while let Some((id, bytes)) = self.sent.pop_first() {
            self.asks.send(WatchInput::Credit { id, bytes });
        }
    }

    fn poll_response(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Response, Status>> {
        if self.stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(status::stopped()));
        }
        if let Some(pieces) = &mut self.pieces {
            match pieces.next() {
                Some(piece) => return Poll::Ready(Ok(piece)),
                None => self.pieces = None,
            }
        }
        self.count_sent();
        // One request for each response: see above.
        for _ in 0..REQUESTS_PER_POLL {
            let request = self.poll_request(cx)?;
            match self.outputs.poll_recv(cx) {
                Poll::Ready(Some(output)) => return Poll::Ready(Ok(self.respond(output))),
                Poll::Ready(None) => return Poll::Ready(Err(status::stopped())),
                Poll::Pending => self.give_back(),
            }
            if request.is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<R: Stream<Item = Result<pb::WatchRequest, Status>> + Unpin> Stream for Watching<R> {
    type Item = Result<Response, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let response = this.poll_response(cx);
        this.ended = matches!(response, Poll::Ready(Err(_)));
        response.map(Some)
    }
}

fn watch_create(create: pb::WatchCreateRequest) -> WatchCreate {
    use pb::watch_create_request::FilterType;
    let filters = |filter: FilterType| create.filters.contains(&filter.into());
    // No key is below it, so it stands for the lack of one.
    let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key.clone() };
    WatchCreate {
        id: create.watch_id,
        range: KeyRange::new(key, create.range_end.clone()),
        start: create.start_revision,
        puts: !filters(FilterType::Noput),
        deletes: !filters(FilterType::Nodelete),
        prev: create.prev_kv,
        progress: create.progress_notify,
    }
}
