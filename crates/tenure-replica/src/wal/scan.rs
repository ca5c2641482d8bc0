//! What to believe of a segment that is read back.
//!
//! In a closed segment (one that another follows) every record up to its named end was durable before the next
//! segment got its name: anything else there is damage. In the last segment the log ends at the first place that
//! holds no record. That is a tear, and is cut, only if nothing shows that this place was durable once: each record
//! names how far the segment was durable before it, those behind the bad place too (a write that tears may lose any
//! of its sectors, not just the last ones). Cutting durable records would let a member vote without entries that
//! it acknowledged, which is how damage to one becomes loss for all.

use crate::effect::HardState;
use crate::wal::record::{self, Bad, Body, Record};
use crate::wal::segment::{HEADER_BYTES, Header};

/// Records that must be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub offset: u64,
    pub what: String,
    /// What stands before it. For whoever saves what is readable; a member must not go on with it.
    pub before: Vec<Body>,
}

/// What the last segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    pub bodies: Vec<Body>,
    pub tail: Tail,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Where the last record ends that counts.
    pub end: u64,
    /// How many bytes behind the end were records of this log and were cut, because one of them is not whole: a torn
    /// write, or damage that looks like one. Where nothing tells what is there from what the file held before, 0.
    pub torn_bytes: u64,
    /// How many records behind the end check out and were cut because one before them does not: a torn write.
    pub cut: usize,
    /// A vote among those: adopting it is always safe, forgetting it might not be.
    pub vote: Option<HardState>,
}

/// The records of a segment that ends at `end` because the next one says so.
pub fn scan_closed(header: &Header, segment: &[u8], end: u64) -> Result<Vec<Body>, Damage> {
    let mut bodies = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < end {
        match record::decode(segment, header.seed, offset) {
            Ok((record, next)) => {
                bodies.push(record.body);
                offset = next;
            }
            Err(bad) => {
                let what = format!("{} in a segment that is complete", name(bad));
                return Err(Damage { offset, what, before: bodies });
            }
        }
    }
    if offset != end {
        let what =
            format!("a record ends at {offset}, but the next segment says that this one ends at {end}");
        return Err(Damage { offset, what, before: bodies });
    }
    check_length(header, segment, bodies)
}

/// The records of the last segment, up to a tear if there is one.
pub fn scan_last(header: &Header, segment: &[u8]) -> Result<Scanned, Damage> {
    let mut bodies = Vec::new();
    let mut durable = HEADER_BYTES;
    let mut offset = HEADER_BYTES;
    let bad = loop {
        match record::decode(segment, header.seed, offset) {
            Ok((record, next)) => {
                durable = durable.max(record.prev_synced);
                bodies.push(record.body);
                offset = next;
            }
            Err(bad) => break bad,
        }
    };
    if let Bad::Unknown(_) = bad {
        return Err(Damage { offset, what: name(bad), before: bodies });
    }
    let torn_bytes = record::broken_bytes(segment, header.seed, offset).unwrap_or(0);
    let mut tail = Tail { end: offset, torn_bytes, ..Tail::default() };
    for (Record { body, prev_synced }, end) in records_behind(header, segment, offset) {
        tail.torn_bytes = tail.torn_bytes.max(end - offset);
        durable = durable.max(prev_synced);
        tail.cut += 1;
        if let Body::HardState(state) = body
            && tail.vote.is_none_or(|vote| (vote.term, vote.vote) < (state.term, state.vote))
        {
            tail.vote = Some(state);
        }
    }
    if offset < durable {
        let what = format!("{}, and later records show that it was durable up to {durable}", name(bad));
        return Err(Damage { offset, what, before: bodies });
    }
    Ok(Scanned { bodies: check_length(header, segment, bodies)?, tail })
}

/// Every record that checks out anywhere behind `offset`, with its end.
fn records_behind(header: &Header, segment: &[u8], offset: u64) -> impl Iterator<Item = (Record, u64)> {
    let mut offset = offset + 8;
    std::iter::from_fn(move || {
        while offset < segment.len() as u64 {
            match record::decode(segment, header.seed, offset) {
                Ok((record, next)) => {
                    offset = next;
                    return Some((record, next));
                }
                Err(_) => offset += 8,
            }
        }
        None
    })
}

/// Hands `bodies` on if the file is as long as it was made.
fn check_length(header: &Header, segment: &[u8], bodies: Vec<Body>) -> Result<Vec<Body>, Damage> {
    let len = segment.len() as u64;
    if len < header.capacity {
        let what = format!("the file was cut off: it was made with {} bytes and has {len}", header.capacity);
        return Err(Damage { offset: len, what, before: bodies });
    }
    Ok(bodies)
}

fn name(bad: Bad) -> String {
    match bad {
        Bad::Frame => "no valid record".to_owned(),
        Bad::Payload => "a record whose checksum does not match".to_owned(),
        Bad::Unknown(kind) => format!("a record of type {kind}, which this build does not know"),
    }
}
