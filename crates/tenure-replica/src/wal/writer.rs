//! Turns batches into operations on segment files.

use crate::effect::{Append, HardState, LogEntry};
use crate::wal::WalOp;
use crate::wal::record::{self, BodyRef};
use crate::wal::segment::{HEADER_BYTES, Header, Origin};

/// What a segment repeats after its header.
const HEAD_RECORDS_BYTES: u64 = 2 * record::FRAME_BYTES as u64 + 8;

/// Fixed for the life of a writer.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub origin: Origin,
    /// How long a segment is, unless one entry alone needs more.
    pub segment_bytes: u64,
    /// Drawn at random for each start. A start that was cut short may have left records in a file that the next
    /// start takes for a segment of the same number; they must not check out there.
    pub salt: u32,
}

/// The end of the log: where the next record goes.
///
/// What a call returns must be carried out, in order and successfully, before the next call: the writer counts it
/// as durable from then on. Who cannot must stop.
#[derive(Debug)]
pub struct Writer {
    settings: Settings,
    number: u64,
    seed: u64,
    capacity: u64,
    offset: u64,
    /// How much of the current segment is durable.
    synced: u64,
    last_index: u64,
    hard_state: HardState,
    /// Number and greatest index of each segment that is complete, oldest first.
    closed: Vec<(u64, u64)>,
    /// The greatest index in the current segment.
    greatest: u64,
}

/// The segment that a start of the process begins with.
#[derive(Debug)]
pub struct Restart {
    pub segment: u64,
    pub capacity: u64,
    /// What the segment begins with; the rest is zeros. It must all be durable before the file gets its name.
    pub image: Vec<u8>,
    pub writer: Writer,
}

impl Restart {
    /// Copies what of a log must be kept into a new segment: the hard state and the entries behind the
    /// checkpoint's index `base`.
    ///
    /// After a start the page cache may show what the disk never got, so nothing is built upon that is not
    /// written and synced again. The new segment supersedes all others at the moment when it gets its name.
    pub fn new(
        settings: Settings,
        number: u64,
        base: u64,
        state: HardState,
        entries: &[LogEntry],
    ) -> Restart {
        assert!(
            entries.first().is_none_or(|first| first.index == base + 1),
            "kept entries follow the checkpoint"
        );
        let records: Vec<BodyRef<'_>> = [BodyRef::HardState(state)]
            .into_iter()
            .chain(entries.iter().map(BodyRef::Entry))
            .chain([BodyRef::Idle])
            .collect();
        let needed: u64 = records.iter().map(|record| record.size() as u64).sum();
        let seed = Header::seed(settings.salt, number);
        // What is kept may be longer than a segment; it still goes into one, because one rename makes it count.
        let capacity = settings.segment_bytes.max(HEADER_BYTES + needed);
        let header = Header {
            origin: settings.origin,
            number,
            seed,
            first_index: base + 1,
            prev_end: 0,
            capacity,
            restart: true,
        };
        let mut image = header.encode();
        for record in records {
            // Nobody sees this file before all of it is durable, so each record may say so of those before it.
            let offset = image.len() as u64;
            record::encode(&mut image, seed, offset, offset, record);
        }
        let offset = image.len() as u64;
        let last_index = entries.last().map_or(base, |last| last.index);
        let writer = Writer {
            settings,
            number,
            seed,
            capacity,
            offset,
            synced: offset,
            last_index,
            hard_state: state,
            closed: Vec::new(),
            greatest: last_index,
        };
        Restart { segment: number, capacity, image, writer }
    }
}

impl Writer {
    /// What to do to make these batches durable: one write and one sync, more only where a segment ends.
    pub fn append<'a>(&mut self, batches: impl IntoIterator<Item = &'a Append>) -> Vec<WalOp> {
        let mut out = Pending { ops: Vec::new(), start: self.offset, bytes: Vec::new() };
        for batch in batches {
            for entry in &batch.entries {
                self.put(&mut out, BodyRef::Entry(entry));
                self.last_index = entry.index;
                self.greatest = self.greatest.max(entry.index);
            }
            let Some(state) = batch.hard_state else { continue };
            let before = std::mem::replace(&mut self.hard_state, state);
            self.put(&mut out, BodyRef::HardState(state));
            if (before.term, before.vote) != (state.term, state.vote) {
                // The last record of a log cannot be told from a torn one, and a vote must not be forgotten.
                self.put(&mut out, BodyRef::HardState(state));
            }
        }
        out.flush(self.number);
        if !out.ops.is_empty() {
            out.ops.push(WalOp::Sync { segment: self.number });
        }
        self.synced = self.offset;
        out.ops
    }

    /// An empty record that says that all before it is durable: with it, damage to what was written last can be
    /// told from a torn write. For when nothing else comes for a moment; needs no sync of its own.
    pub fn idle(&mut self) -> Option<WalOp> {
        if self.offset + BodyRef::Idle.size() as u64 > self.capacity {
            return None;
        }
        let (offset, mut bytes) = (self.offset, Vec::new());
        record::encode(&mut bytes, self.seed, offset, self.synced, BodyRef::Idle);
        self.offset += bytes.len() as u64;
        Some(WalOp::Write { segment: self.number, offset, bytes })
    }

    /// The segments that hold nothing behind `through`, oldest first: they may be recycled, in this order.
    pub fn cut(&mut self, through: u64) -> Vec<u64> {
        let dispensable = self.closed.iter().take_while(|(_, greatest)| *greatest <= through).count();
        self.closed.drain(..dispensable).map(|(number, _)| number).collect()
    }

    /// The segment that is written to.
    pub fn segment(&self) -> u64 {
        self.number
    }

    /// How many segments the log has.
    pub fn segment_count(&self) -> usize {
        self.closed.len() + 1
    }

    fn put(&mut self, out: &mut Pending, record: BodyRef<'_>) {
        let size = record.size() as u64;
        if self.offset + size > self.capacity {
            self.roll(out, size);
        }
        record::encode(&mut out.bytes, self.seed, self.offset, self.synced, record);
        self.offset += size;
    }

    fn roll(&mut self, out: &mut Pending, size: u64) {
        out.flush(self.number);
        // Only the last segment may be torn, so this one must be durable before there is a next one.
        out.ops.push(WalOp::Sync { segment: self.number });
        self.closed.push((self.number, self.greatest));
        let state = BodyRef::HardState(self.hard_state);
        let prev_end = self.offset;
        self.number += 1;
        self.seed = Header::seed(self.settings.salt, self.number);
        self.capacity = self.settings.segment_bytes.max(HEADER_BYTES + HEAD_RECORDS_BYTES + size);
        self.greatest = 0;
        let header = Header {
            origin: self.settings.origin,
            number: self.number,
            seed: self.seed,
            first_index: self.last_index + 1,
            prev_end,
            capacity: self.capacity,
            restart: false,
        };
        let mut head = header.encode();
        // Repeated in each segment, so that cutting the older ones cannot lose it. It is durable in the old one
        // already, unless it is new and follows below. The empty record vouches for it from the first moment.
        for record in [state, BodyRef::Idle] {
            let offset = head.len() as u64;
            record::encode(&mut head, self.seed, offset, offset, record);
        }
        self.offset = head.len() as u64;
        self.synced = self.offset;
        out.start = self.offset;
        out.ops.push(WalOp::NewSegment { segment: self.number, capacity: self.capacity, head });
    }
}

/// Records that are encoded and not yet an operation.
struct Pending {
    ops: Vec<WalOp>,
    start: u64,
    bytes: Vec<u8>,
}

impl Pending {
    fn flush(&mut self, segment: u64) {
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            self.ops.push(WalOp::Write { segment, offset: self.start, bytes });
        }
    }
}
