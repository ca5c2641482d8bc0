use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

/// Keys are never empty, and neither is the end of a span: from the wire they could not come otherwise.
fn range() -> impl Strategy<Value = KeyRange> {
    (bytes(), bytes()).prop_map(|(key, end)| KeyRange::new(key, end))
}

fn put() -> impl Strategy<Value = Put> {
    let lease = prop_oneof![any::<i64>().prop_map(|id| PutLease::Set(LeaseId(id))), Just(PutLease::Keep)];
    (bytes(), prop::option::of(bytes()), lease, any::<bool>()).prop_map(|(key, value, lease, prev)| Put {
        key,
        value,
        lease,
        prev,
    })
}

fn delete() -> impl Strategy<Value = DeleteRange> {
    (range(), any::<bool>()).prop_map(|(range, prev)| DeleteRange { range, prev })
}

fn read() -> impl Strategy<Value = Range> {
    let target = prop::sample::select(vec![
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ]);
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    (range(), any::<[i64; 6]>(), target, order, any::<[bool; 2]>()).prop_map(
        |(range, numbers, target, order, flags)| Range {
            range,
            revision: numbers[0],
            limit: numbers[1],
            sort: Sort { target, order },
            keys_only: flags[0],
            count_only: flags[1],
            mod_min: numbers[2],
            mod_max: numbers[3],
            create_min: numbers[4],
            create_max: numbers[5],
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        any::<i64>().prop_map(CompareTarget::Version),
        any::<i64>().prop_map(CompareTarget::Create),
        any::<i64>().prop_map(CompareTarget::Mod),
        bytes().prop_map(CompareTarget::Value),
        any::<i64>().prop_map(CompareTarget::Lease),
    ];
    let result = prop::sample::select(vec![
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ]);
    (range(), result, target).prop_map(|(range, result, target)| Compare { range, result, target })
}

fn txn() -> impl Strategy<Value = Txn> {
    let leaf =
        prop_oneof![put().prop_map(Op::Put), delete().prop_map(Op::DeleteRange), read().prop_map(Op::Range)];
    let op = leaf.prop_recursive(4, 16, 4, |inner| {
        (
            prop::collection::vec(compare(), 0..2),
            prop::collection::vec(inner.clone(), 0..3),
            prop::collection::vec(inner, 0..3),
        )
            .prop_map(|(compare, success, failure)| Op::Txn(Box::new(Txn { compare, success, failure })))
    });
    (
        prop::collection::vec(compare(), 0..3),
        prop::collection::vec(op.clone(), 0..4),
        prop::collection::vec(op, 0..4),
    )
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn step() -> impl Strategy<Value = LeaseStep> {
    (any::<[u64; 2]>(), prop::collection::btree_set(any::<i64>(), 0..20), any::<u32>(), any::<bool>())
        .prop_map(|([term, clock], renew, limit, last)| LeaseStep {
            stamp: Stamp { term, clock: Nanos(clock) },
            renew: renew.into_iter().map(LeaseId).collect(),
            limit,
            last,
        })
}

fn command() -> impl Strategy<Value = Command> {
    let alarm = prop::sample::select(vec![Alarm::NoSpace, Alarm::Corrupt]);
    let action = prop::sample::select(vec![AlarmAction::Activate, AlarmAction::Deactivate]);
    prop_oneof![
        Just(Command::Nothing),
        put().prop_map(Command::Put),
        delete().prop_map(Command::DeleteRange),
        txn().prop_map(Command::Txn),
        any::<i64>().prop_map(|revision| Command::Compact { revision: Revision(revision) }),
        any::<u32>().prop_map(|limit| Command::Scrub { limit }),
        (any::<[u64; 3]>(), any::<[i64; 2]>()).prop_map(|([term, clock, ttl], [id, parent])| Command::Grant(
            Grant {
                stamp: Stamp { term, clock: Nanos(clock) },
                id: LeaseId(id),
                ttl: Nanos(ttl),
                parent: LeaseId(parent),
            }
        )),
        any::<i64>().prop_map(|id| Command::Revoke { id: LeaseId(id) }),
        step().prop_map(Command::LeaseStep),
        any::<[u64; 2]>().prop_map(|[term, grace]| Command::TakeOver(TakeOver { term, grace: Nanos(grace) })),
        (action, any::<u64>(), alarm).prop_map(|(action, member, alarm)| Command::Alarm {
            action,
            member: MemberId(member),
            alarm
        }),
    ]
}

fn origin() -> impl Strategy<Value = Origin> {
    any::<[u64; 3]>().prop_map(|[member, incarnation, number]| Origin {
        member: MemberId(member),
        incarnation,
        number,
    })
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(
        origin in origin(),
        quota_bytes in any::<u64>(),
        command in command(),
        batches in prop::collection::vec(origin(), 0..3),
    ) {
        let batches = if matches!(command, Command::LeaseStep(_)) { batches } else { Vec::new() };
        let proposal = Proposal { origin, quota_bytes, command, batches };
        prop_assert_eq!(Proposal::decode(proposal.encode()), Ok(proposal));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Proposal::decode(data.into());
    }

    #[test]
    fn flipped_entries_are_read_without_a_panic(command in command(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let proposal =
            Proposal { origin: Origin::default(), quota_bytes: 0, command, batches: Vec::new() };
        let mut data = proposal.encode().to_vec();
        let at = at.index(data.len());
        data[at] ^= 1 << bit;
        let _ = Proposal::decode(data.into());
    }
}

#[test]
fn an_entry_of_a_newer_format_is_refused_by_name() {
    let mut data = Proposal {
        origin: Origin::default(),
        quota_bytes: 0,
        command: Command::Nothing,
        batches: Vec::new(),
    }
    .encode()
    .to_vec();
    data[0] = 9;
    assert_eq!(Proposal::decode(data.into()), Err(EntryError::NewerFormat(9)));
}

#[test]
fn ids_of_a_step_take_little_room() {
    let ids: Vec<LeaseId> = (0..1000).map(|n| LeaseId(0x7000_0000_0000_0000 + n * 90)).collect();
    assert!(ids_to_bytes(&ids).len() < 1100, "the distance of close ids is a byte");
    assert_eq!(ids_from_bytes(ids_to_bytes(&ids)), Ok(ids));
}
