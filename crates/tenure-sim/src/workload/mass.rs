//! One client with very many leases that all end together, but for those that it goes on renewing.

use tenure_replica::input::Write;
use tenure_state::command::{Put, PutLease};
use tenure_state::ids::{LeaseId, Nanos};

use super::{Cx, RETRY};
use crate::clock::MS;
use crate::history::{Ask, LeaseLife, Mass};

pub struct MassHolder {
    pub count: u64,
    pub ttl: u64,
    leases: Vec<LeaseId>,
    waiting: Vec<usize>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Granting,
    /// All renewals so many times more.
    Renewing(u32),
    Surviving(u32),
    Done,
}

impl MassHolder {
    pub fn new(count: u64, ttl: u64) -> MassHolder {
        MassHolder { count, ttl, leases: Vec::new(), waiting: Vec::new(), state: State::Granting }
    }

    pub fn wake(&mut self, cx: &mut Cx<'_>) {
        if !self.waiting.is_empty() {
            return;
        }
        match self.state {
            State::Granting => {
                for number in 0..self.count {
                    let id = LeaseId((cx.rng().next() >> 1).max(1) as i64);
                    let grant = Write::Grant { id, ttl: Nanos(self.ttl), parent: LeaseId::NONE };
                    self.waiting.extend(cx.ask_for(Ask::Write(grant), 1));
                    self.leases.push(id);
                    if number % 4 == 0 {
                        let key = format!("m{number}").into();
                        let value = Some(cx.value());
                        let put = Put { key, value, lease: PutLease::Set(id), prev: false };
                        self.waiting.extend(cx.ask(Ask::Write(Write::Put(put))));
                    }
                }
                self.state = State::Renewing(3);
                if self.waiting.is_empty() {
                    self.leases.clear();
                    self.state = State::Granting;
                    cx.sleep(RETRY);
                }
            }
            State::Renewing(left) => {
                self.waiting.extend(cx.ask_for(Ask::Renew(self.leases.clone()), 1));
                if self.waiting.is_empty() {
                    cx.sleep(RETRY);
                } else {
                    self.state = if left > 1 { State::Renewing(left - 1) } else { State::Surviving(12) };
                }
            }
            State::Surviving(left) => {
                let survivors: Vec<LeaseId> = self.leases.iter().copied().step_by(2).collect();
                if left == 12 {
                    let life = |id: &LeaseId| LeaseLife { id: *id, nth: 1 };
                    cx.world.history.masses.push(Mass {
                        all: self.leases.iter().map(life).collect(),
                        survivors: survivors.iter().map(life).collect(),
                        given_up: cx.world.h,
                    });
                }
                if left == 0 {
                    self.state = State::Done;
                    return;
                }
                self.waiting.extend(cx.ask_for(Ask::Renew(survivors), 1));
                if self.waiting.is_empty() {
                    cx.sleep(RETRY);
                } else {
                    self.state = State::Surviving(left - 1);
                }
            }
            State::Done => {}
        }
    }

    pub fn answered(&mut self, cx: &mut Cx<'_>, op: usize) {
        self.waiting.retain(|waiting| *waiting != op);
        if self.waiting.is_empty() {
            let wait = if matches!(self.state, State::Renewing(3)) { MS } else { self.ttl / 3 };
            cx.sleep(wait);
        }
    }
}
