//! The lease table against a model so plain that it can be checked by reading.
//!
//! Two tables go through the same operations as the model. The second one is also asked far more often what is
//! due, looks ahead of its clock, and is at times rebuilt from its rows: none of that may ever be seen.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use tenure_state::applied::{LeaseRow, Renewed};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::lease::{DEPTH_MAX, Ended, LeaseTable};
use tenure_state::refusal::Refusal;

/// What `end` answers, in a form that can be compared.
type Gone = (LeaseId, Nanos, Vec<Bytes>);

struct Model {
    clock: u64,
    rows: BTreeMap<LeaseId, LeaseRow>,
    lease_of: BTreeMap<Bytes, LeaseId>,
}

impl Model {
    fn cap(&self, row: &LeaseRow) -> Nanos {
        if row.parent.is_none() { Nanos::MAX } else { self.rows[&row.parent].deadline }
    }

    fn grant(&mut self, id: LeaseId, ttl: Nanos, parent: LeaseId, at: Nanos) -> Result<LeaseRow, Refusal> {
        if self.rows.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let mut depth = 0;
        if !parent.is_none() {
            depth = self.rows.get(&parent).ok_or(Refusal::ParentNotFound)?.depth + 1;
        }
        if depth > DEPTH_MAX {
            return Err(Refusal::TreeTooDeep);
        }
        let mut row = LeaseRow { id, ttl, deadline: at + ttl, base: at + ttl, granted: at, parent, depth };
        row.deadline = row.deadline.min(self.cap(&row));
        row.base = row.deadline;
        self.rows.insert(id, row);
        Ok(row)
    }

    /// Leases in the order (depth, id).
    fn parents_first(&self) -> Vec<LeaseId> {
        let mut ids: Vec<_> = self.rows.values().map(|row| (row.depth, row.id)).collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn renew(&mut self, ids: &[LeaseId], at: Nanos) -> Vec<Renewed> {
        for id in self.parents_first() {
            if ids.contains(&id) {
                let mut row = self.rows[&id];
                row.deadline = row.deadline.max((at + row.ttl).min(self.cap(&row)));
                row.base = row.deadline;
                self.rows.insert(id, row);
            }
        }
        let now = at.0.max(self.clock);
        let left = |row: &LeaseRow| Nanos(row.deadline.0.saturating_sub(now)).min(row.ttl);
        ids.iter().map(|&id| Renewed { id, remaining: self.rows.get(&id).map(left) }).collect()
    }

    fn take_over(&mut self, grace: Nanos) {
        let clock = Nanos(self.clock);
        for id in self.parents_first() {
            let mut row = self.rows[&id];
            if row.deadline < clock + grace {
                let span = row.ttl.min(grace);
                let wanted = (clock + span).min(row.base + span + span + span);
                row.deadline = row.deadline.max(wanted.min(self.cap(&row)));
                self.rows.insert(id, row);
            }
        }
    }

    fn next_due(&self, now: Nanos) -> Option<(LeaseId, Nanos)> {
        let due = self.rows.values().filter(|row| row.deadline <= now);
        due.min_by_key(|row| (row.deadline, row.depth, row.id)).map(|row| (row.id, row.deadline))
    }

    fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.lease_of.iter().filter(|(_, lease)| **lease == id).map(|(key, _)| key.clone()).collect()
    }

    fn end(&mut self, id: LeaseId) -> Vec<Gone> {
        let mut level: Vec<LeaseId> = self.rows.get(&id).map(|row| row.id).into_iter().collect();
        let mut gone = Vec::new();
        while !level.is_empty() {
            let below =
                self.rows.values().filter(|row| level.contains(&row.parent)).map(|row| row.id).collect();
            for id in level {
                gone.push((id, self.rows[&id].deadline, self.keys(id)));
                self.rows.remove(&id);
            }
            level = below;
        }
        self.lease_of.retain(|_, lease| self.rows.contains_key(lease));
        gone
    }

    fn list(&self) -> Vec<LeaseId> {
        let mut ids: Vec<_> = self.rows.values().map(|row| (row.deadline, row.id)).collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Grant {
        id: LeaseId,
        ttl: Nanos,
        parent: LeaseId,
        off: i64,
    },
    Renew {
        ids: BTreeSet<LeaseId>,
        off: i64,
    },
    TakeOver {
        grace: Nanos,
    },
    Advance {
        by: u64,
    },
    ExpireSome {
        limit: usize,
    },
    Revoke {
        id: LeaseId,
    },
    Attach {
        key: Bytes,
        lease: LeaseId,
    },
    Detach {
        key: Bytes,
    },
    /// Of the second table only: looks this far ahead.
    Look {
        ahead: u64,
    },
    /// Of the second table only: stored and loaded, the rows in another order.
    Reload {
        rotation: usize,
    },
}

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn an_id() -> impl Strategy<Value = LeaseId> {
    prop_oneof![8 => 1..16i64, 1 => -3..0i64, 1 => 1..60i64, 1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)]]
        .prop_map(LeaseId)
}

fn a_parent() -> impl Strategy<Value = LeaseId> {
    prop_oneof![1 => Just(LeaseId::NONE), 2 => an_id()]
}

fn a_key() -> impl Strategy<Value = Bytes> {
    (0..20u8).prop_map(|number| Bytes::from(vec![b'k', number]))
}

/// Spans that collide often, and spans of all sizes.
fn a_span() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (1..6u64).prop_map(|n| n * SECOND),
        2 => 0..5 * SECOND,
        2 => (0..20u64).prop_map(|n| n << 20),
        1 => 0..100_000 * SECOND,
        1 => (0..63u32, 0..3u64).prop_map(|(bits, off)| ((1u64 << bits) + off).saturating_sub(1)),
        1 => Just(9_000_000_000 * SECOND),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    // Stamps come mostly at C, sometimes from before it moved on or from ahead of it.
    let off = prop_oneof![4 => Just(0), 1 => -3_000_000_000..1_000_000_000i64];
    prop_oneof![
        10 => (an_id(), a_span(), a_parent(), off.clone())
            .prop_map(|(id, ttl, parent, off)| Step::Grant { id, ttl: Nanos(ttl), parent, off }),
        4 => (btree_set(an_id(), 0..25), off).prop_map(|(ids, off)| Step::Renew { ids, off }),
        2 => a_span().prop_map(|grace| Step::TakeOver { grace: Nanos(grace) }),
        4 => prop_oneof![0..2 * SECOND, (0..30u64).prop_map(|n| n << 19)].prop_map(|by| Step::Advance { by }),
        1 => prop_oneof![a_span(), 0..4000 * DAY].prop_map(|by| Step::Advance { by }),
        3 => (0..4usize).prop_map(|limit| Step::ExpireSome { limit }),
        1 => an_id().prop_map(|id| Step::Revoke { id }),
        3 => (a_key(), an_id()).prop_map(|(key, lease)| Step::Attach { key, lease }),
        1 => a_key().prop_map(|key| Step::Detach { key }),
        3 => a_span().prop_map(|ahead| Step::Look { ahead }),
        1 => (0..50usize).prop_map(|rotation| Step::Reload { rotation }),
    ]
}

fn gone(ended: Vec<Ended>) -> Vec<Gone> {
    ended.into_iter().map(|ended| (ended.id, ended.deadline, ended.keys)).collect()
}

fn reload(table: &LeaseTable, rotation: usize) -> LeaseTable {
    let mut rows = table.rows();
    if !rows.is_empty() {
        let by = rotation % rows.len();
        rows.rotate_left(by);
    }
    let mut loaded = LeaseTable::new(table.clock());
    for row in &rows {
        loaded.load(*row);
    }
    loaded.finish_load().expect("the rows of a sound table are sound");
    for row in &rows {
        for key in table.keys(row.id) {
            loaded.attach(key, LeaseId::NONE, row.id);
        }
    }
    loaded
}

/// The rows that `changed` leaves behind must be the difference between before and after, no more and no less.
fn check_changed(
    before: &BTreeMap<LeaseId, LeaseRow>,
    after: &BTreeMap<LeaseId, LeaseRow>,
    changed: &[LeaseRow],
) {
    let told: BTreeMap<_, _> = changed.iter().map(|row| (row.id, *row)).collect();
    let real =
        after.iter().filter(|(id, row)| before.get(id) != Some(row)).map(|(id, row)| (*id, *row)).collect();
    assert_eq!(told, real);
}

fn compare(model: &Model, table: &LeaseTable) {
    table.assert_invariants();
    assert_eq!(table.clock(), Nanos(model.clock));
    assert_eq!(table.rows(), model.rows.values().copied().collect::<Vec<_>>());
    assert_eq!(table.list(), model.list());
    assert_eq!(table.len(), model.rows.len());
    for (&id, row) in &model.rows {
        assert_eq!(table.get(id), Some(*row));
        assert_eq!(table.keys(id), model.keys(id));
    }
    let earliest = model.rows.values().map(|row| row.deadline).min();
    assert_eq!(table.next_due_bound().is_some(), earliest.is_some());
    assert!(table.next_due_bound() <= earliest);
}

/// Ends up to `limit` trees that are due, comparing each.
fn expire(model: &mut Model, tables: &mut [LeaseTable; 2], limit: usize) {
    let now = Nanos(model.clock);
    for _ in 0..limit {
        let due = model.next_due(now);
        for table in tables.iter_mut() {
            assert_eq!(table.next_due(now), due);
        }
        let Some((id, _)) = due else { break };
        let weights = tables.each_ref().map(|table| table.weight(id));
        let expected = model.end(id);
        for (table, weight) in tables.iter_mut().zip(weights) {
            let ended = gone(table.end(id));
            assert_eq!(weight, ended.iter().map(|(_, _, keys)| 1 + keys.len()).sum::<usize>());
            assert_eq!(ended, expected);
        }
    }
}

fn run(start: u64, steps: Vec<Step>) {
    let mut model = Model { clock: start, rows: BTreeMap::new(), lease_of: BTreeMap::new() };
    let mut tables = [LeaseTable::new(Nanos(start)), LeaseTable::new(Nanos(start))];
    for step in steps {
        let clock = model.clock;
        match step {
            Step::Grant { id, ttl, parent, off } => {
                let at = Nanos(clock.saturating_add_signed(off));
                let expected = model.grant(id, ttl, parent, at);
                for table in &mut tables {
                    assert_eq!(table.grant(id, ttl, parent, at), expected);
                }
            }
            Step::Renew { ids, off } => {
                let (ids, at) = (Vec::from_iter(ids), Nanos(clock.saturating_add_signed(off)));
                let before = model.rows.clone();
                let expected = model.renew(&ids, at);
                for table in &mut tables {
                    let mut changed = Vec::new();
                    assert_eq!(table.renew(&ids, at, &mut changed), expected);
                    check_changed(&before, &model.rows, &changed);
                }
            }
            Step::TakeOver { grace } => {
                let before = model.rows.clone();
                model.take_over(grace);
                let mut changed = [Vec::new(), Vec::new()];
                for (table, changed) in tables.iter_mut().zip(&mut changed) {
                    table.take_over(grace, changed);
                    check_changed(&before, &model.rows, changed);
                }
                assert_eq!(changed[0], changed[1], "the order of the rows depends on the past");
            }
            Step::Advance { by } => {
                model.clock = clock.saturating_add(by);
                for table in &mut tables {
                    table.advance(Nanos(model.clock));
                    table.advance(Nanos(clock));
                }
            }
            Step::ExpireSome { limit } => expire(&mut model, &mut tables, limit),
            Step::Revoke { id } => {
                let expected = model.end(id);
                for table in &mut tables {
                    assert_eq!(gone(table.end(id)), expected);
                }
            }
            Step::Attach { key, lease } => {
                if model.rows.contains_key(&lease) {
                    let before = model.lease_of.insert(key.clone(), lease).unwrap_or_default();
                    for table in &mut tables {
                        table.attach(key.clone(), before, lease);
                    }
                }
            }
            Step::Detach { key } => {
                if let Some(lease) = model.lease_of.remove(&key) {
                    for table in &mut tables {
                        table.detach(&key, lease);
                    }
                }
            }
            Step::Look { ahead } => {
                let now = Nanos(clock.saturating_add(ahead));
                assert_eq!(tables[1].next_due(now), model.next_due(now));
            }
            Step::Reload { rotation } => tables[1] = reload(&tables[1], rotation),
        }
        for table in &tables {
            compare(&model, table);
        }
        // The second one is asked all the time, at its clock and somewhat ahead of it.
        for ahead in [0, SECOND / 50] {
            let now = Nanos(model.clock.saturating_add(ahead));
            assert_eq!(tables[1].next_due(now), model.next_due(now));
        }
    }

    // In the end all end, in the same order.
    model.clock = u64::MAX;
    for table in &mut tables {
        table.advance(Nanos::MAX);
    }
    expire(&mut model, &mut tables, usize::MAX);
    for table in &tables {
        compare(&model, table);
        assert!(table.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(start in prop_oneof![Just(0), a_span()], steps in vec(a_step(), 0..100)) {
        run(start, steps);
    }
}
