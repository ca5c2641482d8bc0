//! Builds etcd's messages from what the replica answers, once, at the last moment.

use tenure_proto::{etcdserverpb as pb, mvccpb};
use tenure_replica::effect::Header;
use tenure_state::applied::{DeleteReply, OpReply, PutReply, RangeReply, Shown, TxnReply};
use tenure_state::command::Alarm;
use tenure_state::ids::{MemberId, Nanos, Revision};
use tenure_state::record::{Event, Record};

use crate::identity::Identity;

/// The header of a response: who answers, and the moment that the answer belongs to.
pub(crate) fn header(identity: &Identity, header: Header) -> pb::ResponseHeader {
    pb::ResponseHeader {
        cluster_id: identity.cluster,
        member_id: identity.member.0,
        revision: header.revision.0,
        raft_term: header.term,
    }
}

/// The header of a response inside a transaction: a revision and nothing else.
pub(crate) fn inner_header(revision: Revision) -> pb::ResponseHeader {
    pb::ResponseHeader { revision: revision.0, ..Default::default() }
}

/// Shares key and value with the record. A tombstone comes out as etcd shows it: key and mod revision only.
pub(crate) fn key_value(record: &Record, shown: Shown) -> mvccpb::KeyValue {
    let (value, lease) = match shown {
        Shown::All => (record.value.clone(), record.lease.0),
        Shown::NoValue => (Default::default(), record.lease.0),
        Shown::KeyOnly => Default::default(),
    };
    mvccpb::KeyValue {
        key: record.key.clone(),
        create_revision: record.create.0,
        mod_revision: record.at.main.0,
        version: record.version,
        value,
        lease,
    }
}

fn full(record: impl AsRef<Record>) -> mvccpb::KeyValue {
    key_value(record.as_ref(), Shown::All)
}

/// What a watcher is told of one change; with the version before it if it asked for that.
pub(crate) fn event(event: &Event, prev: bool) -> mvccpb::Event {
    let kind = match event.record.is_tombstone() {
        true => mvccpb::event::EventType::Delete,
        false => mvccpb::event::EventType::Put,
    };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some(full(&event.record)),
        prev_kv: event.prev.as_ref().filter(|_| prev).map(full),
    }
}

pub(crate) fn range(header: pb::ResponseHeader, reply: RangeReply) -> pb::RangeResponse {
    pb::RangeResponse {
        header: Some(header),
        kvs: reply.records.iter().map(|record| key_value(record, reply.shown)).collect(),
        more: reply.more,
        count: reply.count,
    }
}

pub(crate) fn put(header: pb::ResponseHeader, reply: PutReply) -> pb::PutResponse {
    pb::PutResponse { header: Some(header), prev_kv: reply.prev.map(full) }
}

pub(crate) fn delete_range(header: pb::ResponseHeader, reply: DeleteReply) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: Some(header),
        deleted: reply.deleted,
        prev_kvs: reply.prevs.into_iter().map(full).collect(),
    }
}

pub(crate) fn txn(header: pb::ResponseHeader, reply: TxnReply) -> pb::TxnResponse {
    pb::TxnResponse {
        header: Some(header),
        succeeded: reply.succeeded,
        responses: reply.responses.into_iter().map(op).collect(),
    }
}

fn op(reply: OpReply) -> pb::ResponseOp {
    use pb::response_op::Response;
    let response = match reply {
        OpReply::Range(reply) => Response::ResponseRange(range(inner_header(reply.revision), reply)),
        OpReply::Put(reply) => Response::ResponsePut(put(inner_header(reply.revision), reply)),
        OpReply::DeleteRange(reply) => {
            Response::ResponseDeleteRange(delete_range(inner_header(reply.revision), reply))
        }
        // etcd leaves the header of a nested transaction empty, revision included.
        OpReply::Txn(reply) => Response::ResponseTxn(txn(pb::ResponseHeader::default(), reply)),
    };
    pb::ResponseOp { response: Some(response) }
}

/// Remaining time of a living lease in whole seconds: floored, so that nobody trusts a lease for longer than it
/// lives, but never 0, which every client takes for dead.
pub(crate) fn seconds_left(remaining: Nanos) -> i64 {
    i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX).max(1)
}

/// A TTL in whole seconds, rounded up: `tenure.v1` grants fractions of a second.
pub(crate) fn seconds_granted(ttl: Nanos) -> i64 {
    i64::try_from(ttl.0.div_ceil(1_000_000_000)).unwrap_or(i64::MAX)
}

pub(crate) fn alarm(member: MemberId, alarm: Alarm) -> pb::AlarmMember {
    let kind = match alarm {
        Alarm::NoSpace => pb::AlarmType::Nospace,
        Alarm::Corrupt => pb::AlarmType::Corrupt,
    };
    pb::AlarmMember { member_id: member.0, alarm: kind.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tenure_state::ids::{LeaseId, RevisionAt};

    use super::*;

    fn record() -> Record {
        Record {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
            create: Revision(3),
            at: RevisionAt { main: Revision(7), sub: 2 },
            version: 4,
            lease: LeaseId(-9),
        }
    }

    fn tombstone() -> Record {
        let at = RevisionAt { main: Revision(8), sub: 0 };
        Record {
            value: Bytes::new(),
            create: Revision::ZERO,
            at,
            version: 0,
            lease: LeaseId::NONE,
            ..record()
        }
    }

    #[test]
    fn a_record_is_shown_as_far_as_was_asked() {
        let all = key_value(&record(), Shown::All);
        assert_eq!(
            all,
            mvccpb::KeyValue {
                key: "k".into(),
                create_revision: 3,
                mod_revision: 7,
                version: 4,
                value: "v".into(),
                lease: -9
            }
        );
        assert_eq!(
            key_value(&record(), Shown::NoValue),
            mvccpb::KeyValue { value: Bytes::new(), ..all.clone() }
        );
        assert_eq!(
            key_value(&record(), Shown::KeyOnly),
            mvccpb::KeyValue { value: Bytes::new(), lease: 0, ..all }
        );
    }

    #[test]
    fn a_deletion_carries_key_and_revision_only() {
        let deletion = Event { record: Arc::new(tombstone()), prev: Some(Arc::new(record())) };
        let shown = event(&deletion, false);
        assert_eq!(shown.r#type, mvccpb::event::EventType::Delete as i32);
        assert_eq!(
            shown.kv,
            Some(mvccpb::KeyValue { key: "k".into(), mod_revision: 8, ..Default::default() })
        );
        assert_eq!(shown.prev_kv, None);
        assert_eq!(event(&deletion, true).prev_kv.map(|kv| kv.mod_revision), Some(7));

        let put = Event { record: Arc::new(record()), prev: None };
        assert_eq!(event(&put, true).r#type, mvccpb::event::EventType::Put as i32);
        assert_eq!(event(&put, true).prev_kv, None);
    }

    #[test]
    fn headers_inside_a_transaction_carry_the_revision_only() {
        let outer = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 9, raft_term: 3 };
        let put = PutReply { revision: Revision(9), prev: None };
        let nested =
            TxnReply { revision: Revision(9), succeeded: false, responses: vec![OpReply::Put(put.clone())] };
        let responses = vec![
            OpReply::Range(RangeReply {
                revision: Revision(8),
                records: vec![Arc::new(record())],
                count: 5,
                more: true,
                shown: Shown::NoValue,
            }),
            OpReply::DeleteRange(DeleteReply { revision: Revision(9), deleted: 1, prevs: Vec::new() }),
            OpReply::Txn(nested),
        ];
        let built = txn(outer, TxnReply { revision: Revision(9), succeeded: true, responses });
        assert_eq!(built.header, Some(outer));
        assert!(built.succeeded);
        let mut headers = Vec::new();
        for response in built.responses {
            match response.response.expect("every reply is built") {
                pb::response_op::Response::ResponseRange(range) => {
                    assert_eq!((range.count, range.more, range.kvs.len()), (5, true, 1));
                    headers.push(range.header);
                }
                pb::response_op::Response::ResponsePut(put) => headers.push(put.header),
                pb::response_op::Response::ResponseDeleteRange(delete) => headers.push(delete.header),
                pb::response_op::Response::ResponseTxn(txn) => headers.push(txn.header),
            }
        }
        let only =
            |revision| Some(pb::ResponseHeader { cluster_id: 0, member_id: 0, revision, raft_term: 0 });
        assert_eq!(headers, [only(8), only(9), only(0)]);
    }

    #[test]
    fn a_living_lease_never_shows_zero_and_never_more_than_is_left() {
        for (ms, shown) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_999, 1), (2_000, 2), (59_999, 59)] {
            assert_eq!(seconds_left(Nanos::from_millis(ms)), shown, "{ms} ms left");
        }
        for (ms, shown) in [(100, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(seconds_granted(Nanos::from_millis(ms)), shown, "{ms} ms granted");
        }
    }
}
