//! A timing wheel: which leases to look at when, in constant time for each.
//!
//! A hierarchy of rings with 64 buckets each. One bucket of a level is four times as wide as one of the level
//! below, so an entry sits in a bucket no wider than a sixteenth of the time that it still has to wait: even if
//! all leases have the same TTL, only a small part of them comes due for a look at once. A bucket is taken
//! when its start is reached; whoever takes it puts back what is not due yet, at that time's deadline. That is
//! what lets a renewal write nothing here: an entry may be too early, never too late.
//!
//! Jumps of the clock cost one look at each level, not one at each tick.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::ids::Nanos;

/// A tick is 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;
/// A bucket is four times as wide as one of the level below.
const LEVEL_BITS: u32 = 2;
/// One bucket for each bit of the level's map.
const RING: u64 = 64;
/// Enough for any tick that fits: the top level's ring holds all of them without turning.
const LEVELS: u32 = (u64::BITS - TICK_BITS - RING.trailing_zeros()) / LEVEL_BITS + 1;

/// The bucket and the place in it of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub bucket: u16,
    pub index: u32,
}

pub(super) struct Wheel {
    /// Everything up to and including this tick was taken.
    reached: u64,
    /// For each level, the buckets that have entries.
    occupied: [u64; LEVELS as usize],
    buckets: Box<[Vec<u32>]>,
}

/// The tick that `time` is in.
pub(super) const fn tick(time: Nanos) -> u64 {
    time.0 >> TICK_BITS
}

impl Wheel {
    pub fn new(reached: u64) -> Wheel {
        let buckets = (0..u64::from(LEVELS) * RING).map(|_| Vec::new()).collect();
        Wheel { reached, occupied: [0; LEVELS as usize], buckets }
    }

    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Queues `slot` for a look at `tick` or somewhat before, but after what is reached already.
    pub fn insert(&mut self, slot: u32, tick: u64) -> Place {
        assert!(tick > self.reached, "what is due already never enters the wheel");
        let distance_bits = u64::BITS - (tick - self.reached).leading_zeros();
        let mut level = distance_bits.saturating_sub(RING.trailing_zeros()).div_ceil(LEVEL_BITS);
        // The two ticks may lie so in their buckets that there is one bucket more between them.
        while (tick >> shift(level)) - (self.reached >> shift(level)) > RING {
            level += 1;
        }
        let at = (tick >> shift(level)) % RING;
        let bucket = u64::from(level) * RING + at;
        let entries = &mut self.buckets[bucket as usize];
        let index = u32::try_from(entries.len()).expect("there are no more entries than slots of the slab");
        entries.push(slot);
        self.occupied[level as usize] |= 1 << at;
        Place { bucket: bucket as u16, index }
    }

    /// Removes one entry. Answers which slot stands at its place now, if one was moved there.
    pub fn remove(&mut self, place: Place) -> Option<u32> {
        let entries = &mut self.buckets[usize::from(place.bucket)];
        entries.swap_remove(place.index as usize);
        if entries.is_empty() {
            let level = u64::from(place.bucket) / RING;
            self.occupied[level as usize] &= !(1 << (u64::from(place.bucket) % RING));
            *entries = Vec::new();
        } else if entries.len() < entries.capacity() / 4 {
            // A bucket far in the future may never be taken, so it must not keep what it once needed.
            entries.shrink_to(entries.capacity() / 2);
        }
        entries.get(place.index as usize).copied()
    }

    /// Takes all buckets that start at `until` or before. Those that are not due by then are among them; the
    /// caller inserts them again.
    pub fn take(&mut self, until: u64) -> Vec<Vec<u32>> {
        let mut taken = Vec::new();
        if until <= self.reached {
            return taken;
        }
        for level in 0..LEVELS {
            let from = self.reached >> shift(level);
            let steps = (until >> shift(level)) - from;
            if steps == 0 {
                // Nor is there a step on the wider levels above.
                break;
            }
            let passed = if steps >= RING {
                u64::MAX
            } else {
                ((1 << steps) - 1u64).rotate_left(((from + 1) % RING) as u32)
            };
            let mut hits = self.occupied[level as usize] & passed;
            self.occupied[level as usize] &= !passed;
            while hits != 0 {
                let bucket = u64::from(level) * RING + u64::from(hits.trailing_zeros());
                taken.push(mem::take(&mut self.buckets[bucket as usize]));
                hits &= hits - 1;
            }
        }
        taken
    }

    /// Moves on to `tick`; the caller has taken everything up to it.
    pub fn reach(&mut self, tick: u64) {
        self.reached = self.reached.max(tick);
    }

    /// When the first bucket starts that has entries: nothing in the wheel is due before.
    pub fn next_start(&self) -> Option<Nanos> {
        let levels = (0..LEVELS).filter(|&level| self.occupied[level as usize] != 0);
        let start = levels.map(|level| self.start(level, self.occupied[level as usize])).min()?;
        Some(Nanos(start << TICK_BITS))
    }

    /// The tick at which the first of the buckets in `map` starts.
    fn start(&self, level: u32, map: u64) -> u64 {
        let next = (self.reached >> shift(level)) + 1;
        let ahead = map.rotate_right((next % RING) as u32).trailing_zeros();
        (next + u64::from(ahead)) << shift(level)
    }

    /// Feeds each entry with its place and the tick at which its bucket starts. For checks.
    pub fn for_each(&self, mut visit: impl FnMut(u32, Place, u64)) {
        for (bucket, entries) in self.buckets.iter().enumerate() {
            let (level, at) = (bucket as u32 / RING as u32, bucket as u64 % RING);
            let occupied = self.occupied[level as usize] & (1 << at) != 0;
            assert_eq!(occupied, !entries.is_empty(), "the map of bucket {bucket} is wrong");
            for (index, &slot) in entries.iter().enumerate() {
                let place = Place { bucket: bucket as u16, index: index as u32 };
                visit(slot, place, self.start(level, 1 << at));
            }
        }
    }
}

const fn shift(level: u32) -> u32 {
    level * LEVEL_BITS
}
