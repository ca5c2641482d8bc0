//! The head of a segment: whose it is, what it follows.

use thiserror::Error;

use crate::checksum::crc32c;
use crate::wal::FORMAT;

/// A sector of its own, so that no later write touches the sector that a header is in.
pub const HEADER_BYTES: u64 = 512;

const MAGIC: [u8; 8] = *b"TENUREWL";
const CRC_AT: usize = 80;
const RESTART: u32 = 1;

/// Whose log this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub cluster: u64,
    pub member: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub origin: Origin,
    /// Counts up by one and is never used twice in a directory.
    pub number: u64,
    /// What the checksums of this segment start with.
    pub seed: u64,
    /// The index that the next new entry had when the segment was begun.
    pub first_index: u64,
    /// Where the records of the segment before this one end.
    pub prev_end: u64,
    /// The length of the file. A shorter one was cut off by something else than us.
    pub capacity: u64,
    /// Nothing before this segment counts.
    pub restart: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    #[error("not the header of a log segment")]
    NotASegment,
    #[error("format {found}, but this build reads formats up to {FORMAT}")]
    NewerFormat { found: u32 },
    #[error("checksum of the segment header does not match")]
    Checksum,
}

impl Header {
    /// The seed of a segment. Two segments of one life of a member differ in 32 adjoining bits, which a CRC32C
    /// tells apart always, not just very likely; those of two lives by the salt that was drawn for each.
    pub(crate) fn seed(salt: u32, number: u64) -> u64 {
        (u64::from(salt) << 32) | (number & 0xffff_ffff)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&if self.restart { RESTART } else { 0 }.to_le_bytes());
        let numbers = [
            self.origin.cluster,
            self.origin.member,
            self.number,
            self.seed,
            self.first_index,
            self.prev_end,
            self.capacity,
            0,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        debug_assert_eq!(bytes.len(), CRC_AT);
        bytes.extend_from_slice(&crc32c(&[&bytes]).to_le_bytes());
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes
    }

    /// Reads the first [`HEADER_BYTES`] of a segment.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            return Err(HeaderError::NotASegment);
        };
        if bytes[..8] != MAGIC {
            return Err(HeaderError::NotASegment);
        }
        if u32_at(bytes, CRC_AT) != crc32c(&[&bytes[..CRC_AT]]) {
            return Err(HeaderError::Checksum);
        }
        let format = u32_at(bytes, 8);
        if format > FORMAT {
            return Err(HeaderError::NewerFormat { found: format });
        }
        let number = |place: usize| u64_at(bytes, 16 + place * 8);
        Ok(Header {
            origin: Origin { cluster: number(0), member: number(1) },
            number: number(2),
            seed: number(3),
            first_index: number(4),
            prev_end: number(5),
            capacity: number(6),
            restart: u32_at(bytes, 12) & RESTART != 0,
        })
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were sliced"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were sliced"))
}
