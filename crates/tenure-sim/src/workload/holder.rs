//! Clients that hold leases: grant, put keys on, renew for a while, then abandon, revoke or lose it, and again.

use bytes::Bytes;
use tenure_replica::effect::{Answer, Failure};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::command::{Put, PutLease};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::refusal::Refusal;

use super::{Cx, RETRY};
use crate::clock::{MS, SEC};
use crate::history::Ask;

pub struct Holder {
    /// The shortest and longest TTL that it asks for.
    pub ttl: (u64, u64),
    /// Renews when little is left instead of at a third.
    pub daring: bool,
    lease: Option<Held>,
    /// Granted before and known to be over: it may be granted again under the same id.
    over: Option<(i64, u32)>,
    waiting: Option<usize>,
    rounds_left: u64,
    keys_left: u64,
    next_renewal: u64,
    next_key: u64,
    step: u64,
}

struct Held {
    id: i64,
    nth: u32,
    ttl: u64,
    /// Its child, with keys of its own.
    child: Option<i64>,
    /// Others use it too, so it is never granted again: they could not tell its lives apart.
    shared: bool,
}

impl Holder {
    pub fn new(ttl: (u64, u64), daring: bool) -> Holder {
        Holder {
            ttl,
            daring,
            lease: None,
            over: None,
            waiting: None,
            rounds_left: 0,
            keys_left: 0,
            next_renewal: 0,
            next_key: 0,
            step: 0,
        }
    }

    /// Only the newest alarm counts.
    fn alarm(&mut self, cx: &mut Cx<'_>, span: u64) {
        self.step += 1;
        cx.sleep_as(span, self.step);
    }

    pub fn wake(&mut self, cx: &mut Cx<'_>, token: u64) {
        if token != self.step || self.waiting.is_some() {
            return;
        }
        if self.lease.is_none() && cx.is_over() {
            return;
        }
        if !cx.world.clients[cx.client].connected {
            self.alarm(cx, RETRY);
            return;
        }
        let (ask, nth) = self.next(cx);
        self.waiting = ask.and_then(|ask| cx.ask_for(ask, nth));
        if self.waiting.is_none() {
            self.alarm(cx, RETRY);
        }
    }

    /// What to ask now.
    fn next(&mut self, cx: &mut Cx<'_>) -> (Option<Ask>, u32) {
        let Some(lease) = &self.lease else {
            let ttl = cx.world.rng.between(self.ttl.0, self.ttl.1);
            let again = self.over.take().filter(|_| cx.world.rng.chance(300));
            let (id, nth) = match again {
                Some((id, nth)) => (id, nth + 1),
                None => ((cx.rng().next() >> 1).max(1) as i64, 1),
            };
            let shared = nth == 1 && cx.rng().chance(500);
            self.lease = Some(Held { id, nth, ttl, child: None, shared });
            self.rounds_left = cx.rng().below(14);
            self.keys_left = cx.rng().below(4);
            let grant = Write::Grant { id: LeaseId(id), ttl: Nanos(ttl), parent: LeaseId::NONE };
            return (Some(Ask::Write(grant)), nth);
        };
        let (id, nth, ttl, child) = (lease.id, lease.nth, lease.ttl, lease.child);
        if self.keys_left > 0 {
            self.keys_left -= 1;
            if child.is_none() && cx.rng().chance(200) {
                let child = (cx.rng().next() >> 1).max(1) as i64;
                let ttl = Nanos(ttl * cx.rng().between(1, 4));
                let grant = Write::Grant { id: LeaseId(child), ttl, parent: LeaseId(id) };
                self.lease.as_mut().expect("it was just seen").child = Some(child);
                return (Some(Ask::Write(grant)), 1);
            }
            return (Some(self.put(cx, id, child)), nth);
        }
        if cx.world.h >= self.next_renewal && self.rounds_left > 0 {
            self.rounds_left -= 1;
            let third = ttl / 3;
            let wait = if self.daring { ttl - ttl * cx.rng().below(60) / 1000 } else { third };
            self.next_renewal = cx.world.h + wait;
            let mut ids = vec![LeaseId(id)];
            ids.extend(child.filter(|_| cx.world.rng.chance(700)).map(LeaseId));
            return (Some(Ask::Renew(ids)), nth);
        }
        if self.rounds_left == 0 {
            let ask = match cx.rng().below(5) {
                0 => Some(Ask::Write(Write::Revoke { id: LeaseId(id) })),
                1 => Some(Ask::Read(
                    Read::TimeToLive { id: LeaseId(id), keys: true },
                    Consistency::Linearizable,
                )),
                // Nobody renews it any more.
                _ => None,
            };
            if ask.is_none() {
                self.lease = None;
                let pause = cx.world.rng.wait(SEC);
                self.alarm(cx, pause);
            }
            return (ask, nth);
        }
        // Between two renewals.
        match cx.rng().below(6) {
            0 => {
                let read = Read::TimeToLive { id: LeaseId(child.unwrap_or(id)), keys: true };
                (Some(Ask::Read(read, Consistency::Linearizable)), if child.is_some() { 1 } else { nth })
            }
            1 => (Some(self.put(cx, id, child)), nth),
            _ => {
                let wait = self.next_renewal.saturating_sub(cx.world.h).max(MS);
                self.alarm(cx, wait);
                self.step += 1;
                (None, nth)
            }
        }
    }

    /// A key of its own: on the lease, moved to its child, or taken off both.
    fn put(&mut self, cx: &mut Cx<'_>, id: i64, child: Option<i64>) -> Ask {
        let number = if self.next_key > 0 && cx.rng().chance(400) {
            cx.rng().below(self.next_key)
        } else {
            self.next_key = (self.next_key + 1) % 12;
            self.next_key
        };
        let key = Bytes::from(format!("l{}-{number}", cx.client));
        let lease = match cx.rng().below(6) {
            0 => LeaseId::NONE,
            1 | 2 => LeaseId(child.unwrap_or(id)),
            _ => LeaseId(id),
        };
        let put = Put { key, value: Some(cx.value()), lease: PutLease::Set(lease), prev: false };
        Ask::Write(Write::Put(put))
    }

    pub fn answered(&mut self, cx: &mut Cx<'_>, op: usize) {
        if self.waiting != Some(op) {
            return;
        }
        self.waiting = None;
        let Some(lease) = &mut self.lease else { return };
        let (id, nth, shared) = (lease.id, lease.nth, lease.shared);
        let refused = matches!(
            cx.op(op).answer,
            Some((_, Err(Failure::Refused(Refusal::LeaseNotFound | Refusal::LeaseExists))))
        );
        let mut gone = false;
        match (&cx.op(op).ask, &cx.op(op).answer) {
            (Ask::Write(Write::Grant { parent, .. }), answer) if parent.is_none() => {
                if matches!(answer, Some((_, Ok(_)))) {
                    self.next_renewal = cx.world.h + lease.ttl / 3;
                    if lease.shared {
                        cx.world.shared_leases.push((id, nth));
                    }
                } else {
                    // Whether it lives is not known; nobody uses it.
                    self.lease = None;
                }
            }
            (Ask::Write(Write::Revoke { .. }), answer) => {
                gone = answer.is_some();
                self.lease = self.lease.take().filter(|_| gone);
            }
            (Ask::Renew(_), Some((_, Ok(Answer::Renewed(renewed))))) => {
                gone = renewed[0].remaining.is_none();
            }
            (Ask::Read(Read::TimeToLive { id: asked, .. }, _), Some((_, Ok(Answer::TimeToLive(None))))) => {
                gone = asked.0 == id;
            }
            (Ask::Write(Write::Put(put)), _) => gone = refused && put.lease == PutLease::Set(LeaseId(id)),
            _ => {}
        }
        if gone {
            self.lease = None;
            self.over = Some((id, nth)).filter(|_| !shared);
        }
        let pause =
            if self.lease.is_none() { cx.world.rng.wait(300 * MS) } else { cx.world.rng.wait(3 * MS) };
        self.alarm(cx, pause);
    }
}
