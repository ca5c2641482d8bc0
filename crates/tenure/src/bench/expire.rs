//! Leases that run out: all together, or one at a time. Somebody else goes on putting, and should not feel it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    args, clock,
    keeper::Keeper,
    progress::Progress,
    report::{Figures, ms},
    stats::{Histogram, each},
    target::Target,
};

/// Puts begin so long before the first lease is due.
const LEAD: Duration = Duration::from_millis(200);

pub async fn run(
    bench: &args::Expire,
    targets: &[Rc<Target>],
    progress: &Rc<Progress>,
) -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    for target in targets {
        all.push(expire(bench, target, progress).await?);
    }
    Ok(all)
}

async fn expire(bench: &args::Expire, target: &Rc<Target>, progress: &Rc<Progress>) -> Result<Figures> {
    let (name, leases) = (&target.name, bench.leases);
    let keeper = Keeper::start(target, progress, leases).await?;
    progress.say(format!("{name}: grant {leases} leases with a key each"));
    let puts = Rc::new(Puts::default());
    let before;
    if let Some(apart) = bench.apart {
        puts.start(target, bench.puts);
        before = target.usage()?;
        keeper.let_go();
        grant_apart(&keeper, bench, apart).await?;
    } else {
        keeper.grant_all(bench.ttl, bench.streams).await?;
        keeper.stop().await?;
        keeper.renew_all().await?;
        let (first_due, _) = keeper.due_ns();
        clock::sleep_until(first_due.saturating_sub(clock::nanos(LEAD))).await;
        before = target.usage()?;
        puts.start(target, bench.puts);
    }
    let (first_due, last_due) = keeper.due_ns();
    progress.say(format!("{name}: wait for {leases} leases to end"));
    keeper.wait_for_ends(keeper.ttl() + bench.wait).await?;
    puts.stop.set(true);
    let cpu = target.usage()? - before;

    let mut figures = Figures::new();
    keeper.ending_figures(&mut figures);
    if bench.apart.is_none() {
        figures.set("due_spread_ms", ms(last_due - first_due));
        figures.set("last_late_ms", ms(keeper.last_end_ns().saturating_sub(last_due)));
    }
    if target.has_processes() {
        figures.set("cpu_us_per_end", each(cpu.as_secs_f64() * 1e6, u64::from(keeper.ended())));
    }
    puts.figures(&mut figures);
    Ok(figures)
}

/// One lease after another, at moments that a server's own rhythm does not know.
async fn grant_apart(keeper: &Rc<Keeper>, bench: &args::Expire, apart: Duration) -> Result<()> {
    let begun = clock::now_ns();
    let mut grants = JoinSet::new();
    for number in 0..bench.leases {
        // The golden ratio spreads what would else fall on the same part of each period.
        let jitter = (f64::from(number) * 0.618_033_988_75).fract() - 0.5;
        let at = (f64::from(number) + 1.0 + jitter) * clock::nanos(apart) as f64;
        clock::sleep_until(begun + at as u64).await;
        let (keeper, ttl) = (Rc::clone(keeper), bench.ttl);
        grants.spawn_local(async move { keeper.grant(number, ttl).await });
        while let Some(ended) = grants.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = grants.join_next().await {
        ended??;
    }
    Ok(())
}

/// Puts at a steady rate, each sent when it is due whether or not those before it were answered: a server that stalls is seen by all of
/// them, not by the first only.
#[derive(Default)]
struct Puts {
    stop: Cell<bool>,
    latency: RefCell<Option<Histogram>>,
    errors: Cell<u64>,
}

impl Puts {
    fn start(self: &Rc<Puts>, target: &Rc<Target>, per_s: u32) {
        if per_s == 0 {
            return;
        }
        *self.latency.borrow_mut() = Some(Histogram::new());
        let (puts, target) = (Rc::clone(self), Rc::clone(target));
        let interval_ns = 1_000_000_000 / u64::from(per_s);
        tokio::task::spawn_local(async move {
            let mut due = clock::now_ns();
            for number in 0.. {
                if puts.stop.get() {
                    return;
                }
                let (puts, target) = (Rc::clone(&puts), Rc::clone(&target));
                tokio::task::spawn_local(async move {
                    let result =
                        target.put(target.key("other", number % 100), Bytes::from_static(b"x")).await;
                    if puts.stop.get() {
                        return;
                    }
                    match (result, &mut *puts.latency.borrow_mut()) {
                        (Ok(()), Some(latency)) => latency.record(clock::now_ns() - due),
                        _ => puts.errors.set(puts.errors.get() + 1),
                    }
                });
                due += interval_ns;
                clock::sleep_until(due).await;
            }
        });
    }

    fn figures(&self, figures: &mut Figures) {
        if let Some(latency) = &*self.latency.borrow() {
            figures.set("puts", latency.count() as f64);
            figures.set("put_p99_ms", ms(latency.percentile(0.99)));
            figures.set("put_max_ms", ms(latency.max()));
            figures.set("errors", self.errors.get() as f64);
        }
    }
}
