//! Keys and values. A request is built as a value of its own, so that the same `Put` can be sent alone or be part of a
//! transaction, and can be tested without a server.

use bytes::Bytes;
use tenure_proto::etcdserverpb::{
    self as pb, compare, kv_client::KvClient, range_request::SortOrder, range_request::SortTarget, request_op,
};
use tonic::transport::Channel;

use crate::{
    channel::{Client, MESSAGE_BYTES_MAX, Repeat},
    error::ClientError,
    lease::LeaseId,
};

/// Which keys are meant, in etcd's encoding: an empty end is the single key, an end of one zero byte means "and all that follow".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub key: Bytes,
    pub range_end: Bytes,
}

const NO_END: Bytes = Bytes::from_static(b"\0");

impl KeyRange {
    pub fn one(key: impl Into<Bytes>) -> KeyRange {
        KeyRange { key: key.into(), range_end: Bytes::new() }
    }

    /// From `key` up to, but not including, `range_end`.
    pub fn between(key: impl Into<Bytes>, range_end: impl Into<Bytes>) -> KeyRange {
        KeyRange { key: key.into(), range_end: range_end.into() }
    }

    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let prefix = prefix.into();
        if prefix.is_empty() {
            return KeyRange::all();
        }
        // The first key that does not start with the prefix: the last byte that can grow, grown. 0xff bytes cannot.
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return KeyRange { key: prefix, range_end: end.into() };
            }
        }
        KeyRange { key: prefix, range_end: NO_END }
    }

    /// `key` and every key after it.
    pub fn from(key: impl Into<Bytes>) -> KeyRange {
        let key = key.into();
        // An empty key is refused by servers; the zero byte is the first key that can exist.
        KeyRange { key: if key.is_empty() { NO_END } else { key }, range_end: NO_END }
    }

    pub fn all() -> KeyRange {
        KeyRange::from(Bytes::new())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Put(pb::PutRequest);

impl Put {
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        Put(pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() })
    }

    /// The key goes when the lease does.
    pub fn lease(mut self, id: LeaseId) -> Put {
        self.0.lease = id.0;
        self
    }

    /// Answer with what was there before.
    pub fn prev_kv(mut self) -> Put {
        self.0.prev_kv = true;
        self
    }

    /// Change the lease only.
    pub fn ignore_value(mut self) -> Put {
        self.0.ignore_value = true;
        self.0.value = Bytes::new();
        self
    }

    /// Change the value only.
    pub fn ignore_lease(mut self) -> Put {
        self.0.ignore_lease = true;
        self.0.lease = 0;
        self
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Get(pb::RangeRequest);

impl Get {
    pub fn new(range: KeyRange) -> Get {
        let KeyRange { key, range_end } = range;
        Get(pb::RangeRequest { key, range_end, ..Default::default() })
    }

    pub fn key(key: impl Into<Bytes>) -> Get {
        Get::new(KeyRange::one(key))
    }

    pub fn prefix(prefix: impl Into<Bytes>) -> Get {
        Get::new(KeyRange::prefix(prefix))
    }

    /// As it was at this revision.
    pub fn revision(mut self, revision: i64) -> Get {
        self.0.revision = revision;
        self
    }

    pub fn limit(mut self, limit: i64) -> Get {
        self.0.limit = limit;
        self
    }

    pub fn sort(mut self, target: SortTarget, order: SortOrder) -> Get {
        self.0.sort_target = target.into();
        self.0.sort_order = order.into();
        self
    }

    pub fn keys_only(mut self) -> Get {
        self.0.keys_only = true;
        self
    }

    pub fn count_only(mut self) -> Get {
        self.0.count_only = true;
        self
    }

    /// Whatever the asked member has, which may be old, but needs no leader.
    pub fn serializable(mut self) -> Get {
        self.0.serializable = true;
        self
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Delete(pb::DeleteRangeRequest);

impl Delete {
    pub fn new(range: KeyRange) -> Delete {
        let KeyRange { key, range_end } = range;
        Delete(pb::DeleteRangeRequest { key, range_end, prev_kv: false })
    }

    pub fn key(key: impl Into<Bytes>) -> Delete {
        Delete::new(KeyRange::one(key))
    }

    pub fn prev_kv(mut self) -> Delete {
        self.0.prev_kv = true;
        self
    }
}

/// One condition of a transaction: `Compare::version("k").equal(0)`, or `equal("text")` for a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare(pb::Compare);

/// A condition that still lacks its relation; see [`Compare`].
#[derive(Debug, Clone)]
pub struct Subject<V> {
    key: Bytes,
    target: compare::CompareTarget,
    union: fn(V) -> compare::TargetUnion,
}

impl Compare {
    pub fn version(key: impl Into<Bytes>) -> Subject<i64> {
        Subject {
            key: key.into(),
            target: compare::CompareTarget::Version,
            union: compare::TargetUnion::Version,
        }
    }

    /// 0 for a key that is not there.
    pub fn create_revision(key: impl Into<Bytes>) -> Subject<i64> {
        Subject {
            key: key.into(),
            target: compare::CompareTarget::Create,
            union: compare::TargetUnion::CreateRevision,
        }
    }

    pub fn mod_revision(key: impl Into<Bytes>) -> Subject<i64> {
        Subject {
            key: key.into(),
            target: compare::CompareTarget::Mod,
            union: compare::TargetUnion::ModRevision,
        }
    }

    pub fn lease(key: impl Into<Bytes>) -> Subject<i64> {
        Subject { key: key.into(), target: compare::CompareTarget::Lease, union: compare::TargetUnion::Lease }
    }

    pub fn value(key: impl Into<Bytes>) -> Subject<Bytes> {
        Subject { key: key.into(), target: compare::CompareTarget::Value, union: compare::TargetUnion::Value }
    }

    /// Must hold for every key up to this one.
    pub fn up_to(mut self, range_end: impl Into<Bytes>) -> Compare {
        self.0.range_end = range_end.into();
        self
    }
}

impl<V> Subject<V> {
    pub fn is(self, result: compare::CompareResult, value: impl Into<V>) -> Compare {
        Compare(pb::Compare {
            result: result.into(),
            target: self.target.into(),
            key: self.key,
            target_union: Some((self.union)(value.into())),
            range_end: Bytes::new(),
        })
    }

    pub fn equal(self, value: impl Into<V>) -> Compare {
        self.is(compare::CompareResult::Equal, value)
    }

    pub fn not_equal(self, value: impl Into<V>) -> Compare {
        self.is(compare::CompareResult::NotEqual, value)
    }

    pub fn greater(self, value: impl Into<V>) -> Compare {
        self.is(compare::CompareResult::Greater, value)
    }

    pub fn less(self, value: impl Into<V>) -> Compare {
        self.is(compare::CompareResult::Less, value)
    }
}

/// `Txn::new().when(…).then(…).otherwise(…)`; each may be called again to add more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Txn(pb::TxnRequest);

impl Txn {
    pub fn new() -> Txn {
        Txn::default()
    }

    pub fn when(mut self, condition: Compare) -> Txn {
        self.0.compare.push(condition.0);
        self
    }

    pub fn then(mut self, operation: impl Into<pb::RequestOp>) -> Txn {
        self.0.success.push(operation.into());
        self
    }

    pub fn otherwise(mut self, operation: impl Into<pb::RequestOp>) -> Txn {
        self.0.failure.push(operation.into());
        self
    }

    /// Whether it could change anything; one that cannot may be repeated.
    fn is_read_only(txn: &pb::TxnRequest) -> bool {
        txn.success.iter().chain(&txn.failure).all(|op| match &op.request {
            Some(request_op::Request::RequestRange(_)) | None => true,
            Some(request_op::Request::RequestTxn(inner)) => Txn::is_read_only(inner),
            Some(request_op::Request::RequestPut(_) | request_op::Request::RequestDeleteRange(_)) => false,
        })
    }
}

macro_rules! operation {
    ($builder:ty, $request:ty, $variant:ident) => {
        impl From<$builder> for $request {
            fn from(builder: $builder) -> $request {
                builder.0
            }
        }

        impl From<$builder> for pb::RequestOp {
            fn from(builder: $builder) -> pb::RequestOp {
                pb::RequestOp { request: Some(request_op::Request::$variant(builder.0)) }
            }
        }
    };
}

operation!(Put, pb::PutRequest, RequestPut);
operation!(Get, pb::RangeRequest, RequestRange);
operation!(Delete, pb::DeleteRangeRequest, RequestDeleteRange);
operation!(Txn, pb::TxnRequest, RequestTxn);

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

impl Client {
    pub async fn put(&self, put: Put) -> Result<pb::PutResponse, ClientError> {
        self.unary(Repeat::Never, |channel| {
            let put = put.0.clone();
            async move { kv(channel).put(put).await }
        })
        .await
    }

    pub async fn get(&self, get: Get) -> Result<pb::RangeResponse, ClientError> {
        self.unary(Repeat::Harmless, |channel| {
            let get = get.0.clone();
            async move { kv(channel).range(get).await }
        })
        .await
    }

    pub async fn delete(&self, delete: Delete) -> Result<pb::DeleteRangeResponse, ClientError> {
        self.unary(Repeat::Never, |channel| {
            let delete = delete.0.clone();
            async move { kv(channel).delete_range(delete).await }
        })
        .await
    }

    pub async fn txn(&self, txn: Txn) -> Result<pb::TxnResponse, ClientError> {
        let repeat = if Txn::is_read_only(&txn.0) { Repeat::Harmless } else { Repeat::Never };
        self.unary(repeat, |channel| {
            let txn = txn.0.clone();
            async move { kv(channel).txn(txn).await }
        })
        .await
    }

    /// Forgets what only revisions before this one need; `physical` waits until the space is free.
    pub async fn compact(
        &self,
        revision: i64,
        physical: bool,
    ) -> Result<pb::CompactionResponse, ClientError> {
        self.unary(Repeat::Never, |channel| async move {
            kv(channel).compact(pb::CompactionRequest { revision, physical }).await
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_without_it() {
        assert_eq!(KeyRange::prefix("ab"), KeyRange::between("ab", "ac"));
        assert_eq!(
            KeyRange::prefix(&b"a\xff\xff"[..]),
            KeyRange { key: Bytes::from_static(b"a\xff\xff"), range_end: Bytes::from_static(b"b") }
        );
        assert_eq!(KeyRange::prefix(&b"\xff"[..]).range_end, NO_END);
        assert_eq!(KeyRange::prefix(""), KeyRange::between(NO_END, NO_END));
    }

    #[test]
    fn a_transaction_is_built_in_the_order_of_its_calls() {
        let txn = Txn::new()
            .when(Compare::create_revision("k").equal(0))
            .when(Compare::value("v").not_equal("x").up_to("w"))
            .then(Put::new("k", "1").lease(LeaseId(7)))
            .then(Get::key("k"))
            .otherwise(Delete::new(KeyRange::prefix("k")));
        let request = pb::TxnRequest::from(txn);
        assert_eq!(request.compare.len(), 2);
        assert_eq!(request.compare[0].target(), compare::CompareTarget::Create);
        assert_eq!(request.compare[1].range_end, "w");
        assert_eq!(request.compare[1].result(), compare::CompareResult::NotEqual);
        assert!(matches!(
            &request.success[0].request,
            Some(request_op::Request::RequestPut(put)) if put.lease == 7
        ));
        assert!(matches!(&request.failure[0].request, Some(request_op::Request::RequestDeleteRange(_))));
    }

    #[test]
    fn only_a_transaction_without_writes_may_be_repeated() {
        let read = Txn::new().then(Get::key("k")).otherwise(Txn::new().then(Get::key("l")));
        assert!(Txn::is_read_only(&read.0));
        let write = Txn::new().then(Txn::new().otherwise(Put::new("k", "v")));
        assert!(!Txn::is_read_only(&write.0));
    }
}
