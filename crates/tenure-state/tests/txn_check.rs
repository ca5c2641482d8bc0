//! Which keys a transaction may write, against the obvious way to find out.

use bytes::Bytes;
use proptest::prelude::*;
use tenure_state::command::{DeleteRange, Op, Put, PutLease, Txn};
use tenure_state::ids::LeaseId;
use tenure_state::key::KeyRange;
use tenure_state::txn::{TxnError, check};

const OPS_MAX: usize = 128;

fn put(key: impl Into<Bytes>) -> Op {
    let (value, lease) = (Some(Bytes::new()), PutLease::Set(LeaseId::NONE));
    Op::Put(Put { key: key.into(), value, lease, prev: false })
}

fn delete(range: KeyRange) -> Op {
    Op::DeleteRange(DeleteRange { range, prev: false })
}

fn then(success: Vec<Op>) -> Txn {
    Txn { success, ..Txn::default() }
}

fn nest(txn: Txn) -> Op {
    Op::Txn(Box::new(txn))
}

/// Keys of up to three letters out of two, so that they are often equal, beside each other or prefixes.
fn key() -> impl Strategy<Value = Bytes> {
    "[ab]{1,3}".prop_map(Bytes::from)
}

fn range() -> impl Strategy<Value = KeyRange> {
    let end = prop_oneof![Just(Bytes::new()), Just(Bytes::from_static(b"\0")), key()];
    (key(), end).prop_map(|(key, end)| KeyRange::new(key, end))
}

proptest! {
    #[test]
    fn a_put_is_refused_where_a_deletion_covers_its_key(
        outside in prop::collection::vec(range(), 0..6),
        inside in prop::collection::vec(prop::collection::vec(range(), 0..4), 0..4),
        key in key(),
    ) {
        let mut ops: Vec<Op> = outside.iter().cloned().map(delete).collect();
        // Alternately in the then and the else of what is nested.
        for (number, ranges) in inside.iter().enumerate() {
            let deletes = ranges.iter().cloned().map(delete).collect();
            ops.push(nest(match number % 2 {
                0 => then(deletes),
                _ => Txn { failure: deletes, ..Txn::default() },
            }));
        }
        // "From this key on" covers nothing here, as on etcd.
        let covers = |range: &KeyRange| !matches!(range, KeyRange::From(_)) && range.contains(&key);
        let is_covered = outside.iter().chain(inside.iter().flatten()).any(covers);
        ops.push(put(key));
        let expected = if is_covered { Err(TxnError::DuplicateKey) } else { Ok(()) };
        prop_assert_eq!(check(&then(ops), OPS_MAX), expected);
    }

    #[test]
    fn two_puts_of_a_key_are_refused_unless_only_one_is_taken(
        one in prop::collection::vec(key(), 0..4),
        other in prop::collection::vec(key(), 0..4),
        both_taken in any::<bool>(),
    ) {
        let puts = |keys: &[Bytes]| keys.iter().cloned().map(put).collect::<Vec<_>>();
        let ops = match both_taken {
            true => vec![nest(then(puts(&one))), nest(then(puts(&other)))],
            false => {
                vec![nest(Txn { success: puts(&one), failure: puts(&other), ..Txn::default() })]
            }
        };
        let is_twice = |keys: &[Bytes]| (1..keys.len()).any(|at| keys[..at].contains(&keys[at]));
        let refused = is_twice(&one)
            || is_twice(&other)
            || both_taken && one.iter().any(|key| other.contains(key));
        let expected = if refused { Err(TxnError::DuplicateKey) } else { Ok(()) };
        prop_assert_eq!(check(&then(ops), OPS_MAX), expected);
    }
}
