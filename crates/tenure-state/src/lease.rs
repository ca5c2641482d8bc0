//! The lease table: who lives, until when, in which tree, with which keys.
//!
//! A plain data structure on the lease clock; it neither knows the store nor deletes a key. `apply` asks it
//! what ends and deletes the keys itself.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::applied::{LeaseRow, Renewed};
use crate::ids::{LeaseId, Nanos};
use crate::refusal::Refusal;

/// The deepest that a tree may grow: a root is at depth 0.
pub const DEPTH_MAX: u32 = 64;

/// All living leases of one state.
pub struct LeaseTable {}

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
        let _ = clock;
        todo!()
    }

    /// Puts a stored lease back (parents may come after their children; `finish_load` checks).
    pub fn load(&mut self, row: LeaseRow) {
        let _ = row;
        todo!()
    }

    pub fn finish_load(&mut self) -> Result<(), &'static str> {
        todo!()
    }

    /// The lease clock C.
    pub fn clock(&self) -> Nanos {
        todo!()
    }

    /// C := max(C, c).
    pub fn advance(&mut self, c: Nanos) {
        let _ = c;
        todo!()
    }

    /// base := deadline := at + ttl, capped by the parent's deadline.
    pub fn grant(
        &mut self,
        id: LeaseId,
        ttl: Nanos,
        parent: LeaseId,
        at: Nanos,
    ) -> Result<LeaseRow, Refusal> {
        let _ = (id, ttl, parent, at);
        todo!()
    }

    /// base := deadline := max(deadline, at + ttl) for each of `ids`, parents before children whatever their
    /// order, each capped by its parent. Answers in the order of `ids`. `changed` learns the new rows.
    pub fn renew(&mut self, ids: &[LeaseId], at: Nanos, changed: &mut Vec<LeaseRow>) -> Vec<Renewed> {
        let _ = (ids, at, changed);
        todo!()
    }

    /// Every lease with deadline < C + grace: deadline := max(deadline, min(C + min(ttl, grace), base + 3·min(ttl, grace))),
    /// capped by its parent's, parents first.
    pub fn take_over(&mut self, grace: Nanos, changed: &mut Vec<LeaseRow>) {
        let _ = (grace, changed);
        todo!()
    }

    /// The next root of what is due at `now` in the order (deadline, depth, id); `None` if nothing is.
    pub fn next_due(&mut self, now: Nanos) -> Option<(LeaseId, Nanos)> {
        let _ = now;
        todo!()
    }

    /// A time before which nothing is due; `None` without leases. Cheap, not exact.
    pub fn next_due_bound(&self) -> Option<Nanos> {
        todo!()
    }

    /// How many leases and keys would end with this one: itself, its descendants, all their keys.
    pub fn weight(&self, id: LeaseId) -> usize {
        let _ = id;
        todo!()
    }

    /// Removes the lease and all its descendants; it first, then level by level in ascending order of id.
    pub fn end(&mut self, id: LeaseId) -> Vec<Ended> {
        let _ = id;
        todo!()
    }

    /// Puts `key` on `lease`, off the one that had it before. The caller checked that `lease` lives.
    pub fn attach(&mut self, key: Bytes, before: LeaseId, lease: LeaseId) {
        let _ = (key, before, lease);
        todo!()
    }

    /// Takes `key` off its lease (when it is deleted or put without one).
    pub fn detach(&mut self, key: &Bytes, lease: LeaseId) {
        let _ = (key, lease);
        todo!()
    }

    pub fn get(&self, id: LeaseId) -> Option<LeaseRow> {
        let _ = id;
        todo!()
    }

    pub fn contains(&self, id: LeaseId) -> bool {
        let _ = id;
        todo!()
    }

    /// In ascending order.
    pub fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        let _ = id;
        todo!()
    }

    /// All living leases in ascending order of (deadline, id).
    pub fn list(&self) -> Vec<LeaseId> {
        todo!()
    }

    pub fn len(&self) -> usize {
        todo!()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Feeds every row in ascending order of id: for digests and checks.
    pub fn rows(&self) -> Vec<LeaseRow> {
        todo!()
    }

    pub fn assert_invariants(&self) {
        todo!()
    }
}
