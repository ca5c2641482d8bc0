//! What a read found so far, made into an answer bit by bit: only what the answer still may need is kept, an answer
//! that no client could receive is given up, and what takes long does not hold up who shares the thread.

use std::sync::Arc;

use tenure_proto::{etcdserverpb as pb, mvccpb};
use tenure_state::applied::{OpReply, RangeReply, Shown, TxnReply};
use tenure_state::command::Range;
use tenure_state::ids::Revision;
use tenure_state::range::{finish, has_bounds, is_cut_after_sort, is_within_bounds, shown, trim};
use tenure_state::record::Record;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tonic::Status;

use crate::edge::{status, to_proto};

/// More records than these are sorted, copied and dropped on a thread of their own.
const INLINE_RECORDS_MAX: usize = 4096;

/// What the keys and values of an answer take.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    bytes: usize,
    bytes_max: usize,
}

impl Weight {
    pub(super) fn new(bytes_max: usize) -> Weight {
        Weight { bytes: 0, bytes_max }
    }

    /// Refuses an answer that with `records` becomes too large. A key weighs what it takes while the answer is built,
    /// which is more than its share of the message.
    pub(super) fn add(&mut self, records: &[Arc<Record>], shown: Shown) -> Result<(), Status> {
        let value_bytes = |record: &Record| if shown == Shown::All { record.value.len() } else { 0 };
        let bytes =
            |record: &Arc<Record>| size_of::<mvccpb::KeyValue>() + record.key.len() + value_bytes(record);
        self.bytes += records.iter().map(bytes).sum::<usize>();
        if self.bytes > self.bytes_max {
            return Err(status::reply_too_large(self.bytes, self.bytes_max));
        }
        Ok(())
    }

    pub(super) fn add_txn(&mut self, reply: &TxnReply) -> Result<(), Status> {
        reply.responses.iter().try_for_each(|response| match response {
            OpReply::Range(range) => self.add(&range.records, range.shown),
            OpReply::Put(put) => self.add(put.prev.as_slice(), Shown::All),
            OpReply::DeleteRange(delete) => self.add(&delete.prevs, Shown::All),
            OpReply::Txn(nested) => self.add_txn(nested),
        })
    }
}

/// The records of one range.
pub(super) struct Gathered {
    range: Range,
    records: Vec<Arc<Record>>,
}

impl Gathered {
    pub(super) fn new(range: Range) -> Gathered {
        Gathered { range, records: Vec::new() }
    }

    pub(super) fn range(&self) -> &Range {
        &self.range
    }

    pub(super) fn add(&mut self, mut records: Vec<Arc<Record>>, weight: &mut Weight) -> Result<(), Status> {
        if has_bounds(&self.range) {
            records.retain(|record| is_within_bounds(record, &self.range));
        }
        if !is_cut_after_sort(&self.range) {
            weight.add(&records, shown(&self.range))?;
        }
        if self.records.is_empty() {
            self.records = records;
        } else {
            self.records.extend(records);
        }
        trim(&mut self.records, &self.range);
        Ok(())
    }

    /// Makes the answer when all is there; `count` keys live in the range.
    pub(super) async fn finish(
        mut self,
        header: pb::ResponseHeader,
        count: i64,
        weight: &mut Weight,
    ) -> Result<pb::RangeResponse, Status> {
        let (range, records) = (self.range.clone(), std::mem::take(&mut self.records));
        let is_long = records.len() > INLINE_RECORDS_MAX;
        let mut weighed = *weight;
        let make = move || {
            let (records, more) = finish(records, &range);
            let shown = shown(&range);
            if is_cut_after_sort(&range) {
                weighed.add(&records, shown)?;
            }
            // The revision is in the header.
            let reply = RangeReply { revision: Revision::ZERO, records, count, more, shown };
            Ok((to_proto::range(header, reply), weighed))
        };
        let made: Result<_, Status> = if is_long {
            // It fails when the runtime ends, and nobody is there any more to be told.
            spawn_blocking(make).await.unwrap_or_else(|_| Err(status::stopped()))
        } else {
            make()
        };
        let (response, weighed) = made?;
        *weight = weighed;
        Ok(response)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        if self.records.len() > INLINE_RECORDS_MAX {
            drop_elsewhere(std::mem::take(&mut self.records));
        }
    }
}

/// The answers to the ranges of a transaction that are made so far.
#[derive(Default)]
pub(super) struct Responses {
    made: Vec<pb::ResponseOp>,
    keys: usize,
}

impl Responses {
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    pub(super) fn push(&mut self, range: pb::RangeResponse) {
        self.keys += range.kvs.len();
        let response = Some(pb::response_op::Response::ResponseRange(range));
        self.made.push(pb::ResponseOp { response });
    }

    pub(super) fn take(mut self) -> Vec<pb::ResponseOp> {
        std::mem::take(&mut self.made)
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        if self.keys > INLINE_RECORDS_MAX && !self.made.is_empty() {
            drop_elsewhere(std::mem::take(&mut self.made));
        }
    }
}

/// Giving much memory back takes its time as well.
fn drop_elsewhere<T: Send + 'static>(what: T) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(move || drop(what));
    }
}

#[cfg(test)]
mod tests;
