//! Log entries as bytes: a fixed header that says who asked, then the command.
//!
//! ```text
//! 0  format version (1)          1  kind of command
//! 2  member u64 LE               10 boot incarnation u64 LE
//! 18 number u64 LE               26 quota in bytes u64 LE
//! 34 a message of tenure.log, by the kind
//! ```
//!
//! The command is a message at the top level, not a field of another one, so that a nested transaction is just
//! as deep here as on the wire: prost refuses the same ones in both places.

use bytes::{Buf, Bytes};
use prost::Message;
use tenure_proto::log;
use tenure_state::command::{
    Alarm, AlarmAction, Command, Compare, CompareResult, CompareTarget, DeleteRange, Grant, LeaseStep, Op,
    Put, PutLease, Range, Sort, SortOrder, SortTarget, Stamp, TakeOver, Txn,
};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision};
use tenure_state::key::KeyRange;
use thiserror::Error;

const FORMAT: u8 = 1;
const HEADER_LEN: usize = 34;

/// Who proposed an entry, so that the answer finds who waits. No two proposals of a cluster's life are alike:
/// the incarnation is counted up in the data directory at each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub member: MemberId,
    pub incarnation: u64,
    pub number: u64,
}

/// A log entry before it is bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub origin: Origin,
    pub quota_bytes: u64,
    pub command: Command,
    /// The batches of renewals that a [`LeaseStep`] answers; empty for every other command.
    pub batches: Vec<Origin>,
}

/// Bytes that are no entry of ours. Its checksum was right, so this is a newer program or a bug, never a torn
/// write: the member must stop.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EntryError {
    #[error("log entry of format {0}, this program knows up to {FORMAT}: it was written by a newer version")]
    NewerFormat(u8),
    #[error("log entry is cut short")]
    Short,
    #[error("log entry of unknown kind {0}")]
    UnknownKind(u8),
    #[error("log entry does not decode: {0}")]
    Malformed(String),
}

impl From<prost::DecodeError> for EntryError {
    fn from(error: prost::DecodeError) -> EntryError {
        EntryError::Malformed(error.to_string())
    }
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Nothing = 0,
    Put = 1,
    DeleteRange = 2,
    Txn = 3,
    Compact = 4,
    Scrub = 5,
    Grant = 6,
    Revoke = 7,
    LeaseStep = 8,
    TakeOver = 9,
    Alarm = 10,
}

impl Proposal {
    /// The entry as it goes into the log.
    pub fn encode(&self) -> Bytes {
        match &self.command {
            Command::Nothing => self.frame(Kind::Nothing, &()),
            Command::Put(put) => self.frame(Kind::Put, &put_to_log(put)),
            Command::DeleteRange(delete) => self.frame(Kind::DeleteRange, &delete_to_log(delete)),
            Command::Txn(txn) => self.frame(Kind::Txn, &txn_to_log(txn)),
            Command::Compact { revision } => {
                self.frame(Kind::Compact, &log::Compact { revision: revision.0 })
            }
            Command::Scrub { limit } => self.frame(Kind::Scrub, &log::Scrub { limit: *limit }),
            Command::Grant(grant) => self.frame(
                Kind::Grant,
                &log::Grant {
                    term: grant.stamp.term,
                    clock: grant.stamp.clock.0,
                    id: grant.id.0,
                    ttl: grant.ttl.0,
                    parent: grant.parent.0,
                },
            ),
            Command::Revoke { id } => self.frame(Kind::Revoke, &log::Revoke { id: id.0 }),
            Command::LeaseStep(step) => self.frame(
                Kind::LeaseStep,
                &log::LeaseStep {
                    term: step.stamp.term,
                    clock: step.stamp.clock.0,
                    renew: ids_to_bytes(&step.renew),
                    limit: step.limit,
                    last: step.last,
                    batches: self
                        .batches
                        .iter()
                        .map(|batch| log::Batch {
                            member: batch.member.0,
                            incarnation: batch.incarnation,
                            number: batch.number,
                        })
                        .collect(),
                },
            ),
            Command::TakeOver(take_over) => {
                self.frame(Kind::TakeOver, &log::TakeOver { term: take_over.term, grace: take_over.grace.0 })
            }
            Command::Alarm { action, member, alarm } => self.frame(
                Kind::Alarm,
                &log::Alarm {
                    activate: *action == AlarmAction::Activate,
                    member: member.0,
                    kind: match alarm {
                        Alarm::NoSpace => log::AlarmKind::NoSpace.into(),
                        Alarm::Corrupt => log::AlarmKind::Corrupt.into(),
                    },
                },
            ),
        }
    }

    fn frame(&self, kind: Kind, command: &impl Message) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADER_LEN + command.encoded_len());
        bytes.push(FORMAT);
        bytes.push(kind as u8);
        bytes.extend_from_slice(&self.origin.member.0.to_le_bytes());
        bytes.extend_from_slice(&self.origin.incarnation.to_le_bytes());
        bytes.extend_from_slice(&self.origin.number.to_le_bytes());
        bytes.extend_from_slice(&self.quota_bytes.to_le_bytes());
        command.encode(&mut bytes).expect("a vector grows as needed");
        bytes.into()
    }

    /// Reads an entry back; keys and values share its bytes. An empty one is Raft's own of a new term.
    pub fn decode(mut data: Bytes) -> Result<Proposal, EntryError> {
        if data.is_empty() {
            return Ok(Proposal {
                origin: Origin::default(),
                quota_bytes: 0,
                command: Command::Nothing,
                batches: Vec::new(),
            });
        }
        let format = data.get_u8();
        if format != FORMAT {
            return Err(EntryError::NewerFormat(format));
        }
        if data.len() < HEADER_LEN - 1 {
            return Err(EntryError::Short);
        }
        let kind = data.get_u8();
        let origin = Origin {
            member: MemberId(data.get_u64_le()),
            incarnation: data.get_u64_le(),
            number: data.get_u64_le(),
        };
        let quota_bytes = data.get_u64_le();
        let mut batches = Vec::new();
        let command = match kind {
            k if k == Kind::Nothing as u8 => Command::Nothing,
            k if k == Kind::Put as u8 => Command::Put(put_from_log(log::Put::decode(data)?)),
            k if k == Kind::DeleteRange as u8 => {
                Command::DeleteRange(delete_from_log(log::DeleteRange::decode(data)?))
            }
            k if k == Kind::Txn as u8 => Command::Txn(txn_from_log(log::Txn::decode(data)?)?),
            k if k == Kind::Compact as u8 => {
                Command::Compact { revision: Revision(log::Compact::decode(data)?.revision) }
            }
            k if k == Kind::Scrub as u8 => Command::Scrub { limit: log::Scrub::decode(data)?.limit },
            k if k == Kind::Grant as u8 => {
                let grant = log::Grant::decode(data)?;
                Command::Grant(Grant {
                    stamp: Stamp { term: grant.term, clock: Nanos(grant.clock) },
                    id: LeaseId(grant.id),
                    ttl: Nanos(grant.ttl),
                    parent: LeaseId(grant.parent),
                })
            }
            k if k == Kind::Revoke as u8 => Command::Revoke { id: LeaseId(log::Revoke::decode(data)?.id) },
            k if k == Kind::LeaseStep as u8 => {
                let step = log::LeaseStep::decode(data)?;
                batches = step
                    .batches
                    .iter()
                    .map(|batch| Origin {
                        member: MemberId(batch.member),
                        incarnation: batch.incarnation,
                        number: batch.number,
                    })
                    .collect();
                Command::LeaseStep(LeaseStep {
                    stamp: Stamp { term: step.term, clock: Nanos(step.clock) },
                    renew: ids_from_bytes(step.renew)?,
                    limit: step.limit,
                    last: step.last,
                })
            }
            k if k == Kind::TakeOver as u8 => {
                let take_over = log::TakeOver::decode(data)?;
                Command::TakeOver(TakeOver { term: take_over.term, grace: Nanos(take_over.grace) })
            }
            k if k == Kind::Alarm as u8 => {
                let alarm = log::Alarm::decode(data)?;
                Command::Alarm {
                    action: if alarm.activate { AlarmAction::Activate } else { AlarmAction::Deactivate },
                    member: MemberId(alarm.member),
                    alarm: match alarm.kind() {
                        log::AlarmKind::NoSpace => Alarm::NoSpace,
                        log::AlarmKind::Corrupt => Alarm::Corrupt,
                        log::AlarmKind::Unknown => return Err(malformed("alarm of unknown kind")),
                    },
                }
            }
            unknown => return Err(EntryError::UnknownKind(unknown)),
        };
        Ok(Proposal { origin, quota_bytes, command, batches })
    }
}

fn malformed(what: &str) -> EntryError {
    EntryError::Malformed(what.to_owned())
}

/// `ids` must ascend, each once.
fn ids_to_bytes(ids: &[LeaseId]) -> Bytes {
    let mut bytes = Vec::with_capacity(ids.len() * 9);
    let mut before: Option<i64> = None;
    for LeaseId(id) in ids {
        let number = match before {
            None => ((id << 1) ^ (id >> 63)) as u64,
            Some(before) => {
                assert!(before < *id, "the leases of a step ascend");
                id.wrapping_sub(before) as u64
            }
        };
        prost::encoding::encode_varint(number, &mut bytes);
        before = Some(*id);
    }
    bytes.into()
}

fn ids_from_bytes(mut bytes: Bytes) -> Result<Vec<LeaseId>, EntryError> {
    let mut ids: Vec<LeaseId> = Vec::with_capacity(bytes.len() / 4);
    while bytes.has_remaining() {
        let number = prost::encoding::decode_varint(&mut bytes)?;
        let id = match ids.last() {
            None => ((number >> 1) as i64) ^ -((number & 1) as i64),
            Some(LeaseId(before)) => {
                let id = before.wrapping_add(number as i64);
                if id <= *before {
                    return Err(malformed("the leases of a step do not ascend"));
                }
                id
            }
        };
        ids.push(LeaseId(id));
    }
    Ok(ids)
}

fn range_to_pair(range: &KeyRange) -> (Bytes, Bytes) {
    match range {
        KeyRange::One(key) => (key.clone(), Bytes::new()),
        KeyRange::From(key) => (key.clone(), Bytes::from_static(&[0])),
        KeyRange::Span { start, end } => (start.clone(), end.clone()),
    }
}

fn put_to_log(put: &Put) -> log::Put {
    let (lease, keep_lease) = match put.lease {
        PutLease::Set(LeaseId(lease)) => (lease, false),
        PutLease::Keep => (0, true),
    };
    log::Put {
        key: put.key.clone(),
        value: put.value.clone().unwrap_or_default(),
        keep_value: put.value.is_none(),
        lease,
        keep_lease,
        prev: put.prev,
    }
}

fn put_from_log(put: log::Put) -> Put {
    Put {
        key: put.key,
        value: (!put.keep_value).then_some(put.value),
        lease: if put.keep_lease { PutLease::Keep } else { PutLease::Set(LeaseId(put.lease)) },
        prev: put.prev,
    }
}

fn delete_to_log(delete: &DeleteRange) -> log::DeleteRange {
    let (key, range_end) = range_to_pair(&delete.range);
    log::DeleteRange { key, range_end, prev: delete.prev }
}

fn delete_from_log(delete: log::DeleteRange) -> DeleteRange {
    DeleteRange { range: KeyRange::new(delete.key, delete.range_end), prev: delete.prev }
}

fn range_to_log(range: &Range) -> log::Range {
    let (key, range_end) = range_to_pair(&range.range);
    log::Range {
        key,
        range_end,
        revision: range.revision,
        limit: range.limit,
        sort_target: match range.sort.target {
            SortTarget::Key => log::SortTarget::Key,
            SortTarget::Version => log::SortTarget::Version,
            SortTarget::Create => log::SortTarget::Create,
            SortTarget::Mod => log::SortTarget::Mod,
            SortTarget::Value => log::SortTarget::Value,
        }
        .into(),
        sort_order: match range.sort.order {
            SortOrder::None => log::SortOrder::None,
            SortOrder::Ascend => log::SortOrder::Ascend,
            SortOrder::Descend => log::SortOrder::Descend,
        }
        .into(),
        keys_only: range.keys_only,
        count_only: range.count_only,
        mod_min: range.mod_min,
        mod_max: range.mod_max,
        create_min: range.create_min,
        create_max: range.create_max,
    }
}

fn range_from_log(range: log::Range) -> Range {
    let sort = Sort {
        target: match range.sort_target() {
            log::SortTarget::Key => SortTarget::Key,
            log::SortTarget::Version => SortTarget::Version,
            log::SortTarget::Create => SortTarget::Create,
            log::SortTarget::Mod => SortTarget::Mod,
            log::SortTarget::Value => SortTarget::Value,
        },
        order: match range.sort_order() {
            log::SortOrder::None => SortOrder::None,
            log::SortOrder::Ascend => SortOrder::Ascend,
            log::SortOrder::Descend => SortOrder::Descend,
        },
    };
    Range {
        range: KeyRange::new(range.key, range.range_end),
        revision: range.revision,
        limit: range.limit,
        sort,
        keys_only: range.keys_only,
        count_only: range.count_only,
        mod_min: range.mod_min,
        mod_max: range.mod_max,
        create_min: range.create_min,
        create_max: range.create_max,
    }
}

fn txn_to_log(txn: &Txn) -> log::Txn {
    log::Txn {
        compare: txn.compare.iter().map(compare_to_log).collect(),
        success: txn.success.iter().map(op_to_log).collect(),
        failure: txn.failure.iter().map(op_to_log).collect(),
    }
}

fn op_to_log(op: &Op) -> log::Op {
    let op = match op {
        Op::Range(range) => log::op::Op::Range(range_to_log(range)),
        Op::Put(put) => log::op::Op::Put(put_to_log(put)),
        Op::DeleteRange(delete) => log::op::Op::DeleteRange(delete_to_log(delete)),
        Op::Txn(txn) => log::op::Op::Txn(txn_to_log(txn)),
    };
    log::Op { op: Some(op) }
}

fn compare_to_log(compare: &Compare) -> log::Compare {
    let (key, range_end) = range_to_pair(&compare.range);
    let result = match compare.result {
        CompareResult::Equal => log::CompareResult::Equal,
        CompareResult::Greater => log::CompareResult::Greater,
        CompareResult::Less => log::CompareResult::Less,
        CompareResult::NotEqual => log::CompareResult::NotEqual,
    };
    let target = match &compare.target {
        CompareTarget::Version(version) => log::compare::Target::Version(*version),
        CompareTarget::Create(revision) => log::compare::Target::Create(*revision),
        CompareTarget::Mod(revision) => log::compare::Target::Mod(*revision),
        CompareTarget::Value(value) => log::compare::Target::Value(value.clone()),
        CompareTarget::Lease(lease) => log::compare::Target::Lease(*lease),
    };
    log::Compare { key, range_end, result: result.into(), target: Some(target) }
}

fn txn_from_log(txn: log::Txn) -> Result<Txn, EntryError> {
    Ok(Txn {
        compare: txn.compare.into_iter().map(compare_from_log).collect::<Result<_, _>>()?,
        success: txn.success.into_iter().map(op_from_log).collect::<Result<_, _>>()?,
        failure: txn.failure.into_iter().map(op_from_log).collect::<Result<_, _>>()?,
    })
}

fn op_from_log(op: log::Op) -> Result<Op, EntryError> {
    Ok(match op.op.ok_or_else(|| malformed("operation of unknown kind"))? {
        log::op::Op::Range(range) => Op::Range(range_from_log(range)),
        log::op::Op::Put(put) => Op::Put(put_from_log(put)),
        log::op::Op::DeleteRange(delete) => Op::DeleteRange(delete_from_log(delete)),
        log::op::Op::Txn(txn) => Op::Txn(Box::new(txn_from_log(txn)?)),
    })
}

fn compare_from_log(compare: log::Compare) -> Result<Compare, EntryError> {
    let result = match compare.result() {
        log::CompareResult::Equal => CompareResult::Equal,
        log::CompareResult::Greater => CompareResult::Greater,
        log::CompareResult::Less => CompareResult::Less,
        log::CompareResult::NotEqual => CompareResult::NotEqual,
    };
    let target = match compare.target.ok_or_else(|| malformed("comparison without a target"))? {
        log::compare::Target::Version(version) => CompareTarget::Version(version),
        log::compare::Target::Create(revision) => CompareTarget::Create(revision),
        log::compare::Target::Mod(revision) => CompareTarget::Mod(revision),
        log::compare::Target::Value(value) => CompareTarget::Value(value),
        log::compare::Target::Lease(lease) => CompareTarget::Lease(lease),
    };
    Ok(Compare { range: KeyRange::new(compare.key, compare.range_end), result, target })
}

#[cfg(test)]
mod tests;
