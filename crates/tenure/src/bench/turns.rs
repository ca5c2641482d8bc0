//! Two servers in turns: what else the machine does, and how warm it is, then hits both alike. Processor time is read before and after
//! each turn from the server's process, never from the clock.

use std::{rc::Rc, time::Duration};

use anyhow::{Result, bail};

use super::{
    clock,
    process::Usage,
    progress::Progress,
    report::Figures,
    stats::{Histogram, each},
    target::Target,
};

/// A server puts some work off, such as etcd its commit to disk by 100 ms. What is done in this time after a turn still counts.
const SETTLE: Duration = Duration::from_millis(150);

/// Connections, caches and heaps are brought up by a turn that does not count.
const WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP_COUNT: u64 = 2_000;

/// What one turn may do: whichever is reached first.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub duration: Duration,
    pub count: u64,
}

/// What was done, and how it went.
#[derive(Debug)]
pub struct Tally {
    pub ops: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub latency: Histogram,
}

impl Tally {
    pub fn new() -> Tally {
        Tally { ops: 0, errors: 0, first_error: None, latency: Histogram::new() }
    }

    pub fn done(&mut self, took_ns: u64) {
        self.ops += 1;
        self.latency.record(took_ns);
    }

    pub fn failed(&mut self, why: impl ToString) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.to_string());
    }

    pub fn add(&mut self, other: Tally) {
        self.ops += other.ops;
        self.errors += other.errors;
        self.latency.add(&other.latency);
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }
}

/// All turns of one server.
#[derive(Debug)]
pub struct Measured {
    pub tally: Tally,
    pub seconds: f64,
    cpu: Duration,
    own_cpu: Duration,
    started: Option<Usage>,
}

impl Measured {
    pub fn new() -> Measured {
        Measured {
            tally: Tally::new(),
            seconds: 0.0,
            cpu: Duration::ZERO,
            own_cpu: Duration::ZERO,
            started: None,
        }
    }

    /// Does `work` and books what it cost the server.
    pub async fn turn(&mut self, target: &Target, work: impl Future<Output = Result<Tally>>) -> Result<()> {
        let own_pid = [std::process::id()];
        let (before, own_before) = (target.usage()?, Usage::of(&own_pid)?);
        self.started.get_or_insert(before);
        let begun = clock::now_ns();
        let tally = work.await?;
        self.seconds += (clock::now_ns() - begun) as f64 / 1e9;
        self.own_cpu += Usage::of(&own_pid)? - own_before;
        tokio::time::sleep(SETTLE).await;
        self.cpu += target.usage()? - before;
        self.tally.add(tally);
        Ok(())
    }

    /// Throughput, latency, processor time and memory.
    pub fn figures(&self, target: &Target) -> Result<Figures> {
        let mut figures = Figures::new();
        let tally = &self.tally;
        figures.set("ops", tally.ops as f64);
        figures.set("errors", tally.errors as f64);
        figures.set("throughput_per_s", tally.ops as f64 / self.seconds.max(1e-9));
        figures.set_latency(&tally.latency);
        self.costs(target, &mut figures)?;
        Ok(figures)
    }

    /// Processor time and memory alone.
    pub fn costs(&self, target: &Target, figures: &mut Figures) -> Result<()> {
        let ops = self.tally.ops;
        if target.has_processes() {
            let now = target.usage()?;
            let in_all = self.started.map_or(Duration::ZERO, |started| now - started);
            figures.set("cpu_us_per_op", each(self.cpu.as_secs_f64() * 1e6, ops));
            figures.set("cpu_us_per_op_with_idle", each(in_all.as_secs_f64() * 1e6, ops));
            figures.set("cores", self.cpu.as_secs_f64() / self.seconds.max(1e-9));
            figures.set("rss_mib", now.rss_bytes as f64 / f64::from(1 << 20));
            figures.set("anon_mib", now.anon_bytes as f64 / f64::from(1 << 20));
        }
        figures.set("client_cpu_us_per_op", each(self.own_cpu.as_secs_f64() * 1e6, ops));
        Ok(())
    }
}

/// Gives each server `rounds` turns, after one that does not count. `prepare` is not measured, `work` is.
pub async fn in_turns(
    targets: &[Rc<Target>],
    progress: &Progress,
    rounds: u32,
    turn: Turn,
    mut prepare: impl AsyncFnMut(usize, Turn) -> Result<()>,
    mut work: impl AsyncFnMut(usize, Turn) -> Result<Tally>,
) -> Result<Vec<Measured>> {
    let warm_up = Turn { duration: turn.duration.min(WARM_UP), count: turn.count.min(WARM_UP_COUNT) };
    for (side, target) in targets.iter().enumerate() {
        progress.say(format!("warm up {}", target.name));
        prepare(side, warm_up).await?;
        let tally = work(side, warm_up).await?;
        if tally.ops == 0 {
            let why = tally.first_error.unwrap_or_else(|| "nothing was answered in time".into());
            bail!("{} at {} does not do this: {why}", target.name, target.endpoint);
        }
        tokio::time::sleep(SETTLE).await;
    }
    let mut measured: Vec<Measured> = targets.iter().map(|_| Measured::new()).collect();
    for round in 0..rounds {
        for step in 0..targets.len() {
            // Who goes first changes, or one of them would always meet the other's leftovers.
            let side = if round % 2 == 0 { step } else { targets.len() - 1 - step };
            let target = &targets[side];
            progress.say(format!("turn {} of {rounds}, {}", round + 1, target.name));
            prepare(side, turn).await?;
            measured[side].turn(target, work(side, turn)).await?;
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_keep_the_first_error() {
        let (mut all, mut one) = (Tally::new(), Tally::new());
        all.done(1_000);
        one.done(3_000);
        one.failed("first");
        one.failed("second");
        all.add(one);
        assert_eq!((all.ops, all.errors, all.first_error.as_deref()), (2, 2, Some("first")));
        assert_eq!(all.latency.max(), 3_000);
    }
}
