//! Rows of the checkpoint: what an ordered store of bytes keeps for each thing that a state is made of.
//!
//! ```text
//! key   = kind u8 | what it is called, big-endian, so that keys sort as the things do
//! value = content, little-endian | CRC32C of key and content
//! ```
//!
//! Rows go by revision or lease id, never by a user's key, so a key takes 13 bytes at most. The kinds sort in the
//! order in which a reader needs them: whose rows these are and in which format, then as of when, then the rest.

use std::fmt;

use bytes::Bytes;
use tenure_state::applied::{Change, LeaseRow, Meta};
use tenure_state::command::Alarm;
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;
use thiserror::Error;

use crate::checksum::crc32c;
use crate::effect::Membership;
use crate::wal::Origin;

/// The version of the format of rows. A newer one is refused by name, so the row that says it keeps its key, its
/// first four bytes and its checksum in all of them.
pub const FORMAT: u32 = 1;

/// What a row is about. Sorts as its bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    Format,
    Head,
    Membership,
    Record(RevisionAt),
    Lease(LeaseId),
}

/// For people who read what is damaged.
impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowKey::Format => f.write_str("the row that names the format"),
            RowKey::Head => f.write_str("the row that says as of when the others are"),
            RowKey::Membership => f.write_str("the row that names the members"),
            RowKey::Record(at) => write!(f, "change {} of revision {}", at.sub, at.main.0),
            RowKey::Lease(id) => write!(f, "lease {id}"),
        }
    }
}

/// The bytes of a key; they are few, so they need no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    bytes: [u8; 13],
    len: usize,
}

impl std::ops::Deref for KeyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A row that was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    Format { format: u32, origin: Origin },
    Head(Head),
    Membership(Membership),
    Record(Record),
    Lease(LeaseRow),
}

/// As of when the rows are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub meta: Meta,
    /// The term of the entry at the applied index.
    pub term: u64,
    /// How many rows there are in all, this one too: a row that is lost is noticed.
    pub row_count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RowError {
    #[error("a key that no version of this format has")]
    Key,
    #[error("checksum of the row does not match")]
    Checksum,
    #[error("the row checks out but does not hold what its key says")]
    Content,
    #[error("rows of format {found}, but this build reads formats up to {FORMAT}")]
    NewerFormat { found: u32 },
}

const KIND_FORMAT: u8 = 0;
const KIND_HEAD: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;
const KIND_RECORD: u8 = 3;
const KIND_LEASE: u8 = 4;

impl RowKey {
    pub fn of(change: &Change) -> RowKey {
        match change {
            Change::Record(record) => RowKey::Record(record.at),
            Change::RecordGone(at) => RowKey::Record(*at),
            Change::Lease(row) => RowKey::Lease(row.id),
            Change::LeaseGone(id) => RowKey::Lease(*id),
        }
    }

    pub fn encode(self) -> KeyBytes {
        let mut key = KeyBytes { bytes: [0; 13], len: 0 };
        let mut put = |part: &[u8]| {
            key.bytes[key.len..key.len + part.len()].copy_from_slice(part);
            key.len += part.len();
        };
        match self {
            RowKey::Format => put(&[KIND_FORMAT]),
            RowKey::Head => put(&[KIND_HEAD]),
            RowKey::Membership => put(&[KIND_MEMBERSHIP]),
            RowKey::Record(at) => {
                put(&[KIND_RECORD]);
                put(&sortable(at.main.0));
                put(&at.sub.to_be_bytes());
            }
            RowKey::Lease(id) => {
                put(&[KIND_LEASE]);
                put(&sortable(id.0));
            }
        }
        key
    }

    pub fn decode(key: &[u8]) -> Result<RowKey, RowError> {
        let (kind, rest) = key.split_first().ok_or(RowError::Key)?;
        Ok(match (*kind, rest.len()) {
            (KIND_FORMAT, 0) => RowKey::Format,
            (KIND_HEAD, 0) => RowKey::Head,
            (KIND_MEMBERSHIP, 0) => RowKey::Membership,
            (KIND_RECORD, 12) => RowKey::Record(RevisionAt {
                main: Revision(unsortable(&rest[..8])),
                sub: u32::from_be_bytes(rest[8..].try_into().expect("twelve bytes were matched")),
            }),
            (KIND_LEASE, 8) => RowKey::Lease(LeaseId(unsortable(rest))),
            _ => return Err(RowError::Key),
        })
    }
}

/// Big-endian with the sign turned over: sorts as the numbers do, negative ones first.
fn sortable(number: i64) -> [u8; 8] {
    (number.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn unsortable(bytes: &[u8]) -> i64 {
    let bytes = bytes.try_into().expect("the caller sliced eight bytes");
    (u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed()
}

/// The value for a change, without key; `None` where the row goes.
pub fn encode_change(change: &Change) -> Option<Vec<u8>> {
    let key = RowKey::of(change).encode();
    let mut out = Vec::new();
    match change {
        Change::RecordGone(_) | Change::LeaseGone(_) => return None,
        Change::Record(record) => {
            out.reserve_exact(32 + record.key.len() + record.value.len() + 4);
            put_i64(&mut out, record.create.0);
            put_i64(&mut out, record.version);
            put_i64(&mut out, record.lease.0);
            put_u32(&mut out, record.key.len().try_into().expect("a key is bounded by the largest request"));
            out.extend_from_slice(&record.key);
            out.extend_from_slice(&record.value);
        }
        Change::Lease(row) => {
            for number in [row.ttl, row.deadline, row.base, row.granted] {
                put_u64(&mut out, number.0);
            }
            put_i64(&mut out, row.parent.0);
            put_u32(&mut out, row.depth);
        }
    }
    Some(seal(&key, out))
}

pub fn encode_format(origin: Origin) -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, FORMAT);
    put_u64(&mut out, origin.cluster);
    put_u64(&mut out, origin.member);
    seal(&RowKey::Format.encode(), out)
}

pub fn encode_head(head: &Head) -> Vec<u8> {
    let Head { meta, term, row_count } = head;
    let mut out = Vec::new();
    put_u64(&mut out, *row_count);
    put_u64(&mut out, *term);
    put_u64(&mut out, meta.applied);
    put_u64(&mut out, meta.clock.0);
    put_i64(&mut out, meta.revision.0);
    put_i64(&mut out, meta.compacted.0);
    put_i64(&mut out, meta.scrubbed.main.0);
    put_u32(&mut out, meta.scrubbed.sub);
    for (member, alarm) in &meta.alarms {
        put_u64(&mut out, member.0);
        out.push(match alarm {
            Alarm::NoSpace => 1,
            Alarm::Corrupt => 2,
        });
    }
    seal(&RowKey::Head.encode(), out)
}

pub fn encode_membership(membership: &Membership) -> Vec<u8> {
    let Membership { voters, learners, voters_outgoing, learners_next, auto_leave } = membership;
    let mut out = vec![u8::from(*auto_leave)];
    for list in [voters, learners, voters_outgoing, learners_next] {
        put_u32(&mut out, list.len().try_into().expect("a cluster has a handful of members"));
        for member in list {
            put_u64(&mut out, *member);
        }
    }
    seal(&RowKey::Membership.encode(), out)
}

/// Reads a row and checks it.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Row, RowError> {
    let row_key = RowKey::decode(key)?;
    let mut content = Content(unseal(key, value).ok_or(RowError::Checksum)?);
    if row_key == RowKey::Format
        && let Some(found) = Content(content.0).u32().filter(|format| *format > FORMAT)
    {
        return Err(RowError::NewerFormat { found });
    }
    let row = content.row(row_key).ok_or(RowError::Content)?;
    if content.0.is_empty() { Ok(row) } else { Err(RowError::Content) }
}

fn seal(key: &[u8], mut content: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&[key, &content]);
    content.extend_from_slice(&crc.to_le_bytes());
    content
}

fn unseal<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    let (content, crc) = value.split_last_chunk::<4>()?;
    (crc32c(&[key, content]) == u32::from_le_bytes(*crc)).then_some(content)
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// What is left to read of a row.
struct Content<'a>(&'a [u8]);

impl<'a> Content<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("so many bytes were taken"))
    }

    fn u32(&mut self) -> Option<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.number().map(i64::from_le_bytes)
    }

    fn list(&mut self) -> Option<Vec<u64>> {
        let len = self.u32()?;
        (0..len).map(|_| self.u64()).collect()
    }

    fn row(&mut self, key: RowKey) -> Option<Row> {
        Some(match key {
            RowKey::Format => Row::Format {
                format: self.u32()?,
                origin: Origin { cluster: self.u64()?, member: self.u64()? },
            },
            RowKey::Head => Row::Head(self.head()?),
            RowKey::Membership => Row::Membership(self.membership()?),
            RowKey::Record(at) => {
                let create = Revision(self.i64()?);
                let version = self.i64()?;
                let lease = LeaseId(self.i64()?);
                let key_len = self.u32()? as usize;
                let key = Bytes::copy_from_slice(self.take(key_len)?);
                let value = Bytes::copy_from_slice(self.take(self.0.len())?);
                Row::Record(Record { key, value, create, at, version, lease })
            }
            RowKey::Lease(id) => Row::Lease(LeaseRow {
                id,
                ttl: Nanos(self.u64()?),
                deadline: Nanos(self.u64()?),
                base: Nanos(self.u64()?),
                granted: Nanos(self.u64()?),
                parent: LeaseId(self.i64()?),
                depth: self.u32()?,
            }),
        })
    }

    fn head(&mut self) -> Option<Head> {
        let row_count = self.u64()?;
        let term = self.u64()?;
        let mut meta = Meta {
            applied: self.u64()?,
            clock: Nanos(self.u64()?),
            revision: Revision(self.i64()?),
            compacted: Revision(self.i64()?),
            scrubbed: RevisionAt { main: Revision(self.i64()?), sub: self.u32()? },
            alarms: Vec::new(),
        };
        while !self.0.is_empty() {
            let member = MemberId(self.u64()?);
            let alarm = match self.take(1)? {
                [1] => Alarm::NoSpace,
                [2] => Alarm::Corrupt,
                _ => return None,
            };
            meta.alarms.push((member, alarm));
        }
        Some(Head { meta, term, row_count })
    }

    fn membership(&mut self) -> Option<Membership> {
        let auto_leave = match self.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Membership {
            voters: self.list()?,
            learners: self.list()?,
            voters_outgoing: self.list()?,
            learners_next: self.list()?,
            auto_leave,
        })
    }
}

#[cfg(test)]
mod tests;
