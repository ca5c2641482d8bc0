//! The hot path: a stream of renewals. All requests that wait in the stream become one batch, whose answers are
//! all ready at once, so that tonic sends them in one frame. No task, and nothing but a boxed future for a batch.
//!
//! While a batch is on its way the requests are read on: a client sends each renewal in a frame of its own, and
//! h2 takes thousands of small frames that nobody reads for an attack and ends the connection.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::vec;

use tenure_proto::etcdserverpb as pb;
use tenure_replica::effect::Header;
use tenure_state::applied::Renewed;
use tenure_state::ids::LeaseId;
use tokio_stream::Stream;
use tonic::Status;

use crate::edge::gate::Wording;
use crate::edge::{Context, status, to_proto};
use crate::handle::Answered;

/// One batch renews at most so many; it bounds what one poll takes in.
const BATCH_MAX: usize = 4096;
/// So many may wait for the next batches, half a MiB of ids. Beyond, the client is made to wait.
const WAITING_MAX: usize = 65_536;

type Batch = Pin<Box<dyn Future<Output = Answered<Vec<Renewed>>> + Send>>;

/// Answers each renewal of `requests` in order. Ends well when the requests do and all are answered.
pub(super) struct KeepAlive<R> {
    ctx: Context,
    requests: R,
    /// How the requests ended.
    ended: Option<Result<(), Status>>,
    batch: Option<Batch>,
    /// Read already, for the next batches.
    waiting: VecDeque<LeaseId>,
    /// Of the batch that is being answered.
    header: Header,
    answers: vec::IntoIter<Renewed>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl<R> KeepAlive<R>
where
    R: Stream<Item = Result<pb::LeaseKeepAliveRequest, Status>> + Unpin,
{
    pub(super) fn new(ctx: Context, requests: R) -> KeepAlive<R> {
        let stopped = ctx.stopped();
        let (header, answers) = (Header::default(), Vec::new().into_iter());
        let waiting = VecDeque::new();
        KeepAlive { ctx, requests, ended: None, batch: None, waiting, header, answers, stopped }
    }

    /// Takes the requests that are there by now, a bounded number.
    fn take_requests(&mut self, cx: &mut TaskContext<'_>) {
        for _ in 0..BATCH_MAX {
            if self.ended.is_some() || self.waiting.len() >= WAITING_MAX {
                return;
            }
            match Pin::new(&mut self.requests).poll_next(cx) {
                Poll::Ready(Some(Ok(request))) => self.waiting.push_back(LeaseId(request.id)),
                Poll::Ready(Some(Err(status))) => {
                    let wording =
                        Wording { is_txn: false, request_bytes_max: self.ctx.limits.max_request_bytes };
                    self.ended = Some(Err(wording.of(&status).unwrap_or(status)));
                }
                Poll::Ready(None) => self.ended = Some(Ok(())),
                Poll::Pending => return,
            }
        }
        // There may be more: come back without waiting for it.
        cx.waker().wake_by_ref();
    }

    /// Sends the next batch on its way, if anything waits for one.
    fn next_batch(&mut self) -> bool {
        let count = self.waiting.len().min(BATCH_MAX);
        if count > 0 {
            let ids = self.waiting.drain(..count).collect();
            let handle = self.ctx.handle.clone();
            self.batch = Some(Box::pin(async move { handle.renew(ids).await }));
        }
        count > 0
    }

    /// A lease that does not live is answered with 0 seconds, and the stream goes on.
    fn answer(&self, renewed: Renewed) -> pb::LeaseKeepAliveResponse {
        pb::LeaseKeepAliveResponse {
            header: Some(self.ctx.header_at(self.header, self.header.revision)),
            id: renewed.id.0,
            ttl: renewed.remaining.map_or(0, to_proto::seconds_left),
        }
    }

    /// Ends the stream; what was not answered yet never will be.
    fn fail(&mut self, status: Status) -> Poll<Option<Result<pb::LeaseKeepAliveResponse, Status>>> {
        self.batch = None;
        self.ended = Some(Ok(()));
        Poll::Ready(Some(Err(status)))
    }
}

impl<R> Stream for KeepAlive<R>
where
    R: Stream<Item = Result<pb::LeaseKeepAliveRequest, Status>> + Unpin,
{
    type Item = Result<pb::LeaseKeepAliveResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(renewed) = self.answers.next() {
                return Poll::Ready(Some(Ok(self.answer(renewed))));
            }
            self.take_requests(cx);
            if let Some(batch) = &mut self.batch {
                match batch.as_mut().poll(cx) {
                    Poll::Ready(Ok((header, renewed))) => {
                        self.batch = None;
                        self.header = header;
                        self.answers = renewed.into_iter();
                        continue;
                    }
                    Poll::Ready(Err(failure)) => return self.fail(status::failure(failure)),
                    Poll::Pending => break,
                }
            }
            if self.next_batch() {
                continue;
            }
            match self.ended.take() {
                Some(Ok(())) => {
                    self.ended = Some(Ok(()));
                    return Poll::Ready(None);
                }
                Some(Err(status)) => return self.fail(status),
                None => break,
            }
        }
        match self.stopped.as_mut().poll(cx) {
            Poll::Ready(()) => self.fail(status::stopped()),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests;
