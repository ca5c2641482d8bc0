//! `tenure bench`: what a server does, alone or in turns with another one, such as etcd. One workload a run, each against whatever speaks
//! etcd's v3 API.
//!
//! The load comes from one thread: then it takes at most one core from the servers, and needs no lock that would cost latency. What a
//! server costs is read from its process, so it does not matter how slow the load or the machine is.

pub mod args;
mod clock;
mod expire;
mod hold;
mod keepalive;
mod keeper;
mod process;
mod progress;
mod report;
mod stats;
mod target;
mod turns;
mod unary;
mod watching;

use std::{env, rc::Rc};

use anyhow::Result;
use tokio::task::LocalSet;

use self::{
    args::Bench,
    progress::Progress,
    report::{Document, Figures},
    target::Target,
};
use crate::{cli::Global, exit::Failure, print::Out};

pub fn run(bench: &Bench, global: &Global, out: &mut Out) -> Result<()> {
    let shared = match bench {
        Bench::Put(it) => &it.load.shared,
        Bench::Get(it) => &it.load.shared,
        Bench::Range(it) => &it.load.shared,
        Bench::Txn(it) => &it.load.shared,
        Bench::Grant(it) => &it.load.shared,
        Bench::Revoke(it) => &it.load.shared,
        Bench::KeepAlive(it) => &it.load.shared,
        Bench::Hold(it) => &it.shared,
        Bench::Expire(it) => &it.shared,
        Bench::Watch(it) => &it.shared,
        Bench::Report(it) => return print_reports(it, out),
    };
    let unix_s = clock::unix_s();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let servers = LocalSet::new().block_on(&runtime, async {
        let targets: Vec<Rc<Target>> =
            Target::connect_all(global, shared, run_number(unix_s)).await?.into_iter().map(Rc::new).collect();
        let progress = Progress::start();
        let measured = tokio::select! {
            measured = measure(bench, &targets, &progress) => measured,
            _ = tokio::signal::ctrl_c() => Err(Failure::Silent(INTERRUPTED).into()),
        };
        if !shared.keep {
            for target in &targets {
                progress.say(format!("{}: remove the keys", target.name));
                // What went wrong before says more than what goes wrong now.
                let cleaned = target.clean_up().await;
                if measured.is_ok() {
                    cleaned?;
                }
            }
        }
        let all = measured?;
        anyhow::Ok(targets.iter().zip(all).map(|(target, figures)| report::server(target, figures)).collect())
    })?;
    Document::new(command(env::args()), unix_s, servers, &shared.goal).print(shared, out)
}

/// What shells say of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

async fn measure(bench: &Bench, targets: &[Rc<Target>], progress: &Rc<Progress>) -> Result<Vec<Figures>> {
    match bench {
        Bench::Put(_)
        | Bench::Get(_)
        | Bench::Range(_)
        | Bench::Txn(_)
        | Bench::Grant(_)
        | Bench::Revoke(_) => unary::run(bench, targets, progress).await,
        Bench::KeepAlive(it) => keepalive::run(it, targets, progress).await,
        Bench::Hold(it) => hold::run(it, targets, progress).await,
        Bench::Expire(it) => expire::run(it, targets, progress).await,
        Bench::Watch(it) => watching::run(it, targets, progress).await,
        Bench::Report(_) => Ok(Vec::new()),
    }
}

fn print_reports(report: &args::Report, out: &mut Out) -> Result<()> {
    for (index, file) in report.files.iter().enumerate() {
        if index > 0 {
            out.line("")?;
        }
        out.raw(Document::read(file)?.markdown().as_bytes())?;
    }
    Ok(())
}

/// Tells the keys and leases of this run from those that another one left behind or writes now.
fn run_number(unix_s: u64) -> u32 {
    (unix_s as u32).wrapping_mul(0x9e37_79b1) ^ std::process::id()
}

/// The workload with its options, for whoever wants to run it again; not where it ran, what it was to reach and where that was written.
fn command(args: impl Iterator<Item = String>) -> String {
    const LEFT_OUT: [&str; 6] = ["--endpoints", "--against", "--pid", "--against-pid", "--goal", "--json"];
    let mut kept = Vec::new();
    let mut args = args.skip(1);
    while let Some(arg) = args.next() {
        if LEFT_OUT.contains(&arg.as_str()) {
            args.next();
        } else if !LEFT_OUT
            .iter()
            .any(|name| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        {
            kept.push(arg);
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_kept_without_places_and_goals() {
        let line = "tenure bench put --against :1 --keys 5 --json=/a/b --goal ops>=1 -o json --pid=7";
        let kept = command(line.split(' ').map(str::to_owned));
        assert_eq!(kept, "bench put --keys 5 -o json");
    }
}
