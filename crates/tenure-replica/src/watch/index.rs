//! Which groups of watchers want a key: the look-up that every event goes through.
//!
//! Nearly all watches in the field are on one key or on a prefix, so these two are looked up; their cost does not
//! depend on how many there are.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use rustc_hash::FxHasher;
use smallvec::SmallVec;
use tenure_state::key::KeyRange;

use super::group::GroupKey;

/// A range as the index files it. Owns its bytes: those of a request are slices of a network buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One(Arc<[u8]>),
    /// All keys that start with this.
    Prefix(Arc<[u8]>),
    From(Arc<[u8]>),
    Span(Arc<[u8]>, Arc<[u8]>),
}

impl Shape {
    pub(super) fn new(range: &KeyRange) -> Shape {
        match range {
            KeyRange::One(key) => Shape::One(Arc::from(key.as_ref())),
            KeyRange::From(start) => Shape::From(Arc::from(start.as_ref())),
            KeyRange::Span { start, end } if is_prefix(start, end) => {
                Shape::Prefix(Arc::from(start.as_ref()))
            }
            KeyRange::Span { start, end } => Shape::Span(Arc::from(start.as_ref()), Arc::from(end.as_ref())),
        }
    }
}

/// Whether `[start, end)` is exactly the keys that start with `start`.
fn is_prefix(start: &[u8], end: &[u8]) -> bool {
    // The end of a prefix is the prefix with its last byte raised by one; a last byte 0xff carries.
    let raised = start.iter().rposition(|byte| *byte != 0xff);
    raised.is_some_and(|last| {
        end.len() == last + 1 && end[..last] == start[..last] && end[last] == start[last] + 1
    })
}

/// The groups of one range; they differ in what they filter and show.
type Groups = SmallVec<[GroupKey; 2]>;
type ByKey<T> = BTreeMap<Arc<[u8]>, T>;

#[derive(Default)]
pub(super) struct Index {
    ones: Ones,
    prefixes: ByKey<Groups>,
    froms: ByKey<Groups>,
    /// By start, then by end.
    spans: ByKey<ByKey<Groups>>,
}

impl Index {
    pub(super) fn groups(&self, shape: &Shape) -> &[GroupKey] {
        let groups = match shape {
            Shape::One(key) => self.ones.get(key),
            Shape::Prefix(prefix) => self.prefixes.get(prefix),
            Shape::From(start) => self.froms.get(start),
            Shape::Span(start, end) => self.spans.get(start).and_then(|ends| ends.get(end)),
        };
        groups.map_or(&[], |groups| groups.as_slice())
    }

    pub(super) fn insert(&mut self, shape: &Shape, group: GroupKey) {
        let groups = match shape.clone() {
            Shape::One(key) => self.ones.get_or_insert(key),
            Shape::Prefix(prefix) => self.prefixes.entry(prefix).or_default(),
            Shape::From(start) => self.froms.entry(start).or_default(),
            Shape::Span(start, end) => self.spans.entry(start).or_default().entry(end).or_default(),
        };
        groups.push(group);
    }

    pub(super) fn remove(&mut self, shape: &Shape, group: GroupKey) {
        match shape {
            Shape::One(key) => self.ones.remove(key, group),
            Shape::Prefix(prefix) => remove_from(&mut self.prefixes, prefix, group),
            Shape::From(start) => remove_from(&mut self.froms, start, group),
            Shape::Span(start, end) => {
                if let Some(ends) = self.spans.get_mut(start) {
                    remove_from(ends, end, group);
                    if ends.is_empty() {
                        self.spans.remove(start);
                    }
                }
            }
        }
    }

    /// Calls `found` with each group whose range holds `key`.
    pub(super) fn matches(&self, key: &[u8], mut found: impl FnMut(GroupKey)) {
        let mut all = |groups: &Groups| groups.iter().for_each(|group| found(*group));
        if let Some(groups) = self.ones.get(key) {
            all(groups);
        }
        self.prefixes_of(key, &mut all);
        self.froms.range::<[u8], _>((Unbounded, Included(key))).for_each(|(_, groups)| all(groups));
        for (_, ends) in self.spans.range::<[u8], _>((Unbounded, Included(key))) {
            ends.range::<[u8], _>((Excluded(key), Unbounded)).for_each(|(_, groups)| all(groups));
        }
    }

    /// Walks down from `key` to its shorter and shorter prefixes. Where the greatest prefix that is not above the
    /// probe does not match, nothing longer than what the two have in common does either; so the walk takes one
    /// step for each match and few more, whatever lengths clients choose.
    fn prefixes_of(&self, key: &[u8], found: &mut impl FnMut(&Groups)) {
        let mut probe = key;
        while let Some((prefix, groups)) =
            self.prefixes.range::<[u8], _>((Unbounded, Included(probe))).next_back()
        {
            let common = prefix.iter().zip(probe).take_while(|(a, b)| a == b).count();
            if common == prefix.len() {
                found(groups);
                if common == 0 {
                    return;
                }
                probe = &key[..common - 1];
            } else {
                probe = &key[..common];
            }
        }
    }
}

/// Single keys by their hash, in an ordered map: a step down compares numbers that stand side by side instead of
/// following pointers to keys. A client that makes its keys collide on purpose gains nothing, for a bucket is
/// searched by halves.
#[derive(Default)]
struct Ones {
    buckets: BTreeMap<u64, Bucket>,
}

/// In ascending order of keys.
type Bucket = SmallVec<[(Arc<[u8]>, Groups); 1]>;

fn hash(key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    hasher.finish()
}

fn place_in(bucket: &Bucket, key: &[u8]) -> Result<usize, usize> {
    bucket.binary_search_by(|(other, _)| other.as_ref().cmp(key))
}

impl Ones {
    fn get(&self, key: &[u8]) -> Option<&Groups> {
        let bucket = self.buckets.get(&hash(key))?;
        let place = place_in(bucket, key).ok()?;
        Some(&bucket[place].1)
    }

    fn get_or_insert(&mut self, key: Arc<[u8]>) -> &mut Groups {
        let bucket = self.buckets.entry(hash(&key)).or_default();
        let place = place_in(bucket, &key).unwrap_or_else(|place| {
            bucket.insert(place, (key, Groups::new()));
            place
        });
        &mut bucket[place].1
    }

    fn remove(&mut self, key: &[u8], group: GroupKey) {
        let hash = hash(key);
        let Some(bucket) = self.buckets.get_mut(&hash) else { return };
        let Ok(place) = place_in(bucket, key) else { return };
        bucket[place].1.retain(|other| *other != group);
        if bucket[place].1.is_empty() {
            bucket.remove(place);
        }
        if bucket.is_empty() {
            self.buckets.remove(&hash);
        }
    }
}

fn remove_from(map: &mut ByKey<Groups>, key: &Arc<[u8]>, group: GroupKey) {
    if let Some(groups) = map.get_mut(key) {
        groups.retain(|other| *other != group);
        if groups.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_is_recognised_by_its_end() {
        assert!(is_prefix(b"a", b"b"));
        assert!(is_prefix(b"a/b", b"a/c"));
        assert!(is_prefix(b"a\xff", b"b"));
        assert!(!is_prefix(b"a\xff", b"a\xff\xff"));
        assert!(!is_prefix(b"a", b"c"));
        assert!(!is_prefix(b"a", b"b\0"));
        assert!(!is_prefix(b"\xff", b"\xff\xff"));
        assert!(!is_prefix(b"", b""));
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 0xfe, 0xff]), 0..5)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        let prefix = key().prop_map(|start| {
            let mut end = start.clone();
            while end.pop_if(|byte| *byte == 0xff).is_some() {}
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            (start, end)
        });
        prop_oneof![prefix, (key(), key()), (key(), Just(vec![0])), (key(), Just(vec![]))]
            .prop_map(|(start, end)| KeyRange::new(Bytes::from(start), Bytes::from(end)))
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut bucket = Bucket::new();
        for key in [&b"b"[..], b"a", b"c", b"ab"] {
            let place = place_in(&bucket, key).expect_err("it is new");
            bucket.insert(place, (Arc::from(key), Groups::new()));
        }
        let keys: Vec<&[u8]> = bucket.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, [&b"a"[..], b"ab", b"b", b"c"]);
        assert_eq!(place_in(&bucket, b"b"), Ok(2));
        assert_eq!(place_in(&bucket, b"aa"), Err(1));
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_of_all_ranges_finds(
            ranges in prop::collection::vec((range(), any::<bool>()), 0..40),
            keys in prop::collection::vec(key(), 1..20),
        ) {
            let mut index = Index::default();
            for (group, (range, _)) in ranges.iter().enumerate() {
                index.insert(&Shape::new(range), group as GroupKey);
            }
            for (group, (range, stays)) in ranges.iter().enumerate() {
                if !stays {
                    index.remove(&Shape::new(range), group as GroupKey);
                }
            }
            for key in keys {
                let mut found = Vec::new();
                index.matches(&key, |group| found.push(group));
                found.sort_unstable();
                let wanted: Vec<GroupKey> = (0..ranges.len())
                    .filter(|group| ranges[*group].1 && ranges[*group].0.contains(&key))
                    .map(|group| group as GroupKey)
                    .collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
