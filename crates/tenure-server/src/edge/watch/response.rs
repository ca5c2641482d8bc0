//! A watch response whose events are packed already, and the pieces of one that is too large.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{DecodeContext, WireType, encoded_len_varint, message};
use prost::{DecodeError, Message};
use tenure_proto::{etcdserverpb as pb, mvccpb};
use tenure_replica::effect::WatchBatch;
use tenure_state::record::Event;

use crate::edge::to_proto;

/// The number of `events` in etcd's WatchResponse. It is the last field there, so packed events can follow the
/// others as they are.
const EVENTS_TAG: u32 = 11;
/// What that number takes before each event.
const EVENTS_TAG_BYTES: usize = 1;

/// On the wire the same as a `WatchResponse`; that of a thousand watches shares its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Response {
    /// All but the events.
    pub(super) head: pb::WatchResponse,
    pub(super) events: Bytes,
}

impl Response {
    /// Takes the events of a batch, packing them unless another stream did.
    pub(super) fn pack(&mut self, batch: &WatchBatch, prev: bool) {
        self.events = batch.packed(|events| pack(events, prev)).clone();
    }

    /// Whether it has to be cut, which takes two events.
    pub(super) fn is_over(&self, bytes_max: usize, batch: &WatchBatch) -> bool {
        batch.events.len() > 1 && self.encoded_len() >= bytes_max
    }
}

fn pack(events: &[Event], prev: bool) -> Bytes {
    let events = events.iter().map(|event| to_proto::event(event, prev)).collect();
    pb::WatchResponse { events, ..Default::default() }.encode_to_vec().into()
}

impl Message for Response {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.head.encode_raw(buf);
        buf.put_slice(&self.events);
    }

    fn encoded_len(&self) -> usize {
        self.head.encoded_len() + self.events.len()
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.head.merge_field(tag, wire_type, buf, ctx)
    }

    fn clear(&mut self) {
        *self = Response::default();
    }
}

/// Cuts a response between events, as etcd does: every piece but the last says that more follows, and stays below
/// the limit unless one event alone is over it.
pub(super) struct Pieces {
    head: pb::WatchResponse,
    batch: Arc<WatchBatch>,
    prev: bool,
    bytes_max: usize,
    /// Events that were sent.
    sent: usize,
}

impl Pieces {
    pub(super) fn new(
        mut head: pb::WatchResponse,
        batch: Arc<WatchBatch>,
        prev: bool,
        bytes_max: usize,
    ) -> Pieces {
        head.fragment = true;
        Pieces { head, batch, prev, bytes_max, sent: 0 }
    }
}

impl Iterator for Pieces {
    type Item = Response;

    fn next(&mut self) -> Option<Response> {
        let left = &self.batch.events[self.sent..];
        if left.is_empty() {
            return None;
        }
        let head_bytes = self.head.encoded_len();
        let mut packed = BytesMut::new();
        let mut taken = 0;
        for event in left {
            let event: mvccpb::Event = to_proto::event(event, self.prev);
            let len = event.encoded_len();
            let bytes = head_bytes + packed.len() + EVENTS_TAG_BYTES + encoded_len_varint(len as u64) + len;
            if taken > 0 && bytes >= self.bytes_max {
                break;
            }
            message::encode(EVENTS_TAG, &event, &mut packed);
            taken += 1;
        }
        let last = taken == left.len();
        self.sent += taken;
        let mut head = self.head.clone();
        head.fragment = !last;
        Some(Response { head, events: packed.freeze() })
    }
}
