//! Where leases lie: slots with numbers, in chunks, so that growing neither copies all leases nor reserves
//! twice their room.

use alloc::vec::Vec;

use super::Lease;

/// Leases in a chunk: 88 KiB of them, which is still cheap for a table of one.
const CHUNK: usize = 1024;

#[derive(Default)]
pub(super) struct Slab {
    chunks: Vec<Vec<Option<Lease>>>,
    /// Slots that were used and are free again.
    free: Vec<u32>,
}

impl Slab {
    pub fn insert(&mut self, lease: Lease) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(lease);
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk_count = self.chunks.len();
        let chunk = &mut self.chunks[chunk_count - 1];
        let slot = (chunk_count - 1) * CHUNK + chunk.len();
        chunk.push(Some(lease));
        u32::try_from(slot).expect("memory ends long before four billion leases")
    }

    pub fn remove(&mut self, slot: u32) -> Lease {
        let lease = self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].take();
        self.free.push(slot);
        lease.expect("a slot in use holds a lease")
    }

    pub fn get(&self, slot: u32) -> &Lease {
        let lease = self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].as_ref();
        lease.expect("a slot in use holds a lease")
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Lease {
        let lease = self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].as_mut();
        lease.expect("a slot in use holds a lease")
    }

    /// In the order of their slots, which says nothing and may differ between members: sort before use.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.chunks.iter().flatten().flatten()
    }
}
