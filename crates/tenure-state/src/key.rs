//! Ranges of keys, normalised once, before anything compares, watches or permits them.

use bytes::Bytes;

/// A set of adjoining keys. Built once from a `(key, range_end)` pair, so that the store, watches and
/// permissions can never read the same pair differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyRange {
    /// Exactly this key.
    One(Bytes),
    /// `start <= key < end`. Empty when `start >= end`, which is not an error on etcd's API.
    Span { start: Bytes, end: Bytes },
    /// Every key from this one on.
    From(Bytes),
}

impl KeyRange {
    /// Reads etcd's pair: no `range_end` is one key, a single zero byte is "from the key on".
    pub fn new(key: Bytes, range_end: Bytes) -> KeyRange {
        if range_end.is_empty() {
            KeyRange::One(key)
        } else if range_end.as_ref() == [0] {
            KeyRange::From(key)
        } else {
            KeyRange::Span { start: key, end: range_end }
        }
    }

    /// The first key that may be in the range.
    pub fn start(&self) -> &Bytes {
        match self {
            KeyRange::One(key) | KeyRange::From(key) | KeyRange::Span { start: key, .. } => key,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, KeyRange::Span { start, end } if start >= end)
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::One(one) => one.as_ref() == key,
            KeyRange::Span { start, end } => start.as_ref() <= key && key < end.as_ref(),
            KeyRange::From(start) => start.as_ref() <= key,
        }
    }
}
