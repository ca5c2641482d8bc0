//! What one entry of each kind costs to apply, on a store of 100,000 keys and as many leases:
//! `cargo bench -p tenure-state --bench apply`.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use tenure_state::State;
use tenure_state::applied::{Applied, Progress, Reply};
use tenure_state::command::{
    Command, Compare, CompareResult, CompareTarget, DeleteRange, Entry, Grant, LeaseStep, Op, Put, PutLease,
    Range, Sort, Stamp, TakeOver, Txn,
};
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::key::KeyRange;

const KEYS: u64 = 100_000;
const TERM: u64 = 1;

/// History is forgotten, off the clock, after so many entries, or a longer measurement would measure a larger store.
const CHUNK: u64 = 100_000;

/// Of this thread: on a machine that others use, the clock on the wall says more about them.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The kernel promises both: it counts up from 0, and nanoseconds stay below a second.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Log {
    state: State,
    index: u64,
    clock: Nanos,
}

impl Log {
    /// Every key is written once and is on a lease of its own.
    fn new() -> Log {
        let mut log = Log { state: State::new(), index: 0, clock: Nanos::ZERO };
        for number in 0..KEYS {
            log.apply(log.grant(number));
            log.apply(log.put(number, PutLease::Set(lease(number))));
        }
        log
    }

    fn apply(&mut self, command: Command) -> Applied {
        self.index += 1;
        let mut progress =
            self.state.apply(&Entry { index: self.index, term: TERM, quota_bytes: 0, command });
        loop {
            match progress {
                Progress::Done(applied) => return applied,
                Progress::Unfinished => progress = self.state.resume(),
            }
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { term: TERM, clock: self.clock }
    }

    fn grant(&self, number: u64) -> Command {
        let ttl = Nanos::from_secs(3600);
        Command::Grant(Grant { stamp: self.stamp(), id: lease(number), ttl, parent: LeaseId::NONE })
    }

    fn put(&self, number: u64, lease: PutLease) -> Command {
        let value = Some(Bytes::from_static(&[b'v'; 256]));
        Command::Put(Put { key: key(number), value, lease, prev: false })
    }

    fn step(&self, renew: Vec<LeaseId>) -> Command {
        Command::LeaseStep(LeaseStep { stamp: self.stamp(), renew, limit: 10_000, last: true })
    }

    fn forget_history(&mut self) {
        let revision = self.state.revision();
        // Refused when nothing was written since the last time, which is as good.
        let _ = self.apply(Command::Compact { revision });
        while let Ok(Reply::Scrub { more: true }) = self.apply(Command::Scrub { limit: 10_000 }).reply {}
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("bench/keys/{:08}", number % KEYS))
}

fn lease(number: u64) -> LeaseId {
    LeaseId(number as i64 + 1)
}

/// Times `make`'s commands alone; `undo` restores, off the clock, what they took away.
fn measure(
    criterion: &mut Criterion,
    name: &str,
    log: &mut Log,
    make: impl Fn(&Log, u64) -> Command,
    undo: impl Fn(&mut Log, u64),
) {
    let mut number = 0;
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let (mut total, mut left) = (Duration::ZERO, iterations);
            while left > 0 {
                let count = left.min(CHUNK);
                let commands: Vec<Command> =
                    (number..number + count).map(|number| make(log, number)).collect();
                let before = processor_time();
                for command in commands {
                    black_box(log.apply(command).reply).expect("nothing is refused here");
                }
                total += processor_time().saturating_sub(before);
                (number..number + count).for_each(|number| undo(log, number));
                log.forget_history();
                number += count;
                left -= count;
            }
            total
        });
    });
}

fn apply(criterion: &mut Criterion) {
    let log = &mut Log::new();
    let nothing = |_: &mut Log, _: u64| ();
    measure(criterion, "nothing", log, |_, _| Command::Nothing, nothing);
    measure(criterion, "put", log, |log, n| log.put(n, PutLease::Keep), nothing);
    let txn = |log: &Log, number: u64| {
        let compare = Compare {
            range: KeyRange::One(key(number)),
            result: CompareResult::Greater,
            target: CompareTarget::Create(0),
        };
        let Command::Put(put) = log.put(number, PutLease::Keep) else { unreachable!("it is a put") };
        Command::Txn(Txn { compare: vec![compare], success: vec![Op::Put(put)], failure: Vec::new() })
    };
    measure(criterion, "txn of a comparison and a put", log, txn, nothing);
    let delete = |_: &Log, number| {
        Command::DeleteRange(DeleteRange { range: KeyRange::One(key(number)), prev: false })
    };
    let put_back = |log: &mut Log, number: u64| {
        log.apply(log.put(number, PutLease::Set(lease(number % KEYS))));
    };
    measure(criterion, "delete of one key", log, delete, put_back);
    let renew = |log: &Log, number: u64| log.step(vec![lease(number.wrapping_mul(7_919) % KEYS)]);
    measure(criterion, "lease step of one renewal", log, renew, nothing);
    let revoke = |_: &Log, number: u64| Command::Revoke { id: lease(number % KEYS) };
    let grant_again = |log: &mut Log, number: u64| {
        log.apply(log.grant(number % KEYS));
        log.apply(log.put(number, PutLease::Set(lease(number % KEYS))));
    };
    measure(criterion, "revoke of a lease with a key", log, revoke, grant_again);
    let grant = |log: &Log, number: u64| log.grant(KEYS + number);
    let ungrant = |log: &mut Log, number: u64| {
        log.apply(Command::Revoke { id: lease(KEYS + number) });
    };
    measure(criterion, "grant", log, grant, ungrant);
    let take_over =
        |_: &Log, _: u64| Command::TakeOver(TakeOver { term: TERM, grace: Nanos::from_millis(750) });
    measure(criterion, "take-over with 100,000 leases", log, take_over, nothing);
}

fn read(criterion: &mut Criterion) {
    let log = Log::new();
    for (name, span) in [("range of one key", 1), ("range of 100 keys", 100)] {
        let mut number = 0_u64;
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let before = processor_time();
                for _ in 0..iterations {
                    number += 1;
                    let first = number.wrapping_mul(7_919) % (KEYS - span);
                    let end = if span == 1 { Bytes::new() } else { key(first + span) };
                    let range = KeyRange::new(key(first), end);
                    black_box(log.state.range(&all_of(range))).expect("the present can be read");
                }
                processor_time().saturating_sub(before)
            });
        });
    }
}

fn all_of(range: KeyRange) -> Range {
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

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = apply, read
}
criterion_main!(benches);
