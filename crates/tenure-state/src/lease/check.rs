//! What must always hold of a lease table, spelled out.

use super::wheel::tick;
use super::{DEPTH_MAX, LeaseTable, READY};

impl LeaseTable {
    /// Panics if the table contradicts itself. For tests and the simulator.
    pub fn assert_invariants(&self) {
        let mut count = 0;
        for lease in self.slab.iter() {
            let id = lease.id;
            count += 1;
            assert!(!id.is_none(), "a lease has the id that says no lease");
            let slot = self.slots.get(&id).unwrap_or_else(|| panic!("lease {id} cannot be found"));
            assert_eq!(self.slab.get(*slot).id, id, "lease {id} is found as another one");
            assert!(lease.base <= lease.deadline, "lease {id} ends before its base");
            assert_eq!(lease.keys.to_vec().len(), lease.keys.len());

            if lease.parent.is_none() {
                assert_eq!(lease.depth, 0, "root {id} is not at depth 0");
            } else {
                let parent = self.find(lease.parent).unwrap_or_else(|| panic!("lease {id} lost its parent"));
                assert_eq!(lease.depth, parent.depth + 1, "lease {id} is at the wrong depth");
                assert!(lease.deadline <= parent.deadline, "lease {id} outlives its parent");
                assert!(
                    self.children.get(&lease.parent).is_some_and(|children| children.contains(&id)),
                    "lease {id} is not among its parent's children"
                );
            }
            assert!(u32::from(lease.depth) <= DEPTH_MAX, "lease {id} is too deep");
            assert_eq!(lease.has_children, self.children.contains_key(&id), "lease {id} miscounts children");
            if lease.bucket == READY {
                assert_eq!(self.ready.get(&lease.due()), Some(slot), "lease {id} is not where it is due");
            }
        }
        assert_eq!(count, self.slots.len(), "the index and the slab differ in size");

        for (parent, children) in &self.children {
            assert!(!children.is_empty(), "lease {parent} has a set of no children");
            for child in children {
                let child = self.find(*child).unwrap_or_else(|| panic!("a child of {parent} is gone"));
                assert_eq!(child.parent, *parent, "lease {} has two parents", child.id);
            }
        }

        let mut queued = 0;
        self.wheel.for_each(|slot, place, start| {
            queued += 1;
            let lease = self.slab.get(slot);
            assert_eq!(lease.place(), place, "lease {} does not know where it is queued", lease.id);
            assert!(self.wheel.reached() < start, "lease {} was passed over", lease.id);
            assert!(start <= tick(lease.deadline), "lease {} is queued too late", lease.id);
        });
        for (due, slot) in &self.ready {
            let lease = self.slab.get(*slot);
            assert_eq!((lease.due(), lease.bucket), (*due, READY), "lease {} is ready no more", lease.id);
            assert!(tick(lease.deadline) <= self.wheel.reached(), "lease {} is ready too early", lease.id);
        }
        assert_eq!(queued + self.ready.len(), count, "each lease is queued exactly once");
    }
}
