//! Histories written by hand, for showing that a check finds what it is for.

use std::sync::Arc;

use bytes::Bytes;
use tenure_replica::effect::{Answer, Failure, Header, RangePage, TimeToLive};
use tenure_replica::input::{Consistency, Read, WatchCreate, Write};
use tenure_state::applied::{PutReply, Renewed, Reply};
use tenure_state::command::{Put, PutLease};
use tenure_state::ids::{LeaseId, Nanos, Revision, RevisionAt};
use tenure_state::key::KeyRange;
use tenure_state::record::{Event, Record};

use super::{Report, Violation};
use crate::clock::{MS, SEC};
use crate::history::{Ask, Commit, History, Lease, LeaseEnd, LeaseLife, Op, Seen, Versions, Watch};
use crate::workload::range_of;

#[derive(Default)]
pub struct Hand {
    pub history: History,
}

pub fn life(id: i64) -> LeaseLife {
    LeaseLife { id: LeaseId(id), nth: 1 }
}

impl Hand {
    pub fn new() -> Hand {
        let history = History { grace: Nanos(750 * MS), end: 100 * SEC, ..History::default() };
        Hand { history }
    }

    /// What all checks say.
    pub fn report(&self) -> Report {
        super::check(&self.history)
    }

    /// Fails unless exactly this promise is among the broken ones.
    pub fn breaks(&self, promise: &str) -> Violation {
        let report = self.report();
        let found = report.iter().find(|violation| violation.promise == promise);
        found.unwrap_or_else(|| panic!("{promise} was not found broken: {report:?}")).clone()
    }

    pub fn is_good(&self) {
        assert_eq!(self.report(), []);
    }

    fn next_revision(&self) -> i64 {
        self.history.last_revision() + 1
    }

    /// Writes to history without anybody having asked; returns the revision.
    pub fn written(&mut self, at: u64, writes: &[(&str, Option<&str>, i64)]) -> i64 {
        let revision = self.next_revision();
        let before = Versions::of(&self.history);
        let records = writes.iter().zip(0..).map(|((key, value, lease), sub)| {
            let prev = before.get(key.as_bytes(), revision - 1);
            let lives = value.is_some();
            Arc::new(Record {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: value.map_or(Bytes::new(), |value| Bytes::copy_from_slice(value.as_bytes())),
                create: Revision(if lives { prev.map_or(revision, |prev| prev.create.0) } else { 0 }),
                at: RevisionAt { main: Revision(revision), sub },
                version: if lives { prev.map_or(1, |prev| prev.version + 1) } else { 0 },
                lease: LeaseId(*lease),
            })
        });
        let commit = Commit { at, records: records.collect(), ended: Vec::new() };
        self.history.commits.insert(revision, commit);
        revision
    }

    pub fn op(&mut self, ask: Ask, send: u64, recv: u64, answer: Option<Result<Answer, Failure>>) -> usize {
        let header = Header { revision: Revision(self.history.last_revision()), term: 1 };
        self.history.ops.push(Op {
            client: 0,
            connection: 1,
            ask,
            nth: 1,
            send,
            recv: Some(recv),
            abandoned: answer.is_none(),
            answer: answer.map(|answer| (header, answer)),
        });
        self.history.ops.len() - 1
    }

    /// A put that was asked for, done in between, and answered.
    pub fn put(&mut self, send: u64, key: &str, value: &str, lease: i64) -> i64 {
        let revision = self.written(send + MS, &[(key, Some(value), lease)]);
        self.put_answered(send, key, value, lease, Some(revision));
        revision
    }

    pub fn put_answered(&mut self, send: u64, key: &str, value: &str, lease: i64, revision: Option<i64>) {
        let put = Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            lease: PutLease::Set(LeaseId(lease)),
            prev: false,
        };
        let reply = |revision| PutReply { revision: Revision(revision), prev: None };
        let answer = revision.map(|revision| Ok(Answer::Applied(Reply::Put(reply(revision)))));
        self.op(Ask::Write(Write::Put(put)), send, send + 2 * MS, answer);
    }

    /// A read of everything that was answered with these keys and values.
    pub fn read(&mut self, send: u64, revision: i64, at: i64, consistency: Consistency, keys: &[&str]) {
        let versions = Versions::of(&self.history);
        let mut records: Vec<Arc<Record>> = Vec::new();
        for key in keys {
            let known = (1..=at + 5).rev().find_map(|revision| versions.get(key.as_bytes(), revision));
            records.extend(known.cloned());
        }
        let page = RangePage { count: Some(records.len() as i64), records, at: Revision(at) };
        let mut range = range_of(KeyRange::From(Bytes::from_static(&[0])));
        range.revision = revision;
        let ask = Ask::Read(Read::Range(range), consistency);
        self.op(ask, send, send + 2 * MS, Some(Ok(Answer::Page(page))));
    }

    pub fn grant(&mut self, send: u64, id: i64, ttl: u64) {
        let lease = Lease { ttl: Nanos(ttl), renewed: send + MS, ..Lease::default() };
        self.history.leases.insert(life(id), lease);
        let revision = Revision(self.history.last_revision());
        let reply = Reply::Grant { id: LeaseId(id), ttl: Nanos(ttl), revision };
        let grant = Write::Grant { id: LeaseId(id), ttl: Nanos(ttl), parent: LeaseId::NONE };
        self.op(Ask::Write(grant), send, send + 2 * MS, Some(Ok(Answer::Applied(reply))));
    }

    pub fn renew(&mut self, send: u64, id: i64, left: Option<u64>) {
        let renewed = Renewed { id: LeaseId(id), remaining: left.map(Nanos) };
        if left.is_some() {
            self.history.leases.entry(life(id)).or_default().renewed = send + MS;
        }
        let answer = Some(Ok(Answer::Renewed(vec![renewed])));
        self.op(Ask::Renew(vec![LeaseId(id)]), send, send + 2 * MS, answer);
    }

    pub fn time_to_live(&mut self, send: u64, id: i64, left: Option<u64>) {
        let granted = self.history.leases.get(&life(id)).map_or(Nanos(0), |lease| lease.ttl);
        let left = left.map(|left| TimeToLive { granted, remaining: Nanos(left), keys: Vec::new() });
        let read = Read::TimeToLive { id: LeaseId(id), keys: false };
        let ask = Ask::Read(read, Consistency::Linearizable);
        self.op(ask, send, send + 2 * MS, Some(Ok(Answer::TimeToLive(left))));
    }

    pub fn revoke(&mut self, send: u64, id: i64, revision: i64) {
        let reply = Reply::Revoke { revision: Revision(revision) };
        let ask = Ask::Write(Write::Revoke { id: LeaseId(id) });
        self.op(ask, send, send + 2 * MS, Some(Ok(Answer::Applied(reply))));
    }

    pub fn compact(&mut self, send: u64, revision: i64) {
        let reply = Reply::Compact { revision: Revision(self.history.last_revision()) };
        let ask = Ask::Write(Write::Compact { revision: Revision(revision), physical: false });
        self.op(ask, send, send + 2 * MS, Some(Ok(Answer::Applied(reply))));
    }

    /// The lease ends, with these keys.
    pub fn ends(&mut self, at: u64, id: i64, keys: &[&str]) -> Option<i64> {
        let writes: Vec<_> = keys.iter().map(|key| (*key, None, 0)).collect();
        let revision = (!keys.is_empty()).then(|| self.written(at, &writes));
        if let Some(revision) = revision {
            self.history.commits.get_mut(&revision).expect("it was just written").ended.push(life(id));
        }
        self.history.leases.entry(life(id)).or_default().end = Some(LeaseEnd { at, revision });
        revision
    }

    /// A watch of everything.
    pub fn watch(&mut self, sent: u64, start: i64, seen: Vec<Seen>) -> usize {
        let create = WatchCreate {
            id: 0,
            range: KeyRange::From(Bytes::from_static(&[0])),
            start,
            puts: true,
            deletes: true,
            prev: true,
            progress: true,
        };
        let seen = seen.into_iter().zip(1..).map(|(seen, n)| (sent + n * SEC, seen)).collect();
        let watch = Watch { client: 0, create, sent, seen, resumes: None, keeps_up: true, over: None };
        self.history.watches.push(watch);
        self.history.watches.len() - 1
    }

    /// What a right response with these revisions is.
    pub fn events(&self, revisions: impl IntoIterator<Item = i64>) -> Seen {
        let versions = Versions::of(&self.history);
        let mut events = Vec::new();
        let mut last = 1;
        for revision in revisions {
            last = revision;
            for record in &self.history.commits[&revision].records {
                let prev = versions.get(&record.key, revision - 1).cloned();
                events.push(Event { record: Arc::clone(record), prev });
            }
        }
        Seen::Events { revision: last, events }
    }
}
