//! Puts and deletions, and what they do to revisions, versions and headers.

use bytes::Bytes;
use tenure_proto::etcdserverpb as pb;
use tonic::Code;

use super::served::{Served, check, delete_of, get, put, put_of};

#[tokio::test]
async fn a_fresh_store_is_at_revision_one() {
    let served = Served::start().await;
    let answer = get(&mut served.kv(), "k").await;
    let header = answer.header.expect("a header");
    assert_eq!((header.revision, answer.count, answer.more), (1, 0, false));
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term > 0, "{header:?}");
    assert!(answer.kvs.is_empty());
}

#[tokio::test]
async fn every_write_that_changes_a_key_is_one_revision() {
    let served = Served::start().await;
    let mut kv = served.kv();
    assert_eq!(put(&mut kv, "k", "1").await, 2);
    assert_eq!(put(&mut kv, "k", "2").await, 3);
    // Nothing to delete, nothing changed.
    let nothing = kv.delete_range(delete_of("x", "")).await.expect("a deletion").into_inner();
    assert_eq!((nothing.header.expect("a header").revision, nothing.deleted), (3, 0));
    let gone = kv.delete_range(delete_of("k", "")).await.expect("a deletion").into_inner();
    assert_eq!((gone.header.expect("a header").revision, gone.deleted), (4, 1));
    assert_eq!(get(&mut kv, "k").await.header.expect("a header").revision, 4);
}

#[tokio::test]
async fn a_key_counts_its_versions_from_its_creation() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for (value, create, version) in [("a", 2, 1), ("b", 2, 2), ("", 2, 3)] {
        let revision = put(&mut kv, "k", value).await;
        let answer = get(&mut kv, "k").await;
        let [record] = &answer.kvs[..] else { panic!("one key, not {answer:?}") };
        assert_eq!(
            (record.create_revision, record.mod_revision, record.version, &record.value[..]),
            (create, revision, version, value.as_bytes())
        );
    }
    kv.delete_range(delete_of("k", "")).await.expect("a deletion");
    put(&mut kv, "k", "again").await;
    let answer = get(&mut kv, "k").await;
    assert_eq!((answer.kvs[0].create_revision, answer.kvs[0].version), (6, 1));
}

#[tokio::test]
async fn the_version_before_is_answered_if_asked_for() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let asking = || pb::PutRequest { prev_kv: true, ..put_of("k", "new") };
    let first = kv.put(asking()).await.expect("a put").into_inner();
    assert_eq!(first.prev_kv, None, "there was none");
    let second = kv.put(asking()).await.expect("a put").into_inner();
    let prev = second.prev_kv.expect("the first one");
    assert_eq!((prev.mod_revision, prev.version, &prev.value[..]), (2, 1, &b"new"[..]));
    let silent = kv.put(put_of("k", "x")).await.expect("a put").into_inner();
    assert_eq!(silent.prev_kv, None, "nobody asked");

    for key in ["c", "a", "b"] {
        put(&mut kv, key, key).await;
    }
    let asking = pb::DeleteRangeRequest { prev_kv: true, ..delete_of("a", "d") };
    let gone = kv.delete_range(asking).await.expect("a deletion").into_inner();
    let keys: Vec<&[u8]> = gone.prev_kvs.iter().map(|kv| &kv.key[..]).collect();
    assert_eq!((gone.deleted, keys), (3, vec![&b"a"[..], b"b", b"c"]), "in key order");
}

#[tokio::test]
async fn value_and_lease_can_be_kept() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let lease = served.grant(60).await;
    let keep_value = || pb::PutRequest { ignore_value: true, ..put_of("k", "") };
    let keep_lease = || pb::PutRequest { ignore_lease: true, ..put_of("k", "new") };
    let missing = "etcdserver: key not found";
    check(kv.put(keep_value()).await, Code::InvalidArgument, missing);
    check(kv.put(keep_lease()).await, Code::InvalidArgument, missing);

    kv.put(pb::PutRequest { lease, ..put_of("k", "old") }).await.expect("a put");
    kv.put(keep_lease()).await.expect("a put");
    let record = get(&mut kv, "k").await.kvs.remove(0);
    assert_eq!((record.lease, &record.value[..], record.version), (lease, &b"new"[..], 2));
    kv.put(keep_value()).await.expect("a put");
    let record = get(&mut kv, "k").await.kvs.remove(0);
    assert_eq!((record.lease, &record.value[..], record.version), (0, &b"new"[..], 3));
}

#[tokio::test]
async fn a_put_on_a_lease_that_does_not_live_writes_nothing() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for lease in [999, -999, i64::MIN] {
        let refused = kv.put(pb::PutRequest { lease, ..put_of("k", "v") }).await;
        check(refused, Code::NotFound, "etcdserver: requested lease not found");
    }
    assert_eq!(get(&mut kv, "k").await.header.expect("a header").revision, 1);
}

#[tokio::test]
async fn deletions_take_the_ranges_that_reads_take() {
    let served = Served::start().await;
    let mut kv = served.kv();
    for (key, range_end, left) in [
        ("b", "", vec!["a", "c", "d"]),
        ("b", "d", vec!["a", "d"]),
        ("b", "\0", vec!["a"]),
        ("\0", "\0", vec![]),
        ("d", "b", vec!["a", "b", "c", "d"]),
    ] {
        for key in ["a", "b", "c", "d"] {
            put(&mut kv, key, "v").await;
        }
        let gone = kv.delete_range(delete_of(key, range_end)).await.expect("a deletion").into_inner();
        assert_eq!(gone.deleted as usize, 4 - left.len(), "{key} to {range_end}");
        assert_eq!(served.keys().await, left, "{key} to {range_end}");
    }
}

#[tokio::test]
async fn any_bytes_are_a_key() {
    let served = Served::start().await;
    let mut kv = served.kv();
    let keys: [&'static [u8]; 4] = [b"\0", b"\0\0", b"\xff\xff", "ключ".as_bytes()];
    for key in keys {
        let key = Bytes::from_static(key);
        kv.put(pb::PutRequest { key: key.clone(), value: key, ..Default::default() }).await.expect("a put");
    }
    for key in keys {
        let key = Bytes::from_static(key);
        let request = pb::RangeRequest { key: key.clone(), ..Default::default() };
        let answer = kv.range(request).await.expect("a range").into_inner();
        assert_eq!((answer.kvs.len(), &answer.kvs[0].value), (1, &key));
    }
}
