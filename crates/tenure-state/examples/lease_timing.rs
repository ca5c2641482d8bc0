//! What the lease table costs: `cargo run --release -p tenure-state --example lease_timing`.
//!
//! Times are processor time where the system tells it, and still move with what else runs on the machine;
//! memory is the growth of the process.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures: it reads a clock and what the system says of the process"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::lease::LeaseTable;

const TTL: Nanos = Nanos::from_secs(60);

/// Spreads numbers over all ids, always the same way (the finalizer of splitmix64).
fn id(number: u64) -> LeaseId {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    LeaseId(((mixed ^ (mixed >> 31)) >> 1) as i64)
}

/// Bytes that the process holds in memory; 0 where the system does not tell.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The processor time that this thread has used, where the system tells; else the time that has passed.
fn spent(since: Instant) -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let on_cpu = schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    on_cpu.map(Duration::from_nanos).unwrap_or_else(|| since.elapsed())
}

/// Prints what one of `count` operations of `work` takes.
fn time<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let before = spent(since);
    let result = work();
    let total = spent(since).saturating_sub(before);
    let each = total.as_nanos() / u128::from(count);
    println!("  {what:<48} {each:>6} ns each, {:>8.1} ms", total.as_secs_f64() * 1e3);
    result
}

fn measure(count: u64) {
    println!("{count} leases");
    let mut changed = Vec::with_capacity(2 * count as usize);
    changed.resize(2 * count as usize, EMPTY);
    changed.clear();
    let before = resident();
    let mut table = LeaseTable::new(Nanos::ZERO);
    time("grant, spread over 20 s", count, || {
        for number in 0..count {
            let at = Nanos(number * 20_000_000_000 / count);
            table.grant(id(number), TTL, LeaseId::NONE, at).expect("the ids differ");
        }
    });
    println!("  {:<48} {:>6} bytes each", "memory", (resident() - before) / count);

    time("attach the first key", count, || {
        let key = Bytes::from_static(b"k");
        (0..count).for_each(|number| table.attach(key.clone(), LeaseId::NONE, id(number)));
    });

    // Three rounds of renewals, 20 s apart, as one log entry every 2 ms would bring them: each step's leases are
    // all over the table.
    let per_step = count as usize / 10_000;
    let mut ids: Vec<_> = (0..count).map(|number| id(number * 7_919 % count)).collect();
    ids.chunks_mut(per_step).for_each(|step| step.sort_unstable());
    let mut longest = Duration::ZERO;
    time("renew, a step each 2 ms, with the wheel's turn", 3 * count, || {
        for (step, ids) in ids.chunks(per_step).cycle().take(30_000).enumerate() {
            let now = Nanos::from_secs(20) + Nanos(step as u64 * 2_000_000);
            table.advance(now);
            changed.clear();
            black_box(table.renew(ids, now, &mut changed));
            let start = Instant::now();
            assert_eq!(table.next_due(now), None);
            longest = longest.max(start.elapsed());
        }
    });
    println!(
        "  {:<48} {:>8.1} ms by the wall clock",
        "the longest turn of the wheel meanwhile",
        longest.as_secs_f64() * 1e3
    );

    let now = table.clock();
    changed.clear();
    time("renew all in one batch, random order", count, || table.renew(&ids, now, &mut changed));
    ids.sort_unstable();
    table.advance(now + Nanos::from_secs(10));
    changed.clear();
    time("renew all in one batch, ascending", count, || table.renew(&ids, table.clock(), &mut changed));

    table.advance(table.clock() + TTL.saturating_sub(Nanos(1)));
    changed.clear();
    time("take over when all are about to end", count, || {
        table.take_over(Nanos::from_millis(750), &mut changed)
    });
    table.advance(table.clock() + TTL);
    time("look at what is due when all are", count, || table.next_due(table.clock()));
    time("end all", count, || {
        while let Some((id, _)) = table.next_due(table.clock()) {
            black_box(table.end(id));
        }
    });
}

const EMPTY: tenure_state::applied::LeaseRow = tenure_state::applied::LeaseRow {
    id: LeaseId::NONE,
    ttl: Nanos::ZERO,
    deadline: Nanos::ZERO,
    base: Nanos::ZERO,
    granted: Nanos::ZERO,
    parent: LeaseId::NONE,
    depth: 0,
};

fn main() {
    measure(100_000);
    measure(1_000_000);
}
