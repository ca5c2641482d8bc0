//! The keys on one lease. Nearly all leases have one key or none, so these cost no allocation.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bytes::Bytes;

/// None, one or many. The first and the last share a variant, because a third one would not fit into the
/// unused bit patterns of `Bytes` and cost each lease eight bytes more.
pub(super) enum Keys {
    One(Bytes),
    #[expect(clippy::box_collection, reason = "a set inside the lease would make all leases larger")]
    Other(Option<Box<BTreeSet<Bytes>>>),
}

impl Keys {
    pub const NONE: Keys = Keys::Other(None);

    pub fn len(&self) -> usize {
        match self {
            Keys::Other(None) => 0,
            Keys::One(_) => 1,
            Keys::Other(Some(many)) => many.len(),
        }
    }

    /// Does nothing if the key is there already.
    pub fn insert(&mut self, key: Bytes) {
        match self {
            Keys::Other(None) => *self = Keys::One(key),
            Keys::One(one) if *one == key => {}
            Keys::One(one) => {
                *self = Keys::Other(Some(Box::new(BTreeSet::from([core::mem::take(one), key]))));
            }
            Keys::Other(Some(many)) => {
                many.insert(key);
            }
        }
    }

    /// Whether the key was there.
    pub fn remove(&mut self, key: &Bytes) -> bool {
        match self {
            Keys::Other(None) => false,
            Keys::One(one) if one == key => {
                *self = Keys::NONE;
                true
            }
            Keys::One(_) => false,
            Keys::Other(Some(many)) => {
                let removed = many.remove(key);
                if many.len() == 1 {
                    *self = Keys::One(many.pop_first().expect("it has one"));
                }
                removed
            }
        }
    }

    /// In ascending order.
    pub fn to_vec(&self) -> Vec<Bytes> {
        match self {
            Keys::Other(None) => Vec::new(),
            Keys::One(one) => Vec::from([one.clone()]),
            Keys::Other(Some(many)) => many.iter().cloned().collect(),
        }
    }

    /// The first `limit` in ascending order.
    pub fn first(&self, limit: usize) -> Vec<Bytes> {
        match self {
            Keys::Other(Some(many)) => many.iter().take(limit).cloned().collect(),
            few => few.to_vec(),
        }
    }

    /// In ascending order.
    pub fn into_vec(self) -> Vec<Bytes> {
        match self {
            Keys::Other(None) => Vec::new(),
            Keys::One(one) => Vec::from([one]),
            Keys::Other(Some(many)) => many.into_iter().collect(),
        }
    }
}
