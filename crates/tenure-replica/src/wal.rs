//! The write-ahead log as bytes: what a segment looks like, what to write for a batch, what to believe of what is
//! read back. No file is touched here; whoever owns files carries out [`WalOp`]s, the simulator among them.
//!
//! ```text
//! segment = header, zero-padded to 512 bytes · records, each 8-byte aligned · whatever the file held before
//! record  = len u32 | type u8 | 0 u8 | 0 u16 | term u64 | index u64 | prev_synced_off u64
//!           | crc u32 of header and payload | crc u32 of the header alone | payload | zeros to 8 bytes
//! ```
//!
//! Both checksums (CRC32C) start with the segment's seed and the record's offset, so a record checks out only where
//! it was written: what a recycled segment held in an earlier life never comes back. The header has a checksum of
//! its own so that a length is believed only once it checked out, and a search for records behind a damaged one
//! looks at each place once.
//!
//! `prev_synced_off` says how much of the segment was durable *before* this record was written. That is what tells
//! a torn write from damage: see [`scan`].
//!
//! Each segment names the place where the one before it ended, and repeats the hard state. A start of the process
//! begins the log anew: what must be kept is copied into one segment with [`Restart`], which becomes visible
//! only when all of it is durable. So no record that was once in doubt is built upon, and nothing older than the
//! last restart is read again.

mod record;
mod scan;
mod segment;
mod writer;

pub use record::{Body, Record};
pub use scan::{Damage, Scanned, Tail, scan_closed, scan_last};
pub use segment::{HEADER_BYTES, Header, HeaderError, Origin};
pub use writer::{Restart, Settings, Writer};

/// The version of the format of segments. A newer one is refused by name, so the header keeps its magic, the place
/// of this number and its checksum in all of them.
pub const FORMAT: u32 = 1;

/// One thing to do to the files of the log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalOp {
    Write {
        segment: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Make all that was written to this segment durable.
    Sync {
        segment: u64,
    },
    /// Make a segment of `capacity` bytes that begins with `head` and is otherwise whatever a spare file holds, and
    /// give it its name only when `head` is durable. The name must be durable before the next operation.
    NewSegment {
        segment: u64,
        capacity: u64,
        head: Vec<u8>,
    },
}

#[cfg(test)]
mod tests;
