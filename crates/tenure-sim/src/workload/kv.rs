//! Clients that read and write a few keys, each value once in the life of a run.

use bytes::Bytes;
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::command::{
    Compare, CompareResult, CompareTarget, DeleteRange, Op, Put, PutLease, Range, Txn,
};
use tenure_state::ids::{LeaseId, Revision};
use tenure_state::key::KeyRange;

use super::{Cx, RETRY, range_of};
use crate::clock::MS;
use crate::history::Ask;

const KEY_COUNT: u64 = 8;

pub struct Kv {
    /// How long it thinks between two requests.
    pub pace: u64,
    waiting: Option<usize>,
}

impl Kv {
    pub fn new(pace: u64) -> Kv {
        Kv { pace, waiting: None }
    }

    pub fn wake(&mut self, cx: &mut Cx<'_>) {
        if self.waiting.is_some() || cx.is_over() {
            return;
        }
        let (ask, nth) = draw(cx);
        self.waiting = cx.ask_for(ask, nth);
        if self.waiting.is_none() {
            cx.sleep(RETRY);
        }
    }

    pub fn answered(&mut self, cx: &mut Cx<'_>, op: usize) {
        if self.waiting == Some(op) {
            self.waiting = None;
            let pace = cx.world.rng.wait(self.pace);
            cx.sleep(pace);
        }
    }
}

fn key(cx: &mut Cx<'_>) -> Bytes {
    format!("k{}", cx.rng().below(KEY_COUNT)).into()
}

fn keys(cx: &mut Cx<'_>) -> KeyRange {
    match cx.rng().below(4) {
        0 => KeyRange::From(Bytes::from_static(&[0])),
        1 => KeyRange::Span { start: key(cx), end: key(cx) },
        _ => KeyRange::One(key(cx)),
    }
}

/// Mostly no lease, sometimes one of somebody else.
fn lease(cx: &mut Cx<'_>) -> LeaseId {
    let shared = &cx.world.shared_leases;
    if shared.is_empty() || !cx.world.rng.chance(250) {
        return LeaseId::NONE;
    }
    let from = shared.len().saturating_sub(12);
    LeaseId(cx.world.rng.pick(&shared[from..]).0)
}

fn put(cx: &mut Cx<'_>) -> Put {
    Put { key: key(cx), value: Some(cx.value()), lease: PutLease::Set(lease(cx)), prev: cx.rng().chance(300) }
}

fn delete(cx: &mut Cx<'_>) -> DeleteRange {
    // Never everything: other clients' leases would have no keys left.
    let range = match cx.rng().below(5) {
        0 => KeyRange::Span { start: "k2".into(), end: "k5".into() },
        _ => KeyRange::One(key(cx)),
    };
    DeleteRange { range, prev: cx.rng().chance(300) }
}

fn range(cx: &mut Cx<'_>) -> Range {
    let mut range = range_of(keys(cx));
    if cx.rng().chance(300) {
        let back = cx.rng().below(40) as i64;
        range.revision = (cx.world.last_header - back + 3).max(0);
    }
    range
}

fn txn(cx: &mut Cx<'_>) -> Txn {
    let target = match cx.rng().below(3) {
        0 => CompareTarget::Mod((cx.world.last_header - cx.world.rng.below(20) as i64).max(0)),
        1 => CompareTarget::Create(0),
        _ => CompareTarget::Version(cx.rng().below(4) as i64),
    };
    let result = *cx.rng().pick(&[CompareResult::Equal, CompareResult::Greater, CompareResult::NotEqual]);
    let compare = vec![Compare { range: KeyRange::One(key(cx)), result, target }];
    let branch = |cx: &mut Cx<'_>| {
        let mut ops = Vec::new();
        let mut used = Vec::new();
        for _ in 0..cx.rng().below(4) {
            match cx.rng().below(4) {
                0 => ops.push(Op::Range(range_of(KeyRange::One(key(cx))))),
                1 => {
                    let key = key(cx);
                    if !used.contains(&key) {
                        used.push(key.clone());
                        ops.push(Op::DeleteRange(DeleteRange { range: KeyRange::One(key), prev: true }));
                    }
                }
                _ => {
                    let put = put(cx);
                    if !used.contains(&put.key) {
                        used.push(put.key.clone());
                        ops.push(Op::Put(put));
                    }
                }
            }
        }
        ops
    };
    let success = branch(cx);
    let failure = branch(cx);
    Txn { compare, success, failure }
}

fn draw(cx: &mut Cx<'_>) -> (Ask, u32) {
    let ask = match cx.rng().below(100) {
        0..=34 => Ask::Write(Write::Put(put(cx))),
        35..=44 => Ask::Write(Write::DeleteRange(delete(cx))),
        45..=59 => match txn(cx) {
            txn if txn.is_read_only() => Ask::Read(Read::Txn(txn), Consistency::Linearizable),
            txn => Ask::Write(Write::Txn(txn)),
        },
        60..=77 => Ask::Read(Read::Range(range(cx)), Consistency::Linearizable),
        78..=88 => Ask::Read(Read::Range(range(cx)), Consistency::Serializable),
        89..=94 => Ask::Read(Read::Status, Consistency::Serializable),
        95..=97 => {
            let Some((id, nth)) = cx.world.shared_leases.last().copied() else { return draw(cx) };
            let read = Read::TimeToLive { id: LeaseId(id), keys: true };
            return (Ask::Read(read, Consistency::Linearizable), nth);
        }
        _ => {
            let Some((id, nth)) = cx.world.shared_leases.last().copied() else { return draw(cx) };
            return (Ask::Write(Write::Revoke { id: LeaseId(id) }), nth);
        }
    };
    (ask, 0)
}

/// Compacts again and again.
pub struct Compactor {
    pub pace: u64,
}

impl Compactor {
    pub fn wake(&mut self, cx: &mut Cx<'_>) {
        if cx.is_over() {
            return;
        }
        let back = cx.rng().below(30) as i64;
        let revision = Revision((cx.world.last_header - back).max(1));
        let physical = cx.rng().chance(300);
        cx.ask(Ask::Write(Write::Compact { revision, physical }));
        let pace = cx.world.rng.wait(self.pace) + 10 * MS;
        cx.sleep(pace);
    }
}
