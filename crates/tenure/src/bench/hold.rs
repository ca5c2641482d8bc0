//! Many leases held at once. One server after the other, because what is asked of each is a rate that it must keep up with, and two at a
//! time would not leave each other the machine.

use std::{rc::Rc, time::Duration};

use anyhow::Result;

use super::{
    args, clock,
    keeper::Keeper,
    process::Usage,
    progress::Progress,
    report::Figures,
    stats::each,
    target::Target,
    turns::{Measured, Tally},
    unary::{Call, fill},
};

const IN_FLIGHT: u32 = 64;

/// At least so many keys before anything is weighed, or as many as are held: what memory is for once is there then, such as buffers of
/// connections, the log's memory and the first pages of heaps.
const FIRST_KEYS_MIN: u64 = 1_000;

/// Time for a server to put its house in order before it is weighed.
const REST: Duration = Duration::from_secs(3);

pub async fn run(
    bench: &args::Hold,
    targets: &[Rc<Target>],
    progress: &Rc<Progress>,
) -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    for target in targets {
        all.push(hold(bench, target, progress).await?);
    }
    Ok(all)
}

async fn weigh(target: &Target) -> Result<Usage> {
    tokio::time::sleep(REST).await;
    target.usage()
}

async fn hold(bench: &args::Hold, target: &Rc<Target>, progress: &Rc<Progress>) -> Result<Figures> {
    let (name, leases) = (&target.name, u64::from(bench.leases));
    progress.say(format!("{name}: write {leases} keys without leases"));
    fill(target, progress, &Call::PutPlain { from: leases }, 0, leases.max(FIRST_KEYS_MIN), IN_FLIGHT)
        .await?;
    let empty = weigh(target).await?;
    fill(target, progress, &Call::PutPlain { from: 0 }, 0, leases, IN_FLIGHT).await?;
    let keys_alone = weigh(target).await?;

    let keeper = Keeper::start(target, progress, bench.leases).await?;
    progress.say(format!("{name}: grant {leases} leases with a key each"));
    keeper.grant_all(bench.ttl, bench.streams).await?;
    keeper.spread_evenly();
    // One round to fall into step.
    tokio::time::sleep(keeper.ttl() / 3).await;
    let duration = bench.duration.max(keeper.ttl() * 3);
    progress.say(format!("{name}: hold {leases} leases for {} s", duration.as_secs()));
    let mut measured = Measured::new();
    measured
        .turn(target, async {
            let before = keeper.renewals();
            tokio::time::sleep(duration).await;
            keeper.check()?;
            let mut tally = Tally::new();
            tally.ops = keeper.renewals() - before;
            Ok(tally)
        })
        .await?;
    let with_leases = target.usage()?;

    let mut figures = Figures::new();
    figures.set("renewals", measured.tally.ops as f64);
    figures.set("throughput_per_s", measured.tally.ops as f64 / measured.seconds);
    keeper.holding_figures(&mut figures);
    measured.costs(target, &mut figures)?;
    if target.has_processes() {
        let grown = |after: u64, before: u64| after as f64 - before as f64;
        let rss =
            grown(with_leases.rss_bytes, keys_alone.rss_bytes) - grown(keys_alone.rss_bytes, empty.rss_bytes);
        let anon = grown(with_leases.anon_bytes, keys_alone.anon_bytes)
            - grown(keys_alone.anon_bytes, empty.anon_bytes);
        figures.set("bytes_per_lease", each(rss, leases));
        figures.set("anon_bytes_per_lease", each(anon, leases));
        figures.set("bytes_per_key", each(grown(keys_alone.rss_bytes, empty.rss_bytes), leases));
    }

    keeper.stop().await?;
    progress.say(format!("{name}: wait for {leases} leases to end"));
    let (before, begun, ended) = (target.usage()?, clock::now_ns(), keeper.ended());
    keeper.wait_for_ends(keeper.ttl() + bench.wait).await?;
    let cpu = target.usage()? - before;
    let seconds = (clock::now_ns() - begun) as f64 / 1e9;
    figures.set("seconds_to_end", seconds);
    keeper.ending_figures(&mut figures);
    if target.has_processes() {
        figures.set("cpu_us_per_end", each(cpu.as_secs_f64() * 1e6, u64::from(keeper.ended() - ended)));
    }
    Ok(figures)
}
