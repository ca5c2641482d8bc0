//! Answers as JSON and YAML show them. Not etcd's own JSON, which is made for gateways (keys in base64, numbers as strings) and is
//! what nobody wants to read in a shell: here text is text, lease ids are the 16 hex digits that every other command takes, and only
//! bytes that are no text are base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tenure_client::{
    LeaseId,
    etcdserverpb::{self as pb, response_op},
    mvccpb,
};

/// A key or a value: a string, or `{"base64": "…"}`.
#[derive(Debug, PartialEq)]
pub struct Text(pub Bytes);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

/// Lease and member ids: 16 hex digits, because JSON's numbers end at 2^53.
fn hex<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{id:016x}"))
}

fn lease_text(lease: i64) -> Option<String> {
    (lease != 0).then(|| LeaseId(lease).to_string())
}

#[derive(Debug, Serialize)]
pub struct Header {
    #[serde(serialize_with = "hex")]
    pub cluster_id: u64,
    #[serde(serialize_with = "hex")]
    pub member_id: u64,
    pub revision: i64,
    pub raft_term: u64,
}

impl Header {
    /// The answers inside a transaction have no head worth the name: it stands on the transaction.
    fn is_inner(&self) -> bool {
        self.cluster_id == 0
    }
}

impl From<Option<pb::ResponseHeader>> for Header {
    fn from(header: Option<pb::ResponseHeader>) -> Header {
        let pb::ResponseHeader { cluster_id, member_id, revision, raft_term } = header.unwrap_or_default();
        Header { cluster_id, member_id, revision, raft_term }
    }
}

#[derive(Debug, Serialize)]
pub struct KeyValue {
    pub key: Text,
    pub value: Text,
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

impl From<mvccpb::KeyValue> for KeyValue {
    fn from(kv: mvccpb::KeyValue) -> KeyValue {
        KeyValue {
            key: Text(kv.key),
            value: Text(kv.value),
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: lease_text(kv.lease),
        }
    }
}

fn key_values(kvs: Vec<mvccpb::KeyValue>) -> Vec<KeyValue> {
    kvs.into_iter().map(KeyValue::from).collect()
}

#[derive(Debug, Serialize)]
pub struct Get {
    #[serde(skip_serializing_if = "Header::is_inner")]
    pub header: Header,
    pub kvs: Vec<KeyValue>,
    pub more: bool,
    pub count: i64,
}

impl From<pb::RangeResponse> for Get {
    fn from(response: pb::RangeResponse) -> Get {
        Get {
            header: response.header.into(),
            kvs: key_values(response.kvs),
            more: response.more,
            count: response.count,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Put {
    #[serde(skip_serializing_if = "Header::is_inner")]
    pub header: Header,
    /// What was granted for the key, and for how many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_kv: Option<KeyValue>,
}

impl From<pb::PutResponse> for Put {
    fn from(response: pb::PutResponse) -> Put {
        Put {
            header: response.header.into(),
            lease: None,
            ttl: None,
            prev_kv: response.prev_kv.map(KeyValue::from),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Delete {
    #[serde(skip_serializing_if = "Header::is_inner")]
    pub header: Header,
    pub deleted: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prev_kvs: Vec<KeyValue>,
}

impl From<pb::DeleteRangeResponse> for Delete {
    fn from(response: pb::DeleteRangeResponse) -> Delete {
        Delete {
            header: response.header.into(),
            deleted: response.deleted,
            prev_kvs: key_values(response.prev_kvs),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Txn {
    #[serde(skip_serializing_if = "Header::is_inner")]
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<Response>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    Get(Get),
    Put(Put),
    Del(Delete),
    Txn(Txn),
}

impl From<pb::TxnResponse> for Txn {
    fn from(response: pb::TxnResponse) -> Txn {
        let responses = response
            .responses
            .into_iter()
            .filter_map(|op| op.response)
            .map(|response| match response {
                response_op::Response::ResponseRange(range) => Response::Get(range.into()),
                response_op::Response::ResponsePut(put) => Response::Put(put.into()),
                response_op::Response::ResponseDeleteRange(delete) => Response::Del(delete.into()),
                response_op::Response::ResponseTxn(txn) => Response::Txn(txn.into()),
            })
            .collect();
        Txn { header: response.header.into(), succeeded: response.succeeded, responses }
    }
}

/// One event of a watch.
#[derive(Debug, Serialize)]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub revision: i64,
    pub kv: KeyValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_kv: Option<KeyValue>,
}

impl From<mvccpb::Event> for Event {
    fn from(event: mvccpb::Event) -> Event {
        let kind = event.r#type().as_str_name();
        let kv = event.kv.unwrap_or_default();
        Event { kind, revision: kv.mod_revision, kv: kv.into(), prev_kv: event.prev_kv.map(KeyValue::from) }
    }
}

#[derive(Debug, Serialize)]
pub struct Progress {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub revision: i64,
}

#[derive(Debug, Serialize)]
pub struct Compact {
    pub header: Header,
    pub compacted: i64,
}

#[derive(Debug, Serialize)]
pub struct Grant {
    pub header: Header,
    pub id: String,
    pub ttl: u64,
}

/// One lease. As on etcd, one that is not there has -1 left.
#[derive(Debug, Serialize)]
pub struct Lease {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
    pub id: String,
    pub ttl: i64,
    pub left: i64,
    pub keys: Vec<Text>,
}

#[derive(Debug, Serialize)]
pub struct Renewal {
    pub id: String,
    /// Seconds that the server left of it; 0 when it is lost.
    pub ttl: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Revoked {
    pub header: Header,
    pub id: String,
}

/// One endpoint. Either the status, or the error that came instead.
#[derive(Debug, Serialize)]
pub struct Endpoint {
    pub endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Status {
    pub header: Header,
    pub version: String,
    pub storage_version: String,
    #[serde(serialize_with = "hex")]
    pub leader: u64,
    pub is_leader: bool,
    pub is_learner: bool,
    pub raft_index: u64,
    pub raft_applied_index: u64,
    pub db_size: i64,
    pub db_size_in_use: i64,
    pub db_size_quota: i64,
    pub errors: Vec<String>,
}

impl From<pb::StatusResponse> for Status {
    fn from(response: pb::StatusResponse) -> Status {
        let header = Header::from(response.header);
        Status {
            is_leader: response.leader != 0 && response.leader == header.member_id,
            header,
            version: response.version,
            storage_version: response.storage_version,
            leader: response.leader,
            is_learner: response.is_learner,
            raft_index: response.raft_index,
            raft_applied_index: response.raft_applied_index,
            db_size: response.db_size,
            db_size_in_use: response.db_size_in_use,
            db_size_quota: response.db_size_quota,
            errors: response.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_bytes_are_base64() {
        let kv = mvccpb::KeyValue {
            key: "k".into(),
            value: Bytes::from_static(b"\xff\x00"),
            mod_revision: 3,
            lease: -9,
            ..Default::default()
        };
        let json = serde_json::to_string(&KeyValue::from(kv)).expect("plain data");
        assert_eq!(
            json,
            r#"{"key":"k","value":{"base64":"/wA="},"create_revision":0,"mod_revision":3,"version":0,"lease":"fffffffffffffff7"}"#
        );
    }

    #[test]
    fn a_transaction_shows_which_operation_each_answer_is_for() {
        let put =
            pb::ResponseOp { response: Some(response_op::Response::ResponsePut(pb::PutResponse::default())) };
        let response = pb::TxnResponse { succeeded: true, responses: vec![put], ..Default::default() };
        let json = serde_json::to_value(Txn::from(response)).expect("plain data");
        assert_eq!(json["succeeded"], true);
        assert_eq!(json["responses"][0], serde_json::json!({ "put": {} }));
    }
}
