use bytes::Bytes;
use tenure_replica::Input;
use tenure_replica::effect::{Answer, Failure};
use tenure_replica::input::Read;
use tenure_state::ids::{LeaseId, Revision, RevisionAt};
use tenure_state::refusal::Refusal;
use tokio_stream::StreamExt;

use super::*;
use crate::edge::fake::{Fake, header};
use crate::edge::{Limits, from_proto};

const PAGE_KEYS: usize = 7;

fn record(number: usize, value_bytes: usize) -> Arc<Record> {
    Arc::new(Record {
        key: Bytes::from(format!("k{number:06}")),
        value: Bytes::from(vec![b'v'; value_bytes]),
        create: Revision(2),
        at: RevisionAt { main: Revision(2), sub: 0 },
        version: 1,
        lease: LeaseId::NONE,
    })
}

/// A store of `keys` keys that hands out pages; the header moves on while it does.
fn paging(keys: usize, value_bytes: usize, limits: Limits) -> Fake {
    let mut sent = 0;
    let mut limit = usize::MAX;
    let mut revision = 40;
    Fake::limited(limits, move |input| {
        match input {
            Input::Read { read: Read::Range(range), .. } => {
                sent = 0;
                limit =
                    usize::try_from(range.limit).ok().filter(|limit| *limit > 0).unwrap_or(keys).min(keys);
            }
            Input::NextPage { .. } => {}
            Input::Forget { .. } => return None,
            other => panic!("only ranges, not {other:?}"),
        }
        let end = (sent + PAGE_KEYS).min(limit);
        let records = (sent..end).map(|number| record(number, value_bytes)).collect();
        sent = end;
        let count = (sent == limit).then_some(keys as i64);
        revision += 1;
        Some(Ok((header(revision), Answer::Page(RangePage { records, at: Revision(40), count }))))
    })
}

async fn chunks(fake: &Fake, request: pb::RangeRequest) -> Vec<pb::RangeResponse> {
    let request = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..request };
    let range = from_proto::range_stream(request).expect("a valid request");
    let mut stream = RangeStream::new(&fake.ctx, range, Consistency::Linearizable);
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk.expect("no error").range_response.expect("every chunk is filled"));
    }
    chunks
}

/// The chunks are disjoint, in order, and only the last one says how it stands.
fn check(chunks: &[pb::RangeResponse], keys: usize, count: i64, more: bool) {
    let (last, others) = chunks.split_last().expect("at least one chunk");
    for chunk in others {
        assert!(!chunk.kvs.is_empty());
        assert_eq!((&chunk.header, chunk.more, chunk.count), (&None, false, 0));
    }
    let header = last.header.expect("the last chunk has the header");
    assert_eq!((header.revision, last.count, last.more), (40, count, more));
    let sent: Vec<_> = chunks.iter().flat_map(|chunk| &chunk.kvs).map(|kv| kv.key.clone()).collect();
    let expected: Vec<_> = (0..keys).map(|number| Bytes::from(format!("k{number:06}"))).collect();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn chunks_start_at_ten_keys_and_double() {
    let fake = paging(100, 1, Limits::default());
    let chunks = chunks(&fake, pb::RangeRequest::default()).await;
    check(&chunks, 100, 100, false);
    let sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.kvs.len()).collect();
    assert_eq!(sizes, [10, 20, 40, 30]);
}

#[tokio::test]
async fn the_last_full_chunk_is_known_to_be_the_last() {
    for keys in [1, 9, 10, 11, 30, 70] {
        check(
            &chunks(&paging(keys, 1, Limits::default()), pb::RangeRequest::default()).await,
            keys,
            keys as i64,
            false,
        );
    }
    let ten = chunks(&paging(10, 1, Limits::default()), pb::RangeRequest::default()).await;
    assert_eq!(ten.len(), 1);
}

#[tokio::test]
async fn an_empty_range_is_one_empty_chunk() {
    let chunks = chunks(&paging(0, 1, Limits::default()), pb::RangeRequest::default()).await;
    check(&chunks, 0, 0, false);
    assert_eq!(chunks.len(), 1);
}

#[tokio::test]
async fn a_limit_and_a_count_are_obeyed() {
    let limited = pb::RangeRequest { limit: 25, ..Default::default() };
    check(&chunks(&paging(100, 1, Limits::default()), limited).await, 25, 100, true);
    let exact = pb::RangeRequest { limit: 100, ..Default::default() };
    check(&chunks(&paging(100, 1, Limits::default()), exact).await, 100, 100, false);
    let count = pb::RangeRequest { count_only: true, limit: 3, ..Default::default() };
    check(&chunks(&paging(100, 1, Limits::default()), count).await, 0, 100, false);
}

#[tokio::test]
async fn a_chunk_stays_below_the_size_of_a_request() {
    let limits = Limits { max_request_bytes: 10_000, ..Limits::default() };
    let large = chunks(&paging(50, 3_000, limits), pb::RangeRequest::default()).await;
    check(&large, 50, 50, false);
    assert!(large.iter().all(|chunk| chunk.kvs.len() <= 3));

    // Larger than a chunk by itself: it goes alone.
    let huge = chunks(&paging(5, 20_000, limits), pb::RangeRequest::default()).await;
    check(&huge, 5, 5, false);
    assert_eq!(huge.len(), 5);

    // Values that are not shown do not weigh anything.
    let keys = pb::RangeRequest { keys_only: true, ..Default::default() };
    assert_eq!(chunks(&paging(10, 3_000, limits), keys).await.len(), 1);
}

#[tokio::test]
async fn a_refusal_ends_the_stream() {
    let fake = Fake::failing(Failure::Refused(Refusal::Compacted));
    let range = from_proto::range_stream(pb::RangeRequest { key: "k".into(), ..Default::default() });
    let mut stream = RangeStream::new(&fake.ctx, range.expect("a valid request"), Consistency::Serializable);
    let status = stream.next().await.expect("an end").expect_err("an error");
    assert_eq!(status.message(), "etcdserver: mvcc: required revision has been compacted");
    assert!(stream.next().await.is_none());
}
