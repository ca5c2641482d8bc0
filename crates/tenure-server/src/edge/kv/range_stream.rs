//! A range whose answer is sent while it is read. The next page is asked for when the reader has taken what was
//! sent, so a slow reader holds nothing up but itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use tenure_proto::etcdserverpb as pb;
use tenure_replica::effect::{Header, RangePage};
use tenure_replica::input::Consistency;
use tenure_state::applied::Shown;
use tenure_state::command::Range;
use tenure_state::range::shown;
use tenure_state::record::Record;
use tokio_stream::Stream;
use tonic::Status;

use crate::edge::{Context, status, to_proto};
use crate::handle::{Answered, Pages};

/// Keys in the first chunk. Later ones grow and shrink towards as many as fill a request of the largest size.
const FIRST_CHUNK_KEYS: usize = 10;

/// The numbers of a key and the lengths of its fields, at most.
const RECORD_OVERHEAD_BYTES: usize = 60;

type NextPage = Pin<Box<dyn Future<Output = (Pages, Option<Answered<RangePage>>)> + Send>>;

pub(super) struct RangeStream {
    ctx: Context,
    range: Range,
    shown: Shown,
    pages: Source,
    stopped: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Read and not sent yet.
    waiting: VecDeque<Arc<Record>>,
    waiting_bytes: usize,
    /// How many more keys the limit lets through.
    keys_left: usize,
    chunk_keys: usize,
    header: Option<Header>,
    /// All living keys in the range; known with the last page.
    count: Option<i64>,
}

enum Source {
    Idle(Pages),
    Reading(NextPage),
    /// The last chunk or an error was sent.
    Over,
}

impl RangeStream {
    pub(super) fn new(ctx: &Context, range: Range, consistency: Consistency) -> RangeStream {
        let limited = usize::try_from(range.limit).ok().filter(|limit| *limit > 0);
        RangeStream {
            shown: shown(&range),
            pages: Source::Idle(ctx.handle.range(range.clone(), consistency)),
            stopped: ctx.stopped(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            keys_left: if range.count_only { 0 } else { limited.unwrap_or(usize::MAX) },
            chunk_keys: FIRST_CHUNK_KEYS,
            header: None,
            count: None,
            ctx: ctx.clone(),
            range,
        }
    }

    fn bytes_of(&self, record: &Record) -> usize {
        let value_bytes = if self.shown == Shown::All { record.value.len() } else { 0 };
        record.key.len() + value_bytes + RECORD_OVERHEAD_BYTES
    }

    fn take_in(&mut self, header: Header, page: RangePage) {
        self.header.get_or_insert_with(|| super::range_header(header, page.at, &self.range));
        self.count = page.count;
        for record in page.records.into_iter().take(self.keys_left) {
            self.keys_left -= 1;
            self.waiting_bytes += self.bytes_of(&record);
            self.waiting.push_back(record);
        }
    }

    /// Whether a chunk can be cut off that is surely not the last one, or is known to be.
    fn has_chunk(&self) -> bool {
        self.count.is_some()
            || self.waiting.len() > self.chunk_keys
            || self.waiting_bytes > self.ctx.limits.max_request_bytes
    }

    /// The next chunk: at least one key if any waits, and then as many as its bounds allow.
    fn cut_chunk(&mut self) -> pb::RangeResponse {
        let chunk_bytes_max = self.ctx.limits.max_request_bytes;
        let mut kvs = Vec::with_capacity(self.chunk_keys.min(self.waiting.len()));
        let mut chunk_bytes = 0;
        while let Some(record) = self.waiting.front() {
            let record_bytes = self.bytes_of(record);
            let is_full = kvs.len() == self.chunk_keys || chunk_bytes + record_bytes > chunk_bytes_max;
            if is_full && !kvs.is_empty() {
                break;
            }
            kvs.push(to_proto::key_value(record, self.shown));
            chunk_bytes += record_bytes;
            self.waiting.pop_front();
        }
        self.waiting_bytes -= chunk_bytes;
        let is_small = kvs.len() == self.chunk_keys && chunk_bytes <= chunk_bytes_max / 2;
        self.chunk_keys = if is_small { self.chunk_keys * 2 } else { kvs.len().max(1) };
        pb::RangeResponse { kvs, ..Default::default() }
    }

    fn next_chunk(&mut self) -> pb::RangeStreamResponse {
        let mut chunk = self.cut_chunk();
        if let (true, Some(count), Some(header)) = (self.waiting.is_empty(), self.count, self.header) {
            self.pages = Source::Over;
            chunk.header = Some(self.ctx.header_at(header, header.revision));
            chunk.count = count;
            chunk.more = !self.range.count_only && self.range.limit > 0 && count > self.range.limit;
        }
        pb::RangeStreamResponse { range_response: Some(chunk) }
    }

    fn fail(&mut self, status: Status) -> Poll<Option<<RangeStream as Stream>::Item>> {
        self.pages = Source::Over;
        Poll::Ready(Some(Err(status)))
    }
}

impl Stream for RangeStream {
    type Item = Result<pb::RangeStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.pages, Source::Over) {
                Source::Over => return Poll::Ready(None),
                Source::Idle(pages) if self.has_chunk() => {
                    self.pages = Source::Idle(pages);
                    return Poll::Ready(Some(Ok(self.next_chunk())));
                }
                Source::Idle(mut pages) => {
                    let next = async move {
                        let page = pages.next().await;
                        (pages, page)
                    };
                    self.pages = Source::Reading(Box::pin(next));
                }
                Source::Reading(mut next) => match next.as_mut().poll(cx) {
                    Poll::Ready((pages, Some(Ok((header, page))))) => {
                        self.pages = Source::Idle(pages);
                        self.take_in(header, page);
                    }
                    Poll::Ready((_, Some(Err(failure)))) => return self.fail(status::failure(failure)),
                    Poll::Ready((_, None)) => unreachable!("the last page says how many keys there are"),
                    Poll::Pending if self.stopped.as_mut().poll(cx).is_ready() => {
                        return self.fail(status::stopped());
                    }
                    Poll::Pending => {
                        self.pages = Source::Reading(next);
                        return Poll::Pending;
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
