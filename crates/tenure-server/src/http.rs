//! What is served beside gRPC on the same ports: version, health, metrics. And the fork in the road between both.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use tenure_replica::effect::{Answer, Failure, Status};
use tenure_replica::input::{Consistency, Read};
use tonic::service::Routes;
use tower::Service;

use crate::handle::Handle;
use crate::identity::{ETCD_CLUSTER_VERSION, ETCD_VERSION};
use crate::meter::{self, Sent};
use crate::metrics::Metrics;

mod health;

/// A scrape waits no longer for the replica.
const SCRAPE_WAIT: Duration = Duration::from_secs(1);

/// What the HTTP side needs. Shared by all connections.
pub(crate) struct Http {
    pub(crate) handle: Handle,
    pub(crate) metrics: Arc<Metrics>,
    /// How long a check of the health may take.
    pub(crate) request_timeout: Duration,
    pub(crate) cors: Vec<String>,
    pub(crate) host_whitelist: Vec<String>,
    pub(crate) started: Instant,
}

/// Answers requests of one listener, gRPC or not.
#[derive(Clone)]
pub(crate) struct Front {
    /// None where only metrics and health are served.
    api: Option<Api>,
    http: Arc<Http>,
}

#[derive(Clone)]
struct Api {
    grpc: Routes,
    /// Pages and gateways of others; what they do not know is answered with 404.
    more: Option<axum::Router>,
}

impl Front {
    pub(crate) fn new(grpc: Routes, more: Option<axum::Router>, http: Arc<Http>) -> Front {
        Front { api: Some(Api { grpc, more }), http }
    }

    /// For `--listen-metrics-urls`.
    pub(crate) fn metrics_only(http: Arc<Http>) -> Front {
        Front { api: None, http }
    }
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<FrontBody>;
    type Error = Infallible;
    type Future = Answering;

    /// The way of gRPC is short: one look at the headers, and into tonic's router.
    fn call(&self, request: Request<Incoming>) -> Answering {
        if let Some(api) = &self.api
            && is_grpc(&request)
        {
            let mut grpc = api.grpc.clone();
            return Answering::Grpc(meter::call(&mut grpc, &self.http.metrics, request));
        }
        let http = self.http.clone();
        let api = self.api.clone();
        Answering::Http(Box::pin(async move { http.answer(api, request).await }))
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content = request.headers().get(header::CONTENT_TYPE);
    request.version() == Version::HTTP_2
        && content.is_some_and(|content| content.as_bytes().starts_with(b"application/grpc"))
}

#[expect(
    clippy::large_enum_variant,
    reason = "a box around the larger one would be an allocation for every call"
)]
pub(crate) enum Answering {
    Grpc(meter::Calling),
    Http(Pin<Box<dyn Future<Output = Response<FrontBody>> + Send>>),
}

impl Future for Answering {
    type Output = Result<Response<FrontBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Answering::Grpc(calling) => {
                Pin::new(calling).poll(cx).map_ok(|response| response.map(FrontBody::Grpc))
            }
            Answering::Http(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}

/// Whatever may be sent back.
pub(crate) enum FrontBody {
    Grpc(Sent),
    Plain(Full<Bytes>),
    More(axum::body::Body),
}

impl Body for FrontBody {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            FrontBody::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            FrontBody::Plain(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            FrontBody::More(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            FrontBody::Grpc(body) => body.is_end_stream(),
            FrontBody::Plain(body) => body.is_end_stream(),
            FrontBody::More(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            FrontBody::Grpc(body) => body.size_hint(),
            FrontBody::Plain(body) => body.size_hint(),
            FrontBody::More(body) => body.size_hint(),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<FrontBody> {
    let mut response = Response::new(FrontBody::Plain(Full::new(body.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

impl Http {
    async fn answer<B>(&self, api: Option<Api>, request: Request<B>) -> Response<FrontBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError>,
    {
        let cors = self.cors_headers(&request);
        let mut response = match self.refused(&request) {
            Some(refused) => refused,
            None if request.method() == Method::OPTIONS && !cors.is_empty() => {
                plain(StatusCode::OK, TEXT, "")
            }
            None => self.page(api, request).await,
        };
        for (name, value) in cors {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Names that this server does not go by are a trick of DNS rebinding.
    fn refused<B>(&self, request: &Request<B>) -> Option<Response<FrontBody>> {
        if self.host_whitelist.iter().any(|allowed| allowed == "*") {
            return None;
        }
        let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = header.or_else(|| request.uri().host()).unwrap_or("");
        let name = host_name(host);
        let allowed = self.host_whitelist.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        (!allowed).then(|| {
            plain(StatusCode::MISDIRECTED_REQUEST, TEXT, format!("{name:?} is not in --host-whitelist\n"))
        })
    }

    fn cors_headers<B>(&self, request: &Request<B>) -> Vec<(HeaderName, HeaderValue)> {
        let origin = request.headers().get(header::ORIGIN);
        let allowed = |wanted: &str| self.cors.iter().any(|origin| origin == wanted);
        let origin = if allowed("*") {
            HeaderValue::from_static("*")
        } else {
            match origin {
                Some(origin) if origin.to_str().is_ok_and(allowed) => origin.clone(),
                _ => return Vec::new(),
            }
        };
        vec![
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (
                header::ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"),
            ),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("accept, content-type, authorization"),
            ),
        ]
    }

    async fn page<B>(&self, api: Option<Api>, request: Request<B>) -> Response<FrontBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError>,
    {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
        let known = matches!(path, "/version" | "/health" | "/metrics" | "/debug/vars")
            || health::is_probe(path)
            || api.is_none();
        if known && request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match path {
            "/health" => self.health(query).await,
            "/metrics" => self.scrape().await,
            path if health::is_probe(path) => self.probe(path, query).await,
            "/version" if api.is_some() => self.version(),
            "/debug/vars" if api.is_some() => self.variables(),
            _ => match api.and_then(|api| api.more) {
                Some(mut more) => {
                    let Ok(response) = more.call(request.map(axum::body::Body::new)).await;
                    response.map(FrontBody::More)
                }
                None => plain(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
            },
        }
    }

    fn version(&self) -> Response<FrontBody> {
        let body = format!(
            r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{ETCD_CLUSTER_VERSION}","storage":"{ETCD_CLUSTER_VERSION}"}}"#
        );
        plain(StatusCode::OK, JSON, body)
    }

    /// For those who look here first. Neither the command line nor anything of the state is in it.
    fn variables(&self) -> Response<FrontBody> {
        let (tenure, uptime) = (env!("CARGO_PKG_VERSION"), self.started.elapsed().as_secs());
        let mut body = String::new();
        let _ = write!(
            body,
            "{{\n\"tenure.version\": \"{tenure}\",\n\"etcd.version\": \"{ETCD_VERSION}\",\n\"uptime_seconds\": {uptime}\n}}\n"
        );
        plain(StatusCode::OK, JSON, body)
    }

    async fn scrape(&self) -> Response<FrontBody> {
        let status = self.status(SCRAPE_WAIT).await.ok();
        plain(StatusCode::OK, EXPOSITION, self.metrics.render(status.as_deref()))
    }

    async fn status(&self, wait: Duration) -> Result<Box<Status>, Failure> {
        let asked = self.handle.read(Read::Status, Consistency::Serializable);
        match tokio::time::timeout(wait, asked).await {
            Ok(Ok((_, Answer::Status(status)))) => Ok(status),
            Ok(Ok((_, other))) => unreachable!("a status is answered by a status, not by {other:?}"),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::TimedOut),
        }
    }

    /// Whether a read of this kind would be served.
    async fn readable(&self, consistency: Consistency) -> Result<(), Failure> {
        let asked = self.handle.read(Read::Barrier, consistency);
        match tokio::time::timeout(self.request_timeout, asked).await {
            Ok(answered) => answered.map(|_| ()),
            Err(_) => Err(Failure::TimedOut),
        }
    }
}

/// Without the port, and without an IPv6 address's brackets.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or(bracketed),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests;
