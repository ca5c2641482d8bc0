//! The lease table: who lives, until when, in which tree, with which keys.
//!
//! A plain data structure on the lease clock; it neither knows the store nor deletes a key. `apply` asks it
//! what ends and deletes the keys itself.
//!
//! Each lease waits in exactly one place: in the timing wheel, for a look at its deadline or before, or, once
//! the wheel has reached its deadline's tick, in `ready`, which is in the order in which leases end. How far
//! the wheel has turned is this member's own affair (a leader looks ahead more often than a follower), so
//! nothing that can be seen from outside may depend on it: what comes out is always sorted first.

mod check;
mod keys;
mod slab;
mod wheel;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use bytes::Bytes;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use self::keys::Keys;
use self::slab::Slab;
use self::wheel::{Place, Wheel, tick};
use crate::applied::{LeaseRow, Renewed};
use crate::bugs::{Bug, Bugs};
use crate::ids::{LeaseId, Nanos};
use crate::refusal::Refusal;

/// The deepest that a tree may grow: a root is at depth 0.
pub const DEPTH_MAX: u32 = 64;

/// So many leases are looked up before the first of them is renewed: then their cache misses overlap.
const BLOCK: usize = 32;

/// Instead of a bucket of the wheel: the lease is in `ready`.
const READY: u16 = u16::MAX;

/// The order in which leases end: by deadline, parents before children, then by id.
type Due = (Nanos, u8, LeaseId);

/// All living leases of one state.
pub struct LeaseTable {
    /// The lease clock C.
    clock: Nanos,
    /// For look-ups only: its order is no order.
    slots: HashMap<LeaseId, u32, FxBuildHasher>,
    slab: Slab,
    /// Only of those that have any.
    children: BTreeMap<LeaseId, BTreeSet<LeaseId>>,
    wheel: Wheel,
    /// The slots of all leases whose deadline's tick the wheel has reached, always exact.
    ready: BTreeMap<Due, u32>,
    /// What [`LeaseTable::load`] found wrong first.
    damage: Option<&'static str>,
    bugs: Bugs,
}

/// A living lease. The fields of [`LeaseRow`], packed, and where it waits.
struct Lease {
    id: LeaseId,
    ttl: Nanos,
    deadline: Nanos,
    base: Nanos,
    granted: Nanos,
    parent: LeaseId,
    keys: Keys,
    /// The place within `bucket`; means nothing when that is [`READY`].
    index: u32,
    bucket: u16,
    depth: u8,
    has_children: bool,
}

// A plain lease may cost 150 bytes: this, 4 to 8 in the wheel and, in the worst moment, right after the index
// grew, 17 · 16/7 = 39 there.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Option<Lease>>() <= 88);

/// A lease that just ended, with what must end with it.
#[derive(Debug)]
pub struct Ended {
    pub id: LeaseId,
    pub deadline: Nanos,
    /// In ascending order.
    pub keys: Vec<Bytes>,
}

impl LeaseTable {
    pub fn new(clock: Nanos) -> LeaseTable {
        LeaseTable {
            clock,
            slots: HashMap::default(),
            slab: Slab::default(),
            children: BTreeMap::new(),
            wheel: Wheel::new(tick(clock)),
            ready: BTreeMap::new(),
            damage: None,
            bugs: Bugs::default(),
        }
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn set_bugs(&mut self, bugs: Bugs) {
        self.bugs = bugs;
    }

    /// Puts a stored lease back (parents may come after their children; `finish_load` checks).
    pub fn load(&mut self, row: LeaseRow) {
        let damage = if row.id.is_none() {
            "a lease has no id"
        } else if self.contains(row.id) {
            "two leases have the same id"
        } else if row.depth > DEPTH_MAX {
            "a lease is deeper than a tree may grow"
        } else if row.parent.is_none() != (row.depth == 0) {
            "a lease without a parent is not at depth 0, or one with a parent is"
        } else if row.base > row.deadline {
            "a lease ends before its last renewal said"
        } else {
            self.insert(row);
            return;
        };
        self.damage.get_or_insert(damage);
    }

    pub fn finish_load(&mut self) -> Result<(), &'static str> {
        if let Some(damage) = self.damage {
            return Err(damage);
        }
        for (parent, children) in &self.children {
            let slot = *self.slots.get(parent).ok_or("the parent of a lease is missing")?;
            let parent = self.slab.get_mut(slot);
            parent.has_children = true;
            let (depth, deadline) = (parent.depth, parent.deadline);
            for child in children {
                let child = self.slab.get(self.slots[child]);
                if child.depth != depth + 1 {
                    return Err("a lease is at another depth than below its parent");
                }
                if child.deadline > deadline {
                    return Err("a lease ends after its parent");
                }
            }
        }
        Ok(())
    }

    /// The lease clock C.
    pub fn clock(&self) -> Nanos {
        self.clock
    }

    /// C := max(C, c).
    pub fn advance(&mut self, c: Nanos) {
        self.clock = self.clock.max(c);
    }

    /// base := deadline := at + ttl, capped by the parent's deadline.
    pub fn grant(
        &mut self,
        id: LeaseId,
        ttl: Nanos,
        parent: LeaseId,
        at: Nanos,
    ) -> Result<LeaseRow, Refusal> {
        assert!(!id.is_none(), "the edge draws an id where the client left it open");
        if self.contains(id) {
            return Err(Refusal::LeaseExists);
        }
        let (cap, depth) = if parent.is_none() {
            (Nanos::MAX, 0)
        } else {
            let slot = *self.slots.get(&parent).ok_or(Refusal::ParentNotFound)?;
            let parent = self.slab.get_mut(slot);
            if u32::from(parent.depth) >= DEPTH_MAX {
                return Err(Refusal::TreeTooDeep);
            }
            parent.has_children = true;
            (parent.deadline, u32::from(parent.depth) + 1)
        };
        let deadline = (at + ttl).min(cap);
        let row = LeaseRow { id, ttl, deadline, base: deadline, granted: at, parent, depth };
        self.insert(row);
        Ok(row)
    }

    /// base := deadline := max(deadline, at + ttl) for each of `ids`, parents before children whatever their
    /// order, each capped by its parent. Answers in the order of `ids`. `changed` learns the new rows.
    pub fn renew(&mut self, ids: &[LeaseId], at: Nanos, changed: &mut Vec<LeaseRow>) -> Vec<Renewed> {
        // Roots need no order among themselves; only the others wait, sorted by depth, for their parents.
        let mut nested = Vec::new();
        let mut renewed = Vec::with_capacity(ids.len());
        for block in ids.chunks(BLOCK) {
            let mut found = [None; BLOCK];
            for (slot, id) in found.iter_mut().zip(block) {
                *slot = self.slots.get(id).copied();
            }
            let roots = found.map(|slot| slot.is_some_and(|slot| self.slab.get(slot).parent.is_none()));
            for ((&id, slot), is_root) in block.iter().zip(found).zip(roots) {
                let mut remaining = None;
                if let Some(slot) = slot {
                    if is_root {
                        remaining = Some(self.renew_slot(slot, Nanos::MAX, at, changed));
                    } else {
                        nested.push((self.slab.get(slot).depth, renewed.len(), slot));
                    }
                }
                renewed.push(Renewed { id, remaining });
            }
        }
        nested.sort_unstable();
        for (_, position, slot) in nested {
            let cap = self.cap(slot);
            renewed[position].remaining = Some(self.renew_slot(slot, cap, at, changed));
        }
        renewed
    }

    /// Answers what is left of the lease.
    fn renew_slot(&mut self, slot: u32, cap: Nanos, at: Nanos, changed: &mut Vec<LeaseRow>) -> Nanos {
        let lease = self.slab.get_mut(slot);
        let deadline = lease.deadline.max((at + lease.ttl).min(cap));
        let remaining = deadline.saturating_sub(self.clock.max(at)).min(lease.ttl);
        if (deadline, deadline) == (lease.deadline, lease.base) {
            return remaining;
        }
        lease.base = deadline;
        if lease.bucket == READY {
            self.unqueue(slot);
            self.slab.get_mut(slot).deadline = deadline;
            self.queue(slot);
        } else {
            // The wheel finds out when it looks at the lease.
            lease.deadline = deadline;
        }
        changed.push(self.slab.get(slot).row());
        remaining
    }

    /// Every lease with deadline < C + grace: deadline := max(deadline, min(C + min(ttl, grace), base + 3·min(ttl, grace))),
    /// capped by its parent's, parents first. `changed` learns the new rows by depth, then id.
    pub fn take_over(&mut self, grace: Nanos, changed: &mut Vec<LeaseRow>) {
        let end = self.clock + grace;
        let not_ready = self.ready.split_off(&(end, 0, LeaseId(i64::MIN)));
        let early = mem::replace(&mut self.ready, not_ready);
        let mut found: Vec<(u8, LeaseId, u32)> =
            early.into_iter().map(|((_, depth, id), slot)| (depth, id, slot)).collect();

        let taken = self.wheel.take(tick(end));
        self.wheel.reach(tick(self.clock));
        for slot in taken.into_iter().flatten() {
            let lease = self.slab.get(slot);
            if lease.deadline < end {
                found.push((lease.depth, lease.id, slot));
            } else {
                self.queue(slot);
            }
        }

        found.sort_unstable();
        for (_, _, slot) in found {
            let cap = self.cap(slot);
            let lease = self.slab.get_mut(slot);
            let span = lease.ttl.min(grace);
            let bounded_from =
                if self.bugs.has(Bug::TakeOverWithoutBase) { lease.deadline } else { lease.base };
            let extended = (self.clock + span).min(bounded_from + span.saturating_mul(3)).min(cap);
            if extended > lease.deadline {
                lease.deadline = extended;
                changed.push(lease.row());
            }
            self.queue(slot);
        }
    }

    /// The next root of what is due at `now` in the order (deadline, depth, id); `None` if nothing is.
    ///
    /// `now` may be ahead of C: looking changes nothing that can be seen.
    pub fn next_due(&mut self, now: Nanos) -> Option<(LeaseId, Nanos)> {
        if tick(now) > self.wheel.reached() {
            self.turn(tick(now));
        }
        let (&(deadline, _, id), _) = self.ready.first_key_value()?;
        (deadline <= now).then_some((id, deadline))
    }

    /// Turns the wheel to `until`.
    fn turn(&mut self, until: u64) {
        let taken = self.wheel.take(until);
        self.wheel.reach(until);
        let mut due = Vec::new();
        for slot in taken.into_iter().flatten() {
            let lease = self.slab.get_mut(slot);
            if tick(lease.deadline) <= until {
                lease.bucket = READY;
                due.push((lease.due(), slot));
            } else {
                self.queue(slot);
            }
        }
        if due.len() > self.ready.len() {
            // Very many at once: to sort them and build the tree in one go takes a fraction of the time.
            self.ready.append(&mut due.into_iter().collect());
        } else {
            self.ready.extend(due);
        }
    }

    /// A time before which nothing is due; `None` without leases. Cheap, not exact.
    pub fn next_due_bound(&self) -> Option<Nanos> {
        // What is ready is due before all that is in the wheel.
        let ready = self.ready.first_key_value().map(|(&(deadline, ..), _)| deadline);
        ready.or_else(|| self.wheel.next_start())
    }

    /// How many leases and keys would end with this one: itself, its descendants, all their keys.
    pub fn weight(&self, id: LeaseId) -> usize {
        match self.find(id) {
            None => 0,
            Some(lease) if !lease.has_children => 1 + lease.keys.len(),
            Some(_) => {
                let leases = self.subtree(id);
                leases.iter().map(|&id| 1 + self.slab.get(self.slots[&id]).keys.len()).sum()
            }
        }
    }

    /// Removes the lease and all its descendants; it first, then level by level in ascending order of id.
    pub fn end(&mut self, id: LeaseId) -> Vec<Ended> {
        let Some(lease) = self.find(id) else { return Vec::new() };
        if !lease.parent.is_none() {
            self.unlink(id, lease.parent);
        }
        let leases = self.subtree(id);
        leases.into_iter().map(|id| self.remove(id)).collect()
    }

    /// The lease and its descendants, level by level, each level in ascending order of id.
    pub(crate) fn subtree(&self, root: LeaseId) -> Vec<LeaseId> {
        let mut leases = Vec::from([root]);
        let mut level_start = 0;
        while level_start < leases.len() {
            let level_end = leases.len();
            for position in level_start..level_end {
                let id = leases[position];
                if self.slab.get(self.slots[&id]).has_children {
                    leases.extend(&self.children[&id]);
                }
            }
            leases[level_end..].sort_unstable();
            level_start = level_end;
        }
        leases
    }

    /// Takes `child` off its parent.
    fn unlink(&mut self, child: LeaseId, parent: LeaseId) {
        let siblings = self.children.get_mut(&parent).expect("a parent knows its children");
        siblings.remove(&child);
        if siblings.is_empty() {
            self.children.remove(&parent);
            self.slab.get_mut(self.slots[&parent]).has_children = false;
        }
    }

    /// Removes one lease of a tree that ends as a whole.
    fn remove(&mut self, id: LeaseId) -> Ended {
        let slot = self.slots.remove(&id).expect("a living lease has a slot");
        self.unqueue(slot);
        let lease = self.slab.remove(slot);
        if lease.has_children {
            self.children.remove(&id);
        }
        Ended { id, deadline: lease.deadline, keys: lease.keys.into_vec() }
    }

    /// Puts `key` on `lease`, off the one that had it before. The caller checked that `lease` lives.
    pub fn attach(&mut self, key: Bytes, before: LeaseId, lease: LeaseId) {
        if before != lease {
            self.detach(&key, before);
        }
        let slot = *self.slots.get(&lease).expect("the caller checked that the lease lives");
        self.slab.get_mut(slot).keys.insert(key);
    }

    /// Takes `key` off its lease (when it is deleted or put without one). Does nothing if that has just ended.
    pub fn detach(&mut self, key: &Bytes, lease: LeaseId) {
        if let Some(&slot) = self.slots.get(&lease) {
            let found = self.slab.get_mut(slot).keys.remove(key);
            assert!(found, "lease {lease} does not have the key that is taken off it");
        }
    }

    pub fn get(&self, id: LeaseId) -> Option<LeaseRow> {
        self.find(id).map(Lease::row)
    }

    pub fn contains(&self, id: LeaseId) -> bool {
        self.slots.contains_key(&id)
    }

    /// In ascending order.
    pub fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.find(id).map(|lease| lease.keys.to_vec()).unwrap_or_default()
    }

    /// The first `limit` of its keys in ascending order; at least one, if it has any.
    pub(crate) fn first_keys(&self, id: LeaseId, limit: usize) -> Vec<Bytes> {
        self.find(id).map(|lease| lease.keys.first(limit)).unwrap_or_default()
    }

    /// All living leases in ascending order of (deadline, id).
    pub fn list(&self) -> Vec<LeaseId> {
        let mut leases: Vec<_> = self.slab.iter().map(|lease| (lease.deadline, lease.id)).collect();
        leases.sort_unstable();
        leases.into_iter().map(|(_, id)| id).collect()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Feeds every row in ascending order of id: for digests and checks.
    pub fn rows(&self) -> Vec<LeaseRow> {
        let mut rows: Vec<_> = self.slab.iter().map(Lease::row).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    fn find(&self, id: LeaseId) -> Option<&Lease> {
        self.slots.get(&id).map(|&slot| self.slab.get(slot))
    }

    /// The deadline of the lease's parent, which it may not outlive.
    fn cap(&self, slot: u32) -> Nanos {
        let parent = self.slab.get(slot).parent;
        if parent.is_none() || self.bugs.has(Bug::ChildNotCapped) {
            return Nanos::MAX;
        }
        self.find(parent).expect("a parent lives as long as its children").deadline
    }

    /// Puts a new lease into everything but its parent's row.
    fn insert(&mut self, row: LeaseRow) {
        if !row.parent.is_none() {
            self.children.entry(row.parent).or_default().insert(row.id);
        }
        let slot = self.slab.insert(Lease {
            id: row.id,
            ttl: row.ttl,
            deadline: row.deadline,
            base: row.base,
            granted: row.granted,
            parent: row.parent,
            keys: Keys::NONE,
            index: 0,
            bucket: READY,
            depth: u8::try_from(row.depth).expect("trees are not that deep"),
            has_children: false,
        });
        self.slots.insert(row.id, slot);
        self.queue(slot);
    }

    /// Lets a lease that waits nowhere wait for its deadline.
    fn queue(&mut self, slot: u32) {
        let lease = self.slab.get_mut(slot);
        let due_at = tick(lease.deadline);
        if due_at <= self.wheel.reached() {
            lease.bucket = READY;
            self.ready.insert(lease.due(), slot);
        } else {
            Place { bucket: lease.bucket, index: lease.index } = self.wheel.insert(slot, due_at);
        }
    }

    /// Takes a lease from where it waits, before its deadline is changed there.
    fn unqueue(&mut self, slot: u32) {
        let lease = self.slab.get(slot);
        if lease.bucket == READY {
            self.ready.remove(&lease.due()).expect("a lease that is marked as ready is there");
        } else {
            let place = lease.place();
            if let Some(moved) = self.wheel.remove(place) {
                self.slab.get_mut(moved).index = place.index;
            }
        }
    }
}

impl Lease {
    fn due(&self) -> Due {
        (self.deadline, self.depth, self.id)
    }

    fn place(&self) -> Place {
        Place { bucket: self.bucket, index: self.index }
    }

    fn row(&self) -> LeaseRow {
        LeaseRow {
            id: self.id,
            ttl: self.ttl,
            deadline: self.deadline,
            base: self.base,
            granted: self.granted,
            parent: self.parent,
            depth: u32::from(self.depth),
        }
    }
}
