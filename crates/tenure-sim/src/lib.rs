//! Tenure in one thread on simulated time and disks: a seed is a run, and a run is judged by its history.
//!
//! The member is the real one: replica, log, rows and recovery as the server runs them. What is simulated is what is
//! around it: clocks, disks, connections, clients. `oracle` holds one file for each promise. `tenure-server` is left
//! out on purpose: it only touches files and sockets, and decides nothing.

pub mod clock;
mod disk;
mod faults;
pub mod history;
mod member;
pub mod oracle;
mod rng;
mod store;
mod tap;
mod trace;
mod workload;
mod world;

use tenure_replica::Config;
use tenure_replica::wal::Origin;
use tenure_replica::watch::WatchConfig;
use tenure_state::bugs::Bug;
use tenure_state::ids::{MemberId, Nanos};

use crate::clock::{Clock, MS, SEC};
use crate::disk::Disk;
use crate::faults::Faults;
use crate::history::History;
use crate::member::{Member, Shape};
use crate::rng::Rng;
use crate::workload::{Compactor, Holder, Kv, MassHolder, Role, Watcher};
use crate::world::World;

/// What a run came to.
pub struct Run {
    pub seed: u64,
    pub history: History,
    /// The same for the same seed, whatever the process.
    pub hash: u64,
    pub event_count: u64,
    /// Broken promises; empty in a good run.
    pub violations: Vec<oracle::Violation>,
}

/// How long everything must work after the faults.
const HEALED: u64 = 16 * SEC;
const MEMBER: MemberId = MemberId(0x8e9e_05c5_2164_694d);

/// Runs a seed, with a known bug put back if one is named.
pub fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Run {
    let mut rng = Rng::new(seed);
    let shape = shape(&mut rng, bug);
    let origin = Origin { cluster: 7, member: MEMBER.0 };
    let disk = Disk::new(origin, shape.segment_bytes, shape.spare_count);
    let member = Member::new(MEMBER, shape, Clock::new(0, 0), disk, rng.fork());
    let faults = Faults::choose(&mut rng);
    let heal_at = rng.between(12 * SEC, 50 * SEC);
    let mut world = World::new(rng.fork(), member, faults, heal_at, heal_at + HEALED);
    world.trace.verbose = verbose;
    for role in cast(&mut rng) {
        let fast_ppm = rng.between(0, 1000) as i64 - 500;
        world.add_client(role, Clock::new(rng.below(1 << 50), fast_ppm));
    }
    let (history, trace) = world.run();
    let violations = oracle::check(&history);
    Run { seed, hash: trace.hash(), event_count: trace.event_count, history, violations }
}

fn shape(rng: &mut Rng, bug: Option<Bug>) -> Shape {
    let small_credit = rng.chance(400);
    let watch = WatchConfig {
        credit_bytes: if small_credit { 400 } else { 1 << 20 },
        credit_floor: if small_credit { 200 } else { 64 << 10 },
        progress_interval: Nanos(*rng.pick(&[200 * MS, SEC, 600 * SEC])),
        replay_limit: *rng.pick(&[1, 7, 1000]),
        ..WatchConfig::default()
    };
    let config = Config {
        member: MEMBER,
        incarnation: 0,
        seed: rng.next(),
        election_timeout: Nanos(*rng.pick(&[250 * MS, SEC])),
        request_timeout: Nanos(*rng.pick(&[3 * SEC, 7 * SEC])),
        grace: Nanos(750 * MS),
        quota_bytes: 0,
        watch,
    };
    Shape {
        config,
        segment_bytes: *rng.pick(&[2 << 10, 8 << 10, 64 << 10]),
        spare_count: rng.below(3) as usize,
        slice_max: if rng.chance(300) { rng.between(1, 4) as usize } else { 0 },
        sync_ns: *rng.pick(&[80_000, 600_000, 5 * MS]),
        checkpoint_interval: *rng.pick(&[50 * MS, 500 * MS, 5 * SEC]),
        checkpoint_rows: *rng.pick(&[10, 1000]),
        bug,
    }
}

/// Who takes part. Some runs are busy, some are almost idle: each hides something from the other.
fn cast(rng: &mut Rng) -> Vec<Role> {
    let mut roles = Vec::new();
    let busy = rng.chance(650);
    if busy {
        let pace = *rng.pick(&[3 * MS, 30 * MS, 300 * MS]);
        for _ in 0..rng.between(1, 5) {
            roles.push(Role::Kv(Kv::new(pace)));
        }
        for _ in 0..rng.below(4) {
            let slow = *rng.pick(&[0, 0, 200 * MS, 3 * SEC]);
            roles.push(Role::Watcher(Watcher::new(slow)));
        }
        if rng.chance(600) {
            let pace = *rng.pick(&[100 * MS, SEC, 5 * SEC]);
            roles.push(Role::Compactor(Compactor { pace }));
        }
    }
    let holders = if busy { rng.below(12) } else { rng.between(1, 4) };
    let ttl = *rng.pick(&[(100 * MS, 600 * MS), (500 * MS, 3 * SEC), (2 * SEC, 9 * SEC)]);
    for _ in 0..holders {
        roles.push(Role::Holder(Box::new(Holder::new(ttl, rng.chance(300)))));
    }
    if rng.chance(150) {
        roles.push(Role::Mass(MassHolder::new(rng.between(20, 1500), rng.between(SEC, 3 * SEC))));
    }
    if roles.is_empty() {
        roles.push(Role::Kv(Kv::new(SEC)));
    }
    roles
}

/// The bug of this name, as `--bug` takes it.
pub fn bug_named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name))
}
