//! Runs seeds and says what they found.

#[path = "main/clock.rs"]
mod clock;

use std::process::ExitCode;
use std::time::Duration;

use tenure_sim::{Run, bug_named, run};
use tenure_state::bugs::Bug;

const USAGE: &str = "\
usage: tenure-sim [--seed S | --seeds N [--from S] | --minutes M | --long | --failed]
                  [--bug NAME] [--hash] [--verbose]

  --seed S      run one seed
  --seeds N     run N seeds, one after the other, from S on (default 1)
  --minutes M   run fresh seeds for M minutes (default 3)
  --long        the same for 60 minutes
  --failed      run the seeds of seeds.txt, which failed once
  --bug NAME    put a known bug back; `--bug list` lists them
  --hash        print the hash of each run
  --verbose     print what happens

exit codes: 0 all promises held, 2 wrong usage, 3 a panic, 4 something never happened (liveness),
            5 a promise was broken (correctness)";

/// Tells them apart for scripts.
const CRASHED: u8 = 3;
const STUCK: u8 = 4;
const BROKEN: u8 = 5;

struct Options {
    seeds: Seeds,
    bug: Option<Bug>,
    hash: bool,
    verbose: bool,
}

enum Seeds {
    Count { from: u64, count: u64 },
    For(Duration),
    Failed,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let started = clock::now();
    let mut simulated = 0;
    let mut count = 0;
    let mut seed = match options.seeds {
        Seeds::Count { from, .. } => from,
        Seeds::For(_) => clock::fresh_seed(),
        Seeds::Failed => 0,
    };
    let failed: Vec<u64> = failed_seeds();
    let mut failure = None;
    loop {
        let next = match options.seeds {
            Seeds::Count { count: all, .. } => (count < all).then_some(seed),
            Seeds::For(limit) => (started.elapsed() < limit).then_some(seed),
            Seeds::Failed => failed.get(count as usize).copied(),
        };
        let Some(now) = next else { break };
        let run = guarded(now, &options);
        seed = seed.wrapping_add(1);
        count += 1;
        simulated += run.history.end;
        if options.hash {
            println!("seed {now} hash {:016x} events {}", run.hash, run.event_count);
        }
        if !run.violations.is_empty() {
            failure = Some(report(&run, &options));
            break;
        }
    }
    let hours = simulated as f64 / 3.6e12;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    println!(
        "{count} seeds, {hours:.2} simulated hours in {minutes:.2} minutes: {:.1} simulated hours per minute",
        hours / minutes
    );
    failure.map_or(ExitCode::SUCCESS, ExitCode::from)
}

/// Runs a seed; a panic in it ends the process after saying how to see it again.
fn guarded(seed: u64, options: &Options) -> Run {
    let command = command(seed, options.bug);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("seed {seed} panicked: {info}\nrepeat it: {command}");
        std::process::exit(i32::from(CRASHED));
    }));
    let run = run(seed, options.bug, options.verbose);
    std::panic::set_hook(before);
    run
}

fn report(run: &Run, options: &Options) -> u8 {
    let seed = run.seed;
    println!("seed {seed} broke {} promises:", run.violations.len());
    for violation in run.violations.iter().take(8) {
        println!("  {}: {}", violation.promise, violation.what);
    }
    println!("repeat it: {}", command(seed, options.bug));
    if run.violations.iter().all(|violation| violation.promise == "liveness") { STUCK } else { BROKEN }
}

fn command(seed: u64, bug: Option<Bug>) -> String {
    let bug = bug.map_or(String::new(), |bug| format!(" --bug {bug:?}"));
    format!("cargo run -p tenure-sim --release -- --seed {seed}{bug}")
}

fn failed_seeds() -> Vec<u64> {
    include_str!("../seeds.txt")
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { seeds: Seeds::For(Duration::from_secs(180)), bug: None, hash: false, verbose: false };
    let mut from = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n{USAGE}"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number\n{USAGE}"));
        match argument.as_str() {
            "--seed" => options.seeds = Seeds::Count { from: number(value()?)?, count: 1 },
            "--seeds" => options.seeds = Seeds::Count { from, count: number(value()?)? },
            "--from" => {
                from = number(value()?)?;
                if let Seeds::Count { from: start, .. } = &mut options.seeds {
                    *start = from;
                }
            }
            "--minutes" => options.seeds = Seeds::For(Duration::from_secs(60 * number(value()?)?)),
            "--long" => options.seeds = Seeds::For(Duration::from_secs(3600)),
            "--failed" => options.seeds = Seeds::Failed,
            "--bug" => {
                let name = value()?;
                let all: Vec<String> = Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect();
                let named = bug_named(&name).ok_or(format!("known bugs: {}", all.join(", ")))?;
                options.bug = Some(named);
            }
            "--hash" => options.hash = true,
            "--verbose" => options.verbose = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(options)
}
