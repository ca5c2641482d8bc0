//! Renewal and expiry among many leases: `cargo bench -p tenure-state --bench leases`, which needs 3 GB for the ten
//! million. Each iteration is one log entry for 1,000 leases, as a busy server would write it.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use tenure_state::State;
use tenure_state::applied::{Applied, Progress, Reply};
use tenure_state::command::{Command, Entry, Grant, LeaseStep, Stamp};
use tenure_state::ids::{LeaseId, Nanos};

const TERM: u64 = 1;
const TTL: Nanos = Nanos::from_secs(60);
const PER_STEP: u64 = 1_000;

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
    count: u64,
    gap_ns: u64,
}

impl Log {
    /// Leases that are due evenly over one TTL.
    fn new(count: u64) -> Log {
        let mut log = Log { state: State::new(), index: 0, clock: Nanos::ZERO, count, gap_ns: TTL.0 / count };
        for number in 0..count {
            log.clock = Nanos(number * log.gap_ns);
            log.grant(number);
        }
        log
    }

    fn apply(&mut self, command: Command) -> Applied {
        self.index += 1;
        match self.state.apply(&Entry { index: self.index, term: TERM, quota_bytes: 0, command }) {
            Progress::Done(applied) => applied,
            Progress::Unfinished => unreachable!("leases without keys end in one turn"),
        }
    }

    fn grant(&mut self, number: u64) {
        let stamp = Stamp { term: TERM, clock: self.clock };
        let grant = Grant { stamp, id: self.id(number), ttl: TTL, parent: LeaseId::NONE };
        self.apply(Command::Grant(grant)).reply.expect("the id is free");
    }

    /// Spread over all ids, always the same way (the finalizer of splitmix64): ids that count up would be an easy hash.
    fn id(&self, number: u64) -> LeaseId {
        let mut mixed = (number % self.count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        LeaseId(((mixed ^ (mixed >> 31)) >> 1) as i64)
    }

    fn step(&self, mut renew: Vec<LeaseId>) -> Command {
        renew.sort_unstable();
        let stamp = Stamp { term: TERM, clock: self.clock };
        Command::LeaseStep(LeaseStep { stamp, renew, limit: 10_000, last: true })
    }
}

/// The clock goes on by what a server's would: every lease renewed each third of its TTL.
fn renewal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("renewal");
    group.throughput(Throughput::Elements(PER_STEP));
    for count in [100_000, 1_000_000, 10_000_000] {
        let log = &mut Log::new(count);
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_custom(|steps| {
                let mut total = Duration::ZERO;
                for _ in 0..steps {
                    let renew = (next..next + PER_STEP).map(|number| log.id(number)).collect();
                    next += PER_STEP;
                    log.clock = log.clock + Nanos(PER_STEP * log.gap_ns / 3);
                    let command = log.step(renew);
                    let before = processor_time();
                    let reply = black_box(log.apply(command).reply).expect("a step is never refused");
                    total += processor_time().saturating_sub(before);
                    let Reply::LeaseStep(reply) = reply else { unreachable!("it was a step") };
                    assert!(reply.ended.is_empty(), "all were renewed in time");
                }
                total
            });
        });
    }
    group.finish();
}

/// What ended is granted again, off the clock.
fn expiry(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expiry");
    group.throughput(Throughput::Elements(PER_STEP));
    for count in [100_000, 1_000_000, 10_000_000] {
        let log = &mut Log::new(count);
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_custom(|steps| {
                let mut total = Duration::ZERO;
                for _ in 0..steps {
                    next += PER_STEP;
                    log.clock = TTL + Nanos((next - 1) * log.gap_ns);
                    let command = log.step(Vec::new());
                    let before = processor_time();
                    let reply = black_box(log.apply(command).reply).expect("a step is never refused");
                    total += processor_time().saturating_sub(before);
                    let Reply::LeaseStep(reply) = reply else { unreachable!("it was a step") };
                    assert_eq!(reply.ended.len() as u64, PER_STEP);
                    (next - PER_STEP..next).for_each(|number| log.grant(number));
                }
                total
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = renewal, expiry
}
criterion_main!(benches);
