//! What clients do. Each has a role, a clock and one connection; what it asks and is told goes into the history.

mod holder;
mod kv;
mod mass;
mod prober;
mod watcher;

use tenure_replica::effect::WatchOutput;
use tenure_state::command::{Range, Sort};
use tenure_state::key::KeyRange;

use crate::clock::{Clock, MS, SEC};
use crate::history::{Ask, Op};
use crate::rng::Rng;
use crate::world::{Event, World};

pub use holder::Holder;
pub use kv::{Compactor, Kv};
pub use mass::MassHolder;
pub use prober::Prober;
pub use watcher::Watcher;

/// How long a client waits before it tries again without a connection.
const RETRY: u64 = 20 * MS;

pub enum Role {
    Kv(Kv),
    Compactor(Compactor),
    Holder(Box<Holder>),
    Mass(MassHolder),
    Watcher(Watcher),
    Prober(Prober),
    /// While its own code runs.
    Taken,
}

pub struct Client {
    role: Role,
    clock: Clock,
    pub connected: bool,
    pub connection: u64,
    /// The connection before this one, and the moment from which nothing of it arrives.
    pub cut: (u64, u64),
    pub sent_until: u64,
    pub told_until: u64,
    pub open_ops: Vec<usize>,
}

impl Client {
    pub fn new(role: Role, clock: Clock, connection: u64) -> Client {
        Client {
            role,
            clock,
            connected: true,
            connection,
            cut: (0, 0),
            sent_until: 0,
            told_until: 0,
            open_ops: Vec::new(),
        }
    }
}

/// What a role may do.
pub struct Cx<'a> {
    pub world: &'a mut World,
    pub client: usize,
}

impl Cx<'_> {
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.world.rng
    }

    /// Wakes up after `span` on the client's own clock.
    pub fn sleep(&mut self, span: u64) {
        self.sleep_as(span, 0);
    }

    /// The same, with a token that says what for.
    pub fn sleep_as(&mut self, span: u64, token: u64) {
        let at = self.world.h + self.world.clients[self.client].clock.span(span);
        self.world.push(at, Event::Wake(self.client, token));
    }

    pub fn ask(&mut self, ask: Ask) -> Option<usize> {
        self.ask_for(ask, 0)
    }

    /// Asks about the n-th life of a lease.
    pub fn ask_for(&mut self, ask: Ask, nth: u32) -> Option<usize> {
        let timeout = self.world.rng.between(SEC, 8 * SEC);
        self.world.ask(self.client, ask, nth, timeout)
    }

    pub fn op(&self, op: usize) -> &Op {
        &self.world.history.ops[op]
    }

    /// A value that nobody ever wrote.
    pub fn value(&mut self) -> bytes::Bytes {
        let number = self.world.next_value;
        self.world.next_value += 1;
        let mut value = format!("v{number}").into_bytes();
        let rng = &mut self.world.rng;
        if rng.chance(20) {
            value.resize(rng.between(100, 3000) as usize, b'.');
        }
        value.into()
    }

    pub fn is_over(&self) -> bool {
        self.world.h >= self.world.heal_at
    }
}

pub fn range_of(range: KeyRange) -> Range {
    Range {
        range,
        revision: 0,
        limit: 0,
        sort: Sort::default(),
        keys_only: false,
        count_only: false,
        mod_min: 0,
        mod_max: 0,
        create_min: 0,
        create_max: 0,
    }
}

fn with(world: &mut World, client: usize, call: impl FnOnce(&mut Role, &mut Cx<'_>)) {
    let mut role = std::mem::replace(&mut world.clients[client].role, Role::Taken);
    call(&mut role, &mut Cx { world, client });
    world.clients[client].role = role;
}

pub fn wake(world: &mut World, client: usize, token: u64) {
    with(world, client, |role, cx| match role {
        Role::Kv(kv) => kv.wake(cx),
        Role::Compactor(compactor) => compactor.wake(cx),
        Role::Holder(holder) => holder.wake(cx, token),
        Role::Mass(mass) => mass.wake(cx),
        Role::Watcher(watcher) => watcher.wake(cx, token),
        Role::Prober(prober) => prober.wake(cx),
        Role::Taken => unreachable!("a role does not wake itself"),
    });
}

/// An op of this client came to its end.
pub fn answered(world: &mut World, client: usize, op: usize) {
    world.clients[client].open_ops.retain(|open| *open != op);
    with(world, client, |role, cx| match role {
        Role::Kv(kv) => kv.answered(cx, op),
        Role::Compactor(_) | Role::Watcher(_) => {}
        Role::Holder(holder) => holder.answered(cx, op),
        Role::Mass(mass) => mass.answered(cx, op),
        Role::Prober(prober) => prober.answered(cx, op),
        Role::Taken => unreachable!("a role does not answer itself"),
    });
}

pub fn broken(world: &mut World, client: usize) {
    with(world, client, |role, cx| match role {
        Role::Watcher(watcher) => watcher.broken(cx),
        Role::Prober(prober) => prober.broken(cx),
        _ => {}
    });
}

pub fn reconnected(world: &mut World, client: usize) {
    with(world, client, |role, cx| {
        if let Role::Watcher(watcher) = role {
            watcher.reconnected(cx);
        }
    });
}

pub fn watched(world: &mut World, client: usize, watch: usize, output: WatchOutput) {
    with(world, client, |role, cx| match role {
        Role::Watcher(watcher) => watcher.watched(cx, watch, output),
        Role::Prober(prober) => prober.watched(cx, output),
        _ => {}
    });
}

/// After all faults, somebody looks whether everything works again.
pub fn add_prober(world: &mut World, _: Rng) {
    world.add_client(Role::Prober(Prober::default()), Clock::new(0, 0));
}
