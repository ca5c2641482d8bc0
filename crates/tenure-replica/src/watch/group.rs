//! Watchers that want exactly the same, so that an event is matched, counted and packed once for all of them.

use tenure_state::key::KeyRange;
use tenure_state::record::Event;

use super::WatcherKey;
use super::index::{Index, Shape};
use super::slab::Slab;

pub(super) type GroupKey = u32;

/// What all watchers of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub puts: bool,
    pub deletes: bool,
    pub prev: bool,
}

impl Wish {
    fn admits(self, event: &Event) -> bool {
        if event.record.is_tombstone() { self.deletes } else { self.puts }
    }
}

pub(super) struct Group {
    shape: Shape,
    pub wish: Wish,
    /// Watchers of this group, in whatever place they are.
    watchers: u32,
    /// Those that are sent events as they happen. Each knows its slot here.
    pub synced: Vec<WatcherKey>,
    /// Somebody takes part in the running scan of history.
    pub scanning: bool,
}

/// One event for one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    pub group: GroupKey,
    /// Its place in the events that were matched.
    pub event: u32,
}

#[derive(Default)]
pub(super) struct Groups {
    groups: Slab<Group>,
    index: Index,
}

impl Groups {
    /// The group of a new watcher, made if there is none.
    pub(super) fn join(&mut self, range: &KeyRange, wish: Wish) -> GroupKey {
        let shape = Shape::new(range);
        let same = self.index.groups(&shape).iter().find(|group| self.groups[**group].wish == wish);
        let key = match same {
            Some(key) => *key,
            None => {
                let group =
                    Group { shape: shape.clone(), wish, watchers: 0, synced: Vec::new(), scanning: false };
                let key = self.groups.insert(group);
                self.index.insert(&shape, key);
                key
            }
        };
        self.groups[key].watchers += 1;
        key
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// One watcher less, which is in no list of the group any more.
    pub(super) fn leave(&mut self, key: GroupKey) {
        let group = &mut self.groups[key];
        group.watchers -= 1;
        if group.watchers == 0 {
            assert!(group.synced.is_empty(), "a group without watchers still sends to some");
            let group = self.groups.remove(key);
            self.index.remove(&group.shape, key);
        }
    }

    /// Which groups that `want` selects are to be sent which of the events; by group, then in order of history.
    pub(super) fn hits(&self, events: &[Event], want: impl Fn(&Group) -> bool) -> Vec<Hit> {
        let mut hits = Vec::new();
        for (event, number) in events.iter().zip(0..) {
            self.index.matches(&event.record.key, |key| {
                let group = &self.groups[key];
                if want(group) && group.wish.admits(event) {
                    hits.push(Hit { group: key, event: number });
                }
            });
        }
        hits.sort_unstable();
        hits
    }
}

impl std::ops::Index<GroupKey> for Groups {
    type Output = Group;

    fn index(&self, key: GroupKey) -> &Group {
        &self.groups[key]
    }
}

impl std::ops::IndexMut<GroupKey> for Groups {
    fn index_mut(&mut self, key: GroupKey) -> &mut Group {
        &mut self.groups[key]
    }
}
