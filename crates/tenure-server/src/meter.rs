//! Counts gRPC calls as they pass: messages by their frames, ends by their trailers. Nothing is allocated and
//! nothing is locked for it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Request, Response};
use tonic::service::Routes;
use tower::Service;

use crate::metrics::Metrics;
use crate::metrics::grpc::{CANCELED, UNKNOWN};

/// What etcd's clients say is their version.
const CLIENT_VERSION: &str = "client-api-version";
const GRPC_STATUS: &str = "grpc-status";

/// Calls `routes`, counted if the method is known.
pub(crate) fn call<B>(routes: &mut Routes, metrics: &Arc<Metrics>, request: Request<B>) -> Calling
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<tonic::codegen::StdError>,
{
    let Some(method) = metrics.grpc.find(request.uri().path()) else {
        return Calling { future: routes.call(request), call: None };
    };
    metrics.grpc.started(method, request.headers().get(CLIENT_VERSION).map(|version| version.as_bytes()));
    let call = Call { metrics: metrics.clone(), method, started: Instant::now(), over: false };
    let metrics = metrics.clone();
    let request = request.map(|inner| Received { inner, metrics, method, frames: Frames::default() });
    Calling { future: routes.call(request), call: Some(call) }
}

/// One call, counted as over once: with its code, or as cancelled when it is dropped before that.
struct Call {
    metrics: Arc<Metrics>,
    method: usize,
    started: Instant,
    over: bool,
}

impl Call {
    fn over(&mut self, trailers: &HeaderMap) {
        if self.over {
            return;
        }
        self.over = true;
        let code = trailers.get(GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse().ok());
        self.metrics.grpc.handled(self.method, code.unwrap_or(UNKNOWN), self.started.elapsed());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            self.metrics.grpc.handled(self.method, CANCELED, self.started.elapsed());
        }
    }
}

/// A call until its response begins.
pub(crate) struct Calling {
    future: <Routes as Service<Request<tonic::body::Body>>>::Future,
    call: Option<Call>,
}

impl Future for Calling {
    type Output = Result<Response<Sent>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.future).poll(cx));
        let mut call = self.call.take();
        // A call that ends before its first message has its trailers in front.
        if let Some(call) = call.as_mut().filter(|_| response.headers().contains_key(GRPC_STATUS)) {
            call.over(response.headers());
        }
        Poll::Ready(Ok(response.map(|inner| Sent { inner, call, frames: Frames::default() })))
    }
}

/// The body of a request.
struct Received<B> {
    inner: B,
    metrics: Arc<Metrics>,
    method: usize,
    frames: Frames,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Received<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            let (messages, bytes) = self.frames.pass(data);
            self.metrics.grpc.received(self.method, messages, bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response.
pub(crate) struct Sent {
    inner: tonic::body::Body,
    call: Option<Call>,
    frames: Frames,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let Sent { call: Some(call), frames, .. } = &mut *self else { return Poll::Ready(frame) };
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                let (messages, bytes) = frames.pass(data);
                call.metrics.grpc.sent(call.method, messages, bytes);
            } else if let Some(trailers) = frame.trailers_ref() {
                call.over(trailers);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Finds the messages in a stream of bytes that is cut anywhere: each has one byte of flags, four of length, and so
/// many more.
#[derive(Default)]
struct Frames {
    /// How many of the five bytes in front were seen.
    head: u8,
    length: u32,
    /// What is still missing of the message.
    missing: u32,
}

impl Frames {
    /// How many messages began in `data`, counted when their length is known, and how many bytes are in all of
    /// them.
    fn pass(&mut self, data: &Bytes) -> (u64, u64) {
        let (mut messages, mut bytes) = (0, 0);
        let mut data: &[u8] = data;
        while !data.is_empty() {
            if self.missing > 0 {
                let taken = data.len().min(self.missing as usize);
                data.advance(taken);
                self.missing -= taken as u32;
            } else if self.head == 0 && data.len() >= 5 {
                data.advance(1);
                self.missing = data.get_u32();
                messages += 1;
                bytes += u64::from(self.missing);
            } else {
                let byte = data.get_u8();
                self.head += 1;
                if self.head > 1 {
                    self.length = self.length << 8 | u32::from(byte);
                }
                if self.head == 5 {
                    self.missing = self.length;
                    messages += 1;
                    bytes += u64::from(self.missing);
                    (self.head, self.length) = (0, 0);
                }
            }
        }
        (messages, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_wherever_the_bytes_are_cut() {
        let mut wire = Vec::new();
        for length in [0_u32, 1, 5, 300, 0, 70_000] {
            wire.push(0);
            wire.extend(length.to_be_bytes());
            wire.resize(wire.len() + length as usize, 7);
        }
        for cut in [1, 2, 3, 4, 5, 6, 7, 100, 4096, wire.len()] {
            let mut frames = Frames::default();
            let (mut messages, mut bytes) = (0, 0);
            for piece in wire.chunks(cut) {
                let (m, b) = frames.pass(&Bytes::copy_from_slice(piece));
                messages += m;
                bytes += b;
            }
            assert_eq!((messages, bytes), (6, 70_306), "cut every {cut} bytes");
        }
    }
}
