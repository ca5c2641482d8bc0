//! What stands in front of every service: the request metadata that etcd looks at, and etcd's words for the
//! errors that tonic answers by itself before a service sees the request.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::status::{self, Invalid};
use super::{Context, MESSAGE_OVERHEAD_BYTES};

/// Says which API the client was made for; nothing depends on it, but it must be text.
const CLIENT_API_VERSION: &str = "client-api-version";
/// With the value `true`: answer with an error rather than without a leader.
const REQUIRE_LEADER: &str = "hasleader";

/// A service behind the gate.
#[derive(Clone)]
pub(super) struct Gate<S> {
    service: S,
    /// Shared, because the router clones a service for each request.
    ctx: Arc<Context>,
}

impl<S> Gate<S> {
    pub(super) fn new(service: S, ctx: Arc<Context>) -> Gate<S> {
        Gate { service, ctx }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

type Response = http::Response<Body>;
type BoxedResponse = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Unpin + Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Passing<S::Future>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Passing<S::Future> {
        let headers = request.headers();
        let is_text = |value: &http::HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
        let wording = Wording {
            is_txn: request.uri().path().ends_with("/Txn"),
            request_bytes_max: self.ctx.limits.max_request_bytes,
        };
        let state = if headers.get(CLIENT_API_VERSION).is_some_and(|version| !is_text(version)) {
            State::Refused(Some(Status::from(Invalid::ApiVersion)))
        } else if headers.get(REQUIRE_LEADER).is_some_and(|value| value.as_bytes() == b"true") {
            let ctx = self.ctx.clone();
            // The clone that takes our place is not ready yet, the one that was asked is.
            let fresh = self.service.clone();
            let mut service = std::mem::replace(&mut self.service, fresh);
            State::Checked(Box::pin(async move {
                match ctx.require_leader().await {
                    Ok(()) => service.call(request).await,
                    Err(status) => Ok(status.into_http()),
                }
            }))
        } else {
            State::Passed(self.service.call(request))
        };
        Passing { state, wording }
    }
}

impl Context {
    async fn require_leader(&self) -> Result<(), Status> {
        let (_, status) = self.member_status().await?;
        if status.leader == 0 { Err(status::no_leader()) } else { Ok(()) }
    }
}

/// A request on its way through the gate. Only one that requires a leader costs an allocation.
pub(super) struct Passing<F> {
    state: State<F>,
    wording: Wording,
}

enum State<F> {
    Refused(Option<Status>),
    Passed(F),
    Checked(BoxedResponse),
}

impl<F> Future for Passing<F>
where
    F: Future<Output = Result<Response, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(match &mut self.state {
            State::Refused(status) => {
                let status = status.take().expect("a future is not polled after its end");
                return Poll::Ready(Ok(status.into_http()));
            }
            State::Passed(service) => Pin::new(service).poll(cx),
            State::Checked(service) => service.as_mut().poll(cx),
        });
        // An error that ends a call before its first message carries its status along.
        let better = response.extensions().get::<Status>().and_then(|status| self.wording.of(status));
        Poll::Ready(Ok(better.map_or(response, Status::into_http)))
    }
}

/// How a call's errors are worded.
#[derive(Clone, Copy)]
pub(super) struct Wording {
    pub(super) is_txn: bool,
    pub(super) request_bytes_max: usize,
}

impl Wording {
    /// What etcd answers where tonic could not read a message; `None` if that is the same.
    pub(super) fn of(self, status: &Status) -> Option<Status> {
        match status.code() {
            Code::OutOfRange if status.message().contains("decoded message length too large") => {
                let max = self.request_bytes_max + MESSAGE_OVERHEAD_BYTES;
                let text = format!("grpc: received message larger than max ({max} bytes)");
                Some(Status::new(Code::ResourceExhausted, text))
            }
            // A transaction may be nested as deep as its operations last, which prost is not ready to follow.
            Code::Internal if self.is_txn && status.message().contains("recursion limit reached") => {
                Some(Invalid::TooManyOps.into())
            }
            _ => None,
        }
    }
}
