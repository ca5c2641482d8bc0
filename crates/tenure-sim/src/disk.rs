//! A simulated disk: segment files byte by byte, the checkpoint row by row, and what a crash makes of them.
//!
//! Of each file there is what is durable and, laid over it, what was written since the last sync. A killed process
//! leaves both; a power loss keeps any of the sectors of the overlay, and may garble one.

use std::collections::BTreeMap;

use tenure_replica::recover::{
    LogReader, Place, RecoverError, Recovered, RowReader, Segment, SegmentFile, plan,
};
use tenure_replica::wal::{HEADER_BYTES, Origin, Restart, WalOp};
use tenure_state::bugs::Bugs;

use crate::rng::Rng;

const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub struct File {
    durable: Vec<u8>,
    /// Written and not synced, in order.
    overlay: Vec<(usize, Vec<u8>)>,
    /// Where what was synced ends.
    synced_end: usize,
    /// A later durable record says that the file was durable up to here: damage before it must be noticed.
    vouched: usize,
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.overlay.push((offset, bytes.to_vec()));
    }

    fn sync(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.overlay) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
            self.vouched = self.vouched.max(self.synced_end.min(offset));
            self.synced_end = self.synced_end.max(offset + bytes.len());
        }
    }

    /// What a reader sees while the machine is up.
    fn read(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (offset, written) in &self.overlay {
            bytes[*offset..*offset + written.len()].copy_from_slice(written);
        }
        bytes
    }

    fn lose_power(&mut self, rng: &mut Rng) {
        let overlay = std::mem::take(&mut self.overlay);
        // Nothing, everything, a first part, or any of it.
        let mode = rng.below(4);
        let mut cut = false;
        for (offset, bytes) in overlay {
            let mut at = offset;
            let end = offset + bytes.len();
            while at < end {
                let sector_end = ((at / SECTOR + 1) * SECTOR).min(end);
                let kept = match mode {
                    0 => false,
                    1 => true,
                    2 => {
                        cut |= rng.chance(300);
                        !cut
                    }
                    _ => rng.chance(500),
                };
                if kept {
                    self.durable[at..sector_end].copy_from_slice(&bytes[at - offset..sector_end - offset]);
                    if mode == 3 && rng.chance(100) {
                        let flipped = rng.between(at as u64, sector_end as u64 - 1) as usize;
                        self.durable[flipped] ^= 1 << rng.below(8);
                    }
                }
                at = sector_end;
            }
        }
    }
}

/// All that a member keeps.
#[derive(Clone, Debug)]
pub struct Disk {
    pub origin: Origin,
    pub segments: BTreeMap<u64, File>,
    pub spares: Vec<File>,
    pub spare_count: usize,
    pub segment_bytes: u64,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// As the identity file says: how often it was started, and the segment that the last start began.
    pub boot: u64,
    floor: u64,
    /// No new file can be made.
    pub full: bool,
}

impl Disk {
    pub fn new(origin: Origin, segment_bytes: u64, spare_count: usize) -> Disk {
        Disk {
            origin,
            segments: BTreeMap::new(),
            spares: Vec::new(),
            spare_count,
            segment_bytes,
            rows: BTreeMap::new(),
            boot: 0,
            floor: 0,
            full: false,
        }
    }

    /// Carries out one operation of the log. False: the disk is full, try again later.
    pub fn execute(&mut self, op: &WalOp) -> bool {
        match op {
            WalOp::Write { segment, offset, bytes } => {
                self.file(*segment).write(*offset as usize, bytes);
            }
            WalOp::Sync { segment } => self.file(*segment).sync(),
            WalOp::NewSegment { segment, capacity, head } => {
                let Some(file) = self.unnamed(*capacity) else { return false };
                self.name(*segment, file, head);
            }
        }
        true
    }

    /// A power loss or a kill while this operation was under way: it may have been done, or not.
    pub fn interrupt(&mut self, op: &WalOp, rng: &mut Rng) {
        // A sync that did not return may have written anything; that is what a power loss does to the overlay.
        if !matches!(op, WalOp::Sync { .. }) && rng.chance(500) {
            self.execute(op);
        }
    }

    fn file(&mut self, segment: u64) -> &mut File {
        self.segments.get_mut(&segment).expect("the log writes only to segments that it made")
    }

    fn unnamed(&mut self, capacity: u64) -> Option<File> {
        let spare = self.spares.iter().position(|spare| spare.durable.len() as u64 >= capacity);
        if let Some(at) = spare {
            return Some(self.spares.remove(at));
        }
        if self.full {
            return None;
        }
        Some(File { durable: vec![0; capacity as usize], ..File::default() })
    }

    fn name(&mut self, segment: u64, mut file: File, head: &[u8]) {
        file.durable = file.read();
        file.durable[..head.len()].copy_from_slice(head);
        file.overlay.clear();
        file.synced_end = head.len();
        // The last record of a head is an empty one, which vouches for all before it.
        file.vouched = head.len() - 40;
        let before = self.segments.insert(segment, file);
        assert!(before.is_none(), "a segment is made once");
        if let Some(closed) = self.segments.get_mut(&(segment - 1)) {
            closed.vouched = closed.synced_end;
        }
    }

    /// Takes back segments that the log needs no more.
    pub fn recycle(&mut self, segments: impl IntoIterator<Item = u64>) {
        for segment in segments {
            let Some(file) = self.segments.remove(&segment) else { continue };
            if file.durable.len() as u64 == self.segment_bytes && self.spares.len() < 2 * self.spare_count {
                self.spares.push(file);
            }
        }
    }

    /// Makes the spare files that are wanted. False if there is no space for them.
    pub fn make_spares(&mut self) -> bool {
        while self.spares.len() < self.spare_count {
            if self.full {
                return false;
            }
            let durable = vec![0; self.segment_bytes as usize];
            self.spares.push(File { durable, ..File::default() });
        }
        true
    }

    pub fn lose_power(&mut self, rng: &mut Rng) {
        for file in self.segments.values_mut().chain(&mut self.spares) {
            file.lose_power(rng);
        }
    }

    /// Brings back what is there, as a server does at its start.
    pub fn recover(&self, bugs: Bugs) -> Result<Recovered, RecoverError> {
        let mut rows = RowReader::new(self.origin);
        for (key, value) in &self.rows {
            rows.row(Place { file: "checkpoint", offset: 0 }, key, value)?;
        }
        let loaded = rows.finish("checkpoint")?;
        let files = self.segments.iter().map(|(number, file)| SegmentFile {
            file: format!("log/{number}"),
            number: *number,
            head: file.read()[..HEADER_BYTES as usize].to_vec(),
        });
        let segments: Vec<Segment> = plan(self.origin, self.floor, files.collect())?;
        let mut log = LogReader::new(loaded.state.meta().applied, loaded.applied_term);
        log.set_bugs(bugs);
        for segment in &segments {
            log.segment(segment, &self.segments[&segment.header.number].read())?;
        }
        let last = segments.last().map_or("log", |segment| segment.file.as_str());
        Ok(loaded.with(log.finish(last)?))
    }

    /// Makes the segment that a start begins with; returns those before it, which nobody needs any more.
    pub fn begin(&mut self, restart: &Restart) -> Option<Vec<u64>> {
        let left: Vec<u64> = self.segments.keys().copied().collect();
        let file = self.unnamed(restart.capacity)?;
        self.name(restart.segment, file, &restart.image);
        Some(left)
    }

    /// Notes a start in the identity file.
    pub fn started(&mut self, segment: u64) {
        self.boot += 1;
        self.floor = segment;
    }

    /// Flips a bit of what was durable and is vouched for, and says where; `None` if there is nothing.
    pub fn damage(&mut self, rng: &mut Rng) -> Option<String> {
        if !self.rows.is_empty() && rng.chance(400) {
            let at = rng.below(self.rows.len() as u64) as usize;
            let (mut key, mut value) = {
                let (key, value) = self.rows.iter().nth(at).expect("it is one of them");
                (key.clone(), value.clone())
            };
            self.rows.remove(&key);
            let place = rng.below((key.len() + value.len()) as u64) as usize;
            let bit = 1 << rng.below(8);
            match place.checked_sub(key.len()) {
                None => key[place] ^= bit,
                Some(place) => value[place] ^= bit,
            }
            self.rows.insert(key, value);
            return Some(format!("row {at}, byte {place}"));
        }
        let numbers: Vec<u64> = self.segments.keys().copied().collect();
        let number = *numbers.last().filter(|_| rng.chance(700)).or_else(|| numbers.first())?;
        let file = self.file(number);
        let place = rng.below(file.vouched as u64) as usize;
        file.durable[place] ^= 1 << rng.below(8);
        Some(format!("segment {number}, byte {place} of {} that are vouched for", file.vouched))
    }
}
