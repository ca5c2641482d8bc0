//! One record of the log and its frame.

use bytes::Bytes;

use crate::checksum::crc32c;
use crate::effect::{EntryKind, HardState, LogEntry};
use crate::wal::segment::{HEADER_BYTES, u32_at, u64_at};

pub(super) const FRAME_BYTES: usize = 40;
const CHECKED_BYTES: usize = 32;

const COMMAND: u8 = 1;
const MEMBERS: u8 = 2;
const HARD_STATE: u8 = 3;
const IDLE: u8 = 4;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Entry(LogEntry),
    HardState(HardState),
    /// Nothing, but that everything before it was durable.
    Idle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub body: Body,
    /// How much of the segment was durable before this was written.
    pub prev_synced: u64,
}

/// Why there is no record at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// The frame does not check out.
    Frame,
    /// The frame does, what it frames does not.
    Payload,
    /// It checks out, but nobody of this version wrote it.
    Unknown(u8),
}

/// How many bytes a record with such a payload takes.
pub(super) fn size(payload: usize) -> usize {
    FRAME_BYTES + payload.next_multiple_of(8)
}

/// Appends `body` to `out`; `offset` is where in the segment it will stand.
pub(super) fn encode(out: &mut Vec<u8>, seed: u64, offset: u64, prev_synced: u64, body: BodyRef<'_>) {
    let vote;
    let (kind, term, index, payload): (u8, u64, u64, &[u8]) = match body {
        BodyRef::Entry(entry) => {
            let kind = match entry.kind {
                EntryKind::Command => COMMAND,
                EntryKind::Members => MEMBERS,
            };
            (kind, entry.term, entry.index, &entry.data)
        }
        BodyRef::HardState(state) => {
            vote = state.vote.to_le_bytes();
            (HARD_STATE, state.term, state.commit, &vote)
        }
        BodyRef::Idle => (IDLE, 0, 0, &[]),
    };
    let start = out.len();
    let len =
        u32::try_from(payload.len()).expect("an entry is bounded by the largest request, far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&term.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&prev_synced.to_le_bytes());
    let (seed, offset) = (seed.to_le_bytes(), offset.to_le_bytes());
    let frame = &out[start..];
    let frame_crc = crc32c(&[&seed, &offset, frame]);
    let crc = crc32c(&[&seed, &offset, frame, payload]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&frame_crc.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(start + size(payload.len()), 0);
}

/// What [`encode`] takes: a [`Body`] without owning it.
#[derive(Clone, Copy)]
pub(super) enum BodyRef<'a> {
    Entry(&'a LogEntry),
    HardState(HardState),
    Idle,
}

impl BodyRef<'_> {
    pub(super) fn size(self) -> usize {
        size(match self {
            BodyRef::Entry(entry) => entry.data.len(),
            BodyRef::HardState(_) => 8,
            BodyRef::Idle => 0,
        })
    }
}

/// How long the record is that was written at `offset` and is not whole any more, as far as that can be told from
/// what a used file held there before: its frame checks out, or would with one bit turned over.
pub(super) fn broken_bytes(segment: &[u8], seed: u64, offset: u64) -> Option<u64> {
    let at = usize::try_from(offset).ok()?;
    let mut frame: [u8; FRAME_BYTES] = segment.get(at..at.checked_add(FRAME_BYTES)?)?.try_into().ok()?;
    let (seed, place) = (seed.to_le_bytes(), offset.to_le_bytes());
    let bytes_if_sound = |frame: &[u8; FRAME_BYTES]| {
        let sound = u32_at(frame, 36) == crc32c(&[&seed, &place, &frame[..CHECKED_BYTES]]);
        (sound && frame[4] != 0)
            .then(|| (size(u32_at(frame, 0) as usize) as u64).min(segment.len() as u64 - offset))
    };
    bytes_if_sound(&frame).or_else(|| {
        (0..8 * FRAME_BYTES).find_map(|bit| {
            frame[bit / 8] ^= 1 << (bit % 8);
            let bytes = bytes_if_sound(&frame);
            frame[bit / 8] ^= 1 << (bit % 8);
            bytes
        })
    })
}

/// Reads the record at `offset` of a segment; with it comes the offset behind it.
pub(super) fn decode(segment: &[u8], seed: u64, offset: u64) -> Result<(Record, u64), Bad> {
    let at = usize::try_from(offset).map_err(|_| Bad::Frame)?;
    let frame = at.checked_add(FRAME_BYTES).and_then(|end| segment.get(at..end)).ok_or(Bad::Frame)?;
    let (seed, place) = (seed.to_le_bytes(), offset.to_le_bytes());
    let checked = &frame[..CHECKED_BYTES];
    let prev_synced = u64_at(frame, 24);
    // Cheap, and true of all that was ever written: a search through a segment need not sum up every place.
    if frame[4] == 0 || frame[5..8] != [0; 3] || prev_synced > offset || prev_synced < HEADER_BYTES {
        return Err(Bad::Frame);
    }
    if u32_at(frame, 36) != crc32c(&[&seed, &place, checked]) {
        return Err(Bad::Frame);
    }
    let len = u32_at(frame, 0) as usize;
    let payload = segment.get(at + FRAME_BYTES..at + FRAME_BYTES + len).ok_or(Bad::Payload)?;
    if u32_at(frame, 32) != crc32c(&[&seed, &place, checked, payload]) {
        return Err(Bad::Payload);
    }
    let (term, index) = (u64_at(frame, 8), u64_at(frame, 16));
    let entry = |kind| Body::Entry(LogEntry { term, index, kind, data: Bytes::copy_from_slice(payload) });
    let body = match frame[4] {
        COMMAND => entry(EntryKind::Command),
        MEMBERS => entry(EntryKind::Members),
        HARD_STATE if len == 8 => {
            Body::HardState(HardState { term, vote: u64_at(payload, 0), commit: index })
        }
        IDLE => Body::Idle,
        other => return Err(Bad::Unknown(other)),
    };
    Ok((Record { body, prev_synced }, offset + size(len) as u64))
}
