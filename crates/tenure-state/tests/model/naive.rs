//! The state as one would write it without a thought for time or memory: a whole map for every revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use crc::{CRC_32_ISCSI, Crc};
use tenure_state::applied::{
    DeleteReply, LeaseRow, OpReply, PutReply, RangeReply, Renewed, Reply, Shown, StepReply, TxnReply,
};
use tenure_state::command::{
    Alarm, AlarmAction, Command, Compare, CompareResult, CompareTarget, Entry, Op, Put, PutLease, Range,
    SortOrder, SortTarget, Txn,
};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision, RevisionAt};
use tenure_state::key::KeyRange;
use tenure_state::record::{Event, Record};
use tenure_state::refusal::Refusal;

pub type Keys = BTreeMap<Bytes, Arc<Record>>;

pub struct Model {
    pub clock: Nanos,
    pub compacted: i64,
    /// What lives at each revision, from revision 1 on.
    pub past: Vec<Keys>,
    /// What happened at each revision, from revision 1 on.
    pub events: Vec<Vec<Event>>,
    pub leases: BTreeMap<LeaseId, LeaseRow>,
    pub alarms: BTreeSet<(MemberId, Alarm)>,
}

/// A write under way.
struct Work {
    main: i64,
    keys: Keys,
    events: Vec<Event>,
}

impl Work {
    fn revision(&self) -> Revision {
        Revision(if self.events.is_empty() { self.main - 1 } else { self.main })
    }
}

impl Model {
    pub fn new() -> Model {
        Model {
            clock: Nanos::ZERO,
            compacted: -1,
            past: vec![Keys::new()],
            events: vec![Vec::new()],
            leases: BTreeMap::new(),
            alarms: BTreeSet::new(),
        }
    }

    pub fn revision(&self) -> i64 {
        self.past.len() as i64
    }

    pub fn at(&self, revision: i64) -> &Keys {
        &self.past[usize::try_from(revision).expect("asked for revisions that exist") - 1]
    }

    fn now(&self) -> &Keys {
        self.at(self.revision())
    }

    fn begin(&self) -> Work {
        Work { main: self.revision() + 1, keys: self.now().clone(), events: Vec::new() }
    }

    fn commit(&mut self, work: Work) {
        if !work.events.is_empty() {
            self.past.push(work.keys);
            self.events.push(work.events);
        }
    }

    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.now().values().filter(|record| record.lease == id).map(|record| record.key.clone()).collect()
    }

    /// `bytes` is what the state under test weighs: how far it has scrubbed is none of the model's business.
    pub fn apply(&mut self, entry: &Entry, bytes: u64) -> Result<Reply, Refusal> {
        match &entry.command {
            Command::Grant(grant) => self.obey(grant.stamp.term, grant.stamp.clock, entry.term)?,
            Command::LeaseStep(step) => self.obey(step.stamp.term, step.stamp.clock, entry.term)?,
            Command::TakeOver(take_over) => self.obey(take_over.term, Nanos::ZERO, entry.term)?,
            _ => {}
        }
        self.admit(entry, bytes)?;
        let mut work = self.begin();
        let reply = match &entry.command {
            Command::Nothing => Reply::Nothing,
            Command::Put(put) => {
                if let PutLease::Set(id) = put.lease {
                    self.check_lease(id)?;
                }
                Reply::Put(self.put(put, &mut work)?)
            }
            Command::DeleteRange(delete) => {
                Reply::DeleteRange(self.delete(&delete.range, delete.prev, &mut work))
            }
            Command::Txn(txn) => {
                let decided = self.decide(txn)?;
                Reply::Txn(self.execute(&decided, &mut work))
            }
            Command::Compact { revision } => {
                if revision.0 <= self.compacted {
                    return Err(Refusal::Compacted);
                }
                if revision.0 > self.revision() {
                    return Err(Refusal::FutureRevision);
                }
                self.compacted = revision.0;
                Reply::Compact { revision: Revision(self.revision()) }
            }
            Command::Scrub { .. } => Reply::Scrub { more: false },
            Command::Grant(grant) => {
                if self.leases.contains_key(&grant.id) {
                    return Err(Refusal::LeaseExists);
                }
                let mut deadline = grant.stamp.clock + grant.ttl;
                let mut depth = 0;
                if !grant.parent.is_none() {
                    let parent = self.leases.get(&grant.parent).ok_or(Refusal::ParentNotFound)?;
                    deadline = deadline.min(parent.deadline);
                    depth = parent.depth + 1;
                }
                let (id, ttl, parent) = (grant.id, grant.ttl, grant.parent);
                let granted = grant.stamp.clock;
                let row = LeaseRow { id, ttl, deadline, base: deadline, granted, parent, depth };
                self.leases.insert(id, row);
                Reply::Grant { id, ttl, revision: Revision(self.revision()) }
            }
            Command::Revoke { id } => {
                self.check_lease(*id)?;
                self.end(*id);
                return Ok(Reply::Revoke { revision: Revision(self.revision()) });
            }
            Command::LeaseStep(step) => return Ok(Reply::LeaseStep(self.step(step))),
            Command::TakeOver(take_over) => {
                self.take_over(take_over.grace);
                Reply::TakeOver
            }
            Command::Alarm { action, member, alarm } => {
                match action {
                    AlarmAction::Activate => self.alarms.insert((*member, *alarm)),
                    AlarmAction::Deactivate => self.alarms.remove(&(*member, *alarm)),
                };
                let alarms = self.alarms.iter().copied().collect();
                Reply::Alarms { alarms, revision: Revision(self.revision()) }
            }
        };
        self.commit(work);
        Ok(reply)
    }

    fn obey(&mut self, stamped: u64, clock: Nanos, term: u64) -> Result<(), Refusal> {
        if stamped != term {
            return Err(Refusal::StaleTerm);
        }
        self.clock = self.clock.max(clock);
        Ok(())
    }

    fn admit(&self, entry: &Entry, bytes: u64) -> Result<(), Refusal> {
        let active = |alarm| self.alarms.iter().any(|(_, active)| *active == alarm);
        let write = match &entry.command {
            Command::Txn(txn) => {
                let ops = txn.success.iter().chain(&txn.failure);
                ops.clone().any(|op| !matches!(op, Op::Range(_)))
            }
            command => matches!(
                command,
                Command::Put(_)
                    | Command::DeleteRange(_)
                    | Command::Compact { .. }
                    | Command::Grant(_)
                    | Command::Revoke { .. }
            ),
        };
        if write && active(Alarm::Corrupt) {
            return Err(Refusal::Corrupt);
        }
        let cost = match &entry.command {
            Command::Put(put) => put_cost(put),
            Command::Txn(txn) => txn_cost(txn),
            Command::Grant(_) => 150,
            _ => return Ok(()),
        };
        let over = entry.quota_bytes != 0 && bytes + cost > entry.quota_bytes;
        if cost > 0 && (over || active(Alarm::NoSpace)) { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    fn check_lease(&self, id: LeaseId) -> Result<(), Refusal> {
        if id.is_none() || self.leases.contains_key(&id) { Ok(()) } else { Err(Refusal::LeaseNotFound) }
    }

    fn put(&self, put: &Put, work: &mut Work) -> Result<PutReply, Refusal> {
        let before = work.keys.get(&put.key).cloned();
        let kept = before.as_ref().ok_or(Refusal::KeyNotFound);
        let value = match &put.value {
            Some(value) => value.clone(),
            None => kept.map(|kept| kept.value.clone())?,
        };
        let lease = match put.lease {
            PutLease::Set(id) => id,
            PutLease::Keep => kept.map(|kept| kept.lease)?,
        };
        let record = Arc::new(Record {
            key: put.key.clone(),
            value,
            create: before.as_ref().map_or(Revision(work.main), |before| before.create),
            at: RevisionAt { main: Revision(work.main), sub: work.events.len() as u32 },
            version: before.as_ref().map_or(0, |before| before.version) + 1,
            lease,
        });
        work.keys.insert(put.key.clone(), Arc::clone(&record));
        work.events.push(Event { prev: self.now().get(&put.key).cloned(), record });
        Ok(PutReply { revision: Revision(work.main), prev: before.filter(|_| put.prev) })
    }

    fn delete(&self, range: &KeyRange, prev: bool, work: &mut Work) -> DeleteReply {
        let gone: Vec<_> = work.keys.values().filter(|record| range.contains(&record.key)).cloned().collect();
        for record in &gone {
            work.keys.remove(&record.key);
            let record = Arc::new(Record {
                key: record.key.clone(),
                value: Bytes::new(),
                create: Revision::ZERO,
                at: RevisionAt { main: Revision(work.main), sub: work.events.len() as u32 },
                version: 0,
                lease: LeaseId::NONE,
            });
            work.events.push(Event { prev: self.now().get(&record.key).cloned(), record });
        }
        let deleted = gone.len() as i64;
        DeleteReply { revision: work.revision(), deleted, prevs: if prev { gone } else { Vec::new() } }
    }

    pub fn range(&self, range: &Range) -> Result<RangeReply, Refusal> {
        self.range_at(range, self.now(), self.revision())
    }

    fn range_at(&self, range: &Range, now: &Keys, current: i64) -> Result<RangeReply, Refusal> {
        if range.revision > current {
            return Err(Refusal::FutureRevision);
        }
        if range.revision > 0 && range.revision < self.compacted {
            return Err(Refusal::Compacted);
        }
        let past = range.revision > 0 && range.revision < current;
        let keys = if past { self.at(range.revision) } else { now };
        let mut found: Vec<_> =
            keys.values().filter(|record| range.range.contains(&record.key)).cloned().collect();
        let count = found.len() as i64;
        let (target, order) = (range.sort.target, range.sort.order);
        let bounds = [range.mod_min, range.mod_max, range.create_min, range.create_max];
        let limit = if range.limit > 0 { range.limit as usize } else { usize::MAX };
        if order == SortOrder::None && bounds == [0; 4] && limit < usize::MAX {
            found.truncate(limit + 1);
        }
        found.retain(|record| {
            let (modified, created) = (record.at.main.0, record.create.0);
            let bound = |is_met: bool, bound: i64| bound == 0 || is_met;
            bound(modified >= range.mod_min, range.mod_min)
                && bound(modified <= range.mod_max, range.mod_max)
                && bound(created >= range.create_min, range.create_min)
                && bound(created <= range.create_max, range.create_max)
        });
        let rank = |record: &Record| match target {
            SortTarget::Key => (0, record.key.clone()),
            SortTarget::Version => (record.version, Bytes::new()),
            SortTarget::Create => (record.create.0, Bytes::new()),
            SortTarget::Mod => (record.at.main.0, Bytes::new()),
            SortTarget::Value => (0, record.value.clone()),
        };
        if order == SortOrder::Descend {
            found.sort_by_key(|record| std::cmp::Reverse(rank(record)));
        } else {
            found.sort_by_key(|record| rank(record));
        }
        let mut more = found.len() > limit;
        found.truncate(limit);
        if range.count_only {
            found.clear();
            more = false;
        }
        let shown = match (range.keys_only, target) {
            (false, _) => Shown::All,
            (true, SortTarget::Value) => Shown::NoValue,
            (true, _) => Shown::KeyOnly,
        };
        Ok(RangeReply { revision: Revision(current), records: found, count, more, shown })
    }

    pub fn read_txn(&self, txn: &Txn) -> Result<TxnReply, Refusal> {
        let decided = self.decide(txn)?;
        Ok(self.execute(&decided, &mut self.begin()))
    }

    /// Replaces each transaction by the branch that it takes, on the state before it.
    fn decide<'a>(&self, txn: &'a Txn) -> Result<Decided<'a>, Refusal> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let mut ops = Vec::new();
        for op in if succeeded { &txn.success } else { &txn.failure } {
            match op {
                Op::Range(range) if range.revision > self.revision() => {
                    return Err(Refusal::FutureRevision);
                }
                Op::Range(range) if range.revision != 0 && range.revision < self.compacted => {
                    return Err(Refusal::Compacted);
                }
                Op::Put(put) => {
                    if let PutLease::Set(id) = put.lease {
                        self.check_lease(id)?;
                    }
                    let keeps = put.value.is_none() || put.lease == PutLease::Keep;
                    if keeps && !self.now().contains_key(&put.key) {
                        return Err(Refusal::KeyNotFound);
                    }
                }
                _ => {}
            }
            ops.push(match op {
                Op::Txn(nested) => DecidedOp::Txn(self.decide(nested)?),
                op => DecidedOp::Plain(op),
            });
        }
        Ok(Decided { succeeded, ops })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let living: Vec<_> =
            self.now().values().filter(|record| compare.range.contains(&record.key)).collect();
        let wanted = |order: std::cmp::Ordering| match compare.result {
            CompareResult::Equal => order.is_eq(),
            CompareResult::NotEqual => order.is_ne(),
            CompareResult::Greater => order.is_gt(),
            CompareResult::Less => order.is_lt(),
        };
        match &compare.target {
            CompareTarget::Value(value) => {
                !living.is_empty() && living.iter().all(|record| wanted(record.value.cmp(value)))
            }
            number => {
                let (numbers, than): (Vec<i64>, i64) = match number {
                    CompareTarget::Version(than) => (living.iter().map(|it| it.version).collect(), *than),
                    CompareTarget::Create(than) => (living.iter().map(|it| it.create.0).collect(), *than),
                    CompareTarget::Mod(than) => (living.iter().map(|it| it.at.main.0).collect(), *than),
                    CompareTarget::Lease(than) => (living.iter().map(|it| it.lease.0).collect(), *than),
                    CompareTarget::Value(_) => unreachable!("the outer match took it"),
                };
                let numbers = if numbers.is_empty() { vec![0] } else { numbers };
                numbers.iter().all(|number| wanted(number.cmp(&than)))
            }
        }
    }

    fn execute(&self, decided: &Decided<'_>, work: &mut Work) -> TxnReply {
        let mut responses = Vec::new();
        for op in &decided.ops {
            responses.push(match op {
                DecidedOp::Txn(nested) => OpReply::Txn(self.execute(nested, work)),
                DecidedOp::Plain(Op::Range(range)) => {
                    let reply = self.range_at(range, &work.keys, work.revision().0);
                    OpReply::Range(reply.expect("it was checked"))
                }
                DecidedOp::Plain(Op::Put(put)) => OpReply::Put(self.put(put, work).expect("it was checked")),
                DecidedOp::Plain(Op::DeleteRange(delete)) => {
                    OpReply::DeleteRange(self.delete(&delete.range, delete.prev, work))
                }
                DecidedOp::Plain(Op::Txn(_)) => unreachable!("it was decided"),
            });
        }
        TxnReply { revision: work.revision(), succeeded: decided.succeeded, responses }
    }

    fn step(&mut self, step: &tenure_state::command::LeaseStep) -> StepReply {
        let clock = step.stamp.clock;
        let mut ids = step.renew.clone();
        ids.sort_by_key(|id| self.leases.get(id).map_or(0, |lease| lease.depth));
        for id in &ids {
            let Some(lease) = self.leases.get(id) else { continue };
            let cap = self.leases.get(&lease.parent).map_or(Nanos::MAX, |parent| parent.deadline);
            let deadline = lease.deadline.max((clock + lease.ttl).min(cap));
            let lease = self.leases.get_mut(id).expect("it lived just now");
            (lease.deadline, lease.base) = (deadline, deadline);
        }
        let renewed = step.renew.iter().map(|id| {
            let lease = self.leases.get(id);
            let remaining = lease.map(|lease| lease.deadline.saturating_sub(clock).min(lease.ttl));
            Renewed { id: *id, remaining }
        });
        let mut reply = StepReply { renewed: renewed.collect(), ended: Vec::new(), more: false };
        let mut left = step.limit as usize;
        while let Some(root) = self.first_due(clock).filter(|_| step.last) {
            let tree = self.tree(root);
            let weight: usize = tree.iter().map(|id| 1 + self.lease_keys(*id).len()).sum();
            if !reply.ended.is_empty() && weight > left {
                break;
            }
            left = left.saturating_sub(weight);
            reply.ended.extend(tree.iter().map(|id| (*id, self.leases[id].deadline)));
            self.end(root);
        }
        reply.more = self.first_due(clock).is_some();
        reply
    }

    fn first_due(&self, clock: Nanos) -> Option<LeaseId> {
        let due = self.leases.values().filter(|lease| lease.deadline <= clock);
        due.min_by_key(|lease| (lease.deadline, lease.depth, lease.id)).map(|lease| lease.id)
    }

    /// Level by level, each in the order of ids.
    fn tree(&self, root: LeaseId) -> Vec<LeaseId> {
        let mut tree = vec![root];
        let mut level = vec![root];
        while !level.is_empty() {
            let below = self.leases.values().filter(|lease| level.contains(&lease.parent));
            level = below.map(|lease| lease.id).collect();
            tree.extend(&level);
        }
        tree
    }

    fn end(&mut self, root: LeaseId) {
        let tree = self.tree(root);
        let mut work = self.begin();
        for record in self.now().values() {
            if tree.contains(&record.lease) {
                self.delete(&KeyRange::One(record.key.clone()), false, &mut work);
            }
        }
        for id in tree {
            self.leases.remove(&id);
        }
        self.commit(work);
    }

    fn take_over(&mut self, grace: Nanos) {
        let mut early: Vec<_> =
            self.leases.values().filter(|lease| lease.deadline < self.clock + grace).copied().collect();
        early.sort_by_key(|lease| (lease.depth, lease.id));
        for lease in early {
            let span = lease.ttl.min(grace);
            let cap = self.leases.get(&lease.parent).map_or(Nanos::MAX, |parent| parent.deadline);
            let extended = (self.clock + span).min(lease.base + span + span + span).min(cap);
            let row = self.leases.get_mut(&lease.id).expect("it lives");
            row.deadline = row.deadline.max(extended);
        }
    }

    /// HashKV at a revision that may be read: over what lives at the compact revision and all that came after.
    pub fn hash_kv(&self, at: i64) -> u32 {
        let crc = Crc::<u32>::new(&CRC_32_ISCSI);
        let mut digest = crc.digest();
        for record in self.events.iter().flatten().map(|event| &event.record) {
            let lived = || self.at(self.compacted).get(&record.key) == Some(record);
            let counts = record.at.main.0 > self.compacted || lived();
            if record.at.main.0 > at || !counts {
                continue;
            }
            let numbers =
                [record.at.main.0, i64::from(record.at.sub), record.create.0, record.version, record.lease.0];
            for number in numbers {
                digest.update(&number.to_le_bytes());
            }
            for bytes in [&record.key, &record.value] {
                digest.update(&(bytes.len() as u64).to_le_bytes());
                digest.update(bytes);
            }
        }
        digest.finalize()
    }

    /// The records that a finished scrub keeps.
    pub fn kept(&self) -> Vec<Arc<Record>> {
        let records = self.events.iter().flatten().map(|event| &event.record);
        let kept = records.filter(|record| {
            let lives = |keys: &Keys| keys.get(&record.key).is_some_and(|living| living == *record);
            record.at.main.0 >= self.compacted || (self.compacted > 0 && lives(self.at(self.compacted)))
        });
        kept.cloned().collect()
    }
}

/// A transaction of which it is known where it goes.
struct Decided<'a> {
    succeeded: bool,
    ops: Vec<DecidedOp<'a>>,
}

enum DecidedOp<'a> {
    Plain(&'a Op),
    Txn(Decided<'a>),
}

fn put_cost(put: &Put) -> u64 {
    128 + put.key.len() as u64 + put.value.as_ref().map_or(0, |value| value.len() as u64)
}

fn txn_cost(txn: &Txn) -> u64 {
    let cost = |ops: &[Op]| -> u64 {
        let costs = ops.iter().map(|op| match op {
            Op::Put(put) => put_cost(put),
            Op::Txn(nested) => txn_cost(nested),
            _ => 0,
        });
        costs.sum()
    };
    cost(&txn.success).max(cost(&txn.failure))
}
