use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tenure_proto::etcdserverpb::kv_client::KvClient;
use tenure_replica::Input;
use tenure_replica::effect::{Answer, RangePage, TxnPage};
use tenure_replica::input::{Read, Ticket, Write};
use tenure_state::applied::{DeleteReply, Reply};
use tenure_state::ids::{LeaseId, RevisionAt};
use tonic::Code;

use super::*;
use crate::edge::Limits;
use crate::edge::fake::{Fake, header};

const KEYS: usize = 10;

fn record(number: usize) -> Arc<Record> {
    Arc::new(Record {
        key: Bytes::from(format!("k{number:06}")),
        value: Bytes::from(vec![b'v'; 93]),
        create: Revision(2),
        at: RevisionAt { main: Revision(2), sub: number as u32 },
        version: 1,
        lease: LeaseId::NONE,
    })
}

/// A store of [`KEYS`] keys that hands out a key a page, and what it was told to forget.
fn store(reply_bytes_max: usize) -> (Fake, Arc<Mutex<Vec<Ticket>>>) {
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&forgotten);
    let mut sent = 0;
    let mut ranges = None;
    let limits = Limits { reply_bytes_max, ..Limits::default() };
    let fake = Fake::limited(limits, move |input| {
        match input {
            Input::Read { read, .. } => {
                sent = 0;
                ranges = match read {
                    Read::Range(_) => None,
                    Read::Txn(txn) => Some(txn.success.len()),
                    other => panic!("only ranges and transactions, not {other:?}"),
                };
            }
            Input::NextPage { .. } => {}
            Input::Forget { ticket } => {
                heard.lock().expect("no panic").push(ticket);
                return None;
            }
            Input::Write { write: Write::DeleteRange(_), .. } => {
                let prevs = (0..KEYS).map(record).collect();
                let reply = DeleteReply { revision: Revision(3), deleted: KEYS as i64, prevs };
                return Some(Ok((header(40), Answer::Applied(Reply::DeleteRange(reply)))));
            }
            other => panic!("only reads, not {other:?}"),
        }
        let count = (sent % KEYS == KEYS - 1).then_some(KEYS as i64);
        let page = RangePage { records: vec![record(sent % KEYS)], at: Revision(40), count };
        sent += 1;
        let answer = match ranges {
            None => Answer::Page(page),
            Some(ranges) => {
                let done = sent == ranges * KEYS;
                Answer::Txn(TxnPage { at: Revision(40), succeeded: true, ranges: vec![page], done })
            }
        };
        Some(Ok((header(40), answer)))
    });
    (fake, forgotten)
}

fn txn(range: &pb::RangeRequest, ranges: usize) -> pb::TxnRequest {
    let op = pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(range.clone())) };
    pb::TxnRequest { success: vec![op; ranges], ..Default::default() }
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_while_it_is_collected() {
    let key_bytes = size_of::<mvccpb::KeyValue>() + 100;
    // Ten keys fit and eleven do not.
    let (fake, forgotten) = store(key_bytes * KEYS);
    let mut kv = KvClient::new(fake.serve().await);
    assert_eq!(kv.range(all()).await.expect("it just fits").into_inner().kvs.len(), KEYS);
    kv.txn(txn(&all(), 1)).await.expect("it just fits");
    let (bytes, bytes_max) = (key_bytes * (KEYS + 1), key_bytes * KEYS);
    let refused = kv.txn(txn(&all(), 2)).await.expect_err("it does not fit");
    let text = format!("grpc: trying to send message larger than max ({bytes} vs. {bytes_max})");
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, text.as_str()));
    wait_for(&forgotten, 1).await;
    // What the limit cuts off weighs nothing, and what is not shown neither.
    let newest = pb::RangeRequest { limit: 1, sort_order: 2, sort_target: 3, ..all() };
    let answer = kv.txn(txn(&newest, 10)).await.expect("it just fits").into_inner();
    assert_eq!(answer.responses.len(), 10);
    let (fake, forgotten) = store(key_bytes * KEYS - 1);
    let mut kv = KvClient::new(fake.serve().await);
    let refused = kv.range(all()).await.expect_err("it does not fit");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let deletion = pb::DeleteRangeRequest { key: "k".into(), prev_kv: true, ..Default::default() };
    let refused = kv.delete_range(deletion).await.expect_err("it does not fit");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let bare = pb::RangeRequest { keys_only: true, ..all() };
    assert_eq!(kv.range(bare).await.expect("it fits").into_inner().kvs.len(), KEYS);
    assert!(forgotten.lock().expect("no panic").is_empty(), "both came to their end");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_transaction() {
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&forgotten);
    let fake = Fake::new(move |input| {
        if let Input::Forget { ticket } = input {
            heard.lock().expect("no panic").push(ticket);
        }
        None
    });
    let mut kv = KvClient::new(fake.serve().await);
    for left in 1..3 {
        let asked = async {
            match left {
                1 => drop(kv.txn(txn(&all(), 2)).await),
                _ => drop(kv.range(all()).await),
            }
        };
        tokio::time::timeout(Duration::from_millis(100), asked).await.expect_err("nobody answers");
        wait_for(&forgotten, left).await;
    }
}

async fn wait_for(forgotten: &Mutex<Vec<Ticket>>, count: usize) {
    for _ in 0..500 {
        if forgotten.lock().expect("no panic").len() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was not told to forget");
}
