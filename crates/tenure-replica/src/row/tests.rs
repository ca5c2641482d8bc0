//! Rows there and back.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), len).prop_map(Bytes::from)
}

fn at() -> impl Strategy<Value = RevisionAt> {
    (any::<i64>(), any::<u32>()).prop_map(|(main, sub)| RevisionAt { main: Revision(main), sub })
}

prop_compose! {
    fn record()(
        key in bytes(0..600), value in bytes(0..600), create: i64, at in at(), version: i64, lease: i64,
    ) -> Record {
        Record { key, value, create: Revision(create), at, version, lease: LeaseId(lease) }
    }
}

prop_compose! {
    fn lease()(id: i64, times: [u64; 4], parent: i64, depth: u32) -> LeaseRow {
        let [ttl, deadline, base, granted] = times.map(Nanos);
        LeaseRow { id: LeaseId(id), ttl, deadline, base, granted, parent: LeaseId(parent), depth }
    }
}

prop_compose! {
    fn head()(
        numbers: [u64; 4], revision: i64, compacted: i64, scrubbed in at(),
        alarms in prop::collection::vec((any::<u64>(), any::<bool>()), 0..4),
    ) -> Head {
        let [row_count, term, applied, clock] = numbers;
        let alarm = |no_space| if no_space { Alarm::NoSpace } else { Alarm::Corrupt };
        let meta = Meta {
            applied,
            clock: Nanos(clock),
            revision: Revision(revision),
            compacted: Revision(compacted),
            scrubbed,
            alarms: alarms.into_iter().map(|(member, kind)| (MemberId(member), alarm(kind))).collect(),
        };
        Head { meta, term, row_count }
    }
}

prop_compose! {
    fn membership()(
        lists in prop::array::uniform4(prop::collection::vec(any::<u64>(), 0..5)), auto_leave: bool,
    ) -> Membership {
        let [voters, learners, voters_outgoing, learners_next] = lists;
        Membership { voters, learners, voters_outgoing, learners_next, auto_leave }
    }
}

/// A row as a store would hold it, and what it is.
fn stored() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Row)> {
    let change = |change: Change, row: Row| {
        let value = encode_change(&change).expect("it is not a deletion");
        (RowKey::of(&change).encode().to_vec(), value, row)
    };
    prop_oneof![
        record().prop_map(move |record| {
            let row = Row::Record(record.clone());
            change(Change::Record(Arc::new(record)), row)
        }),
        lease().prop_map(move |lease| change(Change::Lease(lease), Row::Lease(lease))),
        head().prop_map(|head| (RowKey::Head.encode().to_vec(), encode_head(&head), Row::Head(head))),
        membership().prop_map(|members| {
            let key = RowKey::Membership.encode().to_vec();
            (key, encode_membership(&members), Row::Membership(members))
        }),
        any::<[u64; 2]>().prop_map(|[cluster, member]| {
            let origin = Origin { cluster, member };
            let row = Row::Format { format: FORMAT, origin };
            (RowKey::Format.encode().to_vec(), encode_format(origin), row)
        }),
    ]
}

fn key() -> impl Strategy<Value = RowKey> {
    prop_oneof![
        Just(RowKey::Format),
        Just(RowKey::Head),
        Just(RowKey::Membership),
        at().prop_map(RowKey::Record),
        any::<i64>().prop_map(|id| RowKey::Lease(LeaseId(id))),
    ]
}

proptest! {
    #[test]
    fn a_row_is_read_as_it_was_written((key, value, row) in stored()) {
        prop_assert_eq!(decode(&key, &value), Ok(row));
        prop_assert!(key.len() <= 511);
    }

    #[test]
    fn a_flipped_bit_is_noticed((mut key, mut value, row) in stored(), place: prop::sample::Index, bit in 0..8) {
        let at = place.index(key.len() + value.len());
        match at.checked_sub(key.len()) {
            None => key[at] ^= 1_u8 << bit,
            Some(at) => value[at] ^= 1_u8 << bit,
        }
        prop_assert!(decode(&key, &value).is_err(), "read as {:?}, was {row:?}", decode(&key, &value));
    }

    #[test]
    fn a_row_that_is_cut_is_noticed((key, value, _) in stored(), place: prop::sample::Index) {
        prop_assert!(decode(&key, &value[..place.index(value.len())]).is_err());
    }

    #[test]
    fn keys_sort_as_what_they_name(left in key(), right in key()) {
        prop_assert_eq!(left.cmp(&right), left.encode().cmp(&right.encode()));
        prop_assert_eq!(RowKey::decode(&left.encode()), Ok(left));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(key in bytes(0..20), value in bytes(0..80)) {
        let _ = decode(&key, &value);
    }
}

#[test]
fn rows_of_a_newer_format_are_refused_by_name() {
    let mut content = Vec::new();
    put_u32(&mut content, FORMAT + 1);
    let key = RowKey::Format.encode();
    assert_eq!(decode(&key, &seal(&key, content)), Err(RowError::NewerFormat { found: FORMAT + 1 }));
}
