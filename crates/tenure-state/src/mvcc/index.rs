//! Which versions each key has, oldest first.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::sync::Arc;
use core::ops::Bound;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::ids::Revision;
use crate::key::KeyRange;
use crate::record::Record;

/// Never empty, in ascending order, without a gap except at the front, where compaction drops. Most keys have
/// one version, which is kept in place.
pub(super) type Versions = SmallVec<[Arc<Record>; 1]>;

#[derive(Default)]
pub(super) struct Index {
    keys: BTreeMap<Bytes, Versions>,
}

impl Index {
    pub fn versions(&self, key: &[u8]) -> Option<&Versions> {
        self.keys.get(key)
    }

    /// Adds the newest version of its key, unless it cannot follow the one before. Returns it and that one. All
    /// records of one key come to share the bytes of the key.
    pub fn push(&mut self, mut record: Record) -> Result<(Arc<Record>, Option<Arc<Record>>), &'static str> {
        match self.keys.entry(record.key.clone()) {
            Entry::Occupied(mut entry) => {
                record.key = entry.key().clone();
                let before = Arc::clone(entry.get().last().expect("versions are never empty"));
                follows(Some(&before), &record)?;
                let record = Arc::new(record);
                entry.get_mut().push(Arc::clone(&record));
                Ok((record, Some(before)))
            }
            Entry::Vacant(entry) => {
                follows(None, &record)?;
                let record = Arc::new(record);
                entry.insert(SmallVec::from_buf([Arc::clone(&record)]));
                Ok((record, None))
            }
        }
    }

    /// The keys of `range` from `from` on, in order, living or not.
    pub fn range<'a>(
        &'a self,
        range: &KeyRange,
        from: Option<&Bytes>,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Versions)> + use<'a> {
        let start = from.map_or(range.start(), |from| from.max(range.start())).as_ref();
        let (end, empty) = match range {
            KeyRange::One(key) => (Bound::Included(key.as_ref()), start > key.as_ref()),
            KeyRange::Span { end, .. } => (Bound::Excluded(end.as_ref()), start >= end.as_ref()),
            KeyRange::From(_) => (Bound::Unbounded, false),
        };
        // The map panics on a range that ends before it starts.
        let found = (!empty).then(|| self.keys.range::<[u8], _>((Bound::Included(start), end)));
        found.into_iter().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Versions)> {
        self.keys.iter()
    }

    /// Takes the `count` oldest versions of `key` away, and the key itself when none is left.
    pub fn drop_oldest(&mut self, key: &[u8], count: usize, mut dropped: impl FnMut(Arc<Record>)) {
        let versions = self.keys.get_mut(key).expect("only what is there is dropped");
        for record in versions.drain(..count) {
            dropped(record);
        }
        if versions.is_empty() {
            self.keys.remove(key);
        } else if versions.spilled() && versions.len() * 2 < versions.capacity() {
            versions.shrink_to_fit();
        }
    }
}

/// The version that lives at `revision`: the last one up to it, unless that is a tombstone.
pub(super) fn living_at(versions: &Versions, revision: Revision) -> Option<&Arc<Record>> {
    let last = versions.last().expect("versions are never empty");
    let record = if last.at.main <= revision {
        last
    } else {
        let count = versions.partition_point(|record| record.at.main <= revision);
        versions.get(count.checked_sub(1)?)?
    };
    (!record.is_tombstone()).then_some(record)
}

/// Whether `record` can be what happened to its key after `before`, the version that is known before it.
pub(super) fn follows(before: Option<&Arc<Record>>, record: &Record) -> Result<(), &'static str> {
    if record.key.is_empty() {
        return Err("an empty key");
    }
    if before.is_some_and(|before| before.at >= record.at) {
        return Err("it is out of order");
    }
    if record.is_tombstone() {
        let bare = record.create == Revision::ZERO && record.value.is_empty() && record.lease.is_none();
        if !bare {
            return Err("a tombstone that carries something");
        }
        return match before {
            Some(before) if before.is_tombstone() => Err("a tombstone after a tombstone"),
            _ => Ok(()),
        };
    }
    if record.version < 1 || record.create > record.at.main {
        return Err("a version that cannot be");
    }
    if (record.version == 1) != (record.create == record.at.main) {
        return Err("a first version that did not create its key, or a later one that did");
    }
    match before {
        Some(before) if before.is_tombstone() && record.version != 1 => {
            Err("a key that lives on after its deletion")
        }
        Some(before) if !before.is_tombstone() => {
            if record.version == before.version + 1 && record.create == before.create {
                Ok(())
            } else {
                Err("a gap in the versions of a key")
            }
        }
        _ => Ok(()),
    }
}
