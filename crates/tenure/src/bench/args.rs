//! What `tenure bench` can be asked for. Every default ends by itself, in time and in number.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Subcommand};

use crate::duration;

/// Measure a server: throughput, latency, processor time an operation, memory; alone or beside another
///
/// Works against any server with etcd's v3 API. With --against, both are measured in one run, in turns, so that what else the machine
/// does hits both alike. Processor time and memory need the server's process on this machine: it is found by the port that it listens
/// on, or named with --pid.
///
/// Everything is written below tenure-bench/ and removed afterwards. Do not run it against a server that others depend on.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  tenure bench put                                      # 64 in flight, for 10 s
  tenure bench put --against 127.0.0.1:22379            # beside a second server
  tenure bench hold --leases 100000 --ttl 10s -o json
  tenure bench expire --leases 10000                    # all due together
  tenure bench put --against :22379 --goal 'cpu_us_per_op.ratio<=0.35'")]
pub enum Bench {
    Put(Put),
    Get(Get),
    Range(Range),
    Txn(Txn),
    Grant(Grant),
    Revoke(Revoke),
    #[command(name = "keepalive")]
    KeepAlive(KeepAlive),
    Hold(Hold),
    Expire(Expire),
    Watch(Watch),
    Report(Report),
}

/// Options of every workload.
#[derive(Debug, Clone, Args)]
pub struct Shared {
    /// A second server, measured in turns with the first
    #[arg(long, value_name = "ENDPOINT")]
    pub against: Option<String>,
    /// The server's processes, if they are not found by the port
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// The same of the second server
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "against")]
    pub against_pid: Vec<u32>,
    /// Connections to each server
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: u16,
    /// Leave keys and leases behind
    #[arg(long)]
    pub keep: bool,
    /// What must hold: METRIC<=VALUE or METRIC>=VALUE, METRIC.ratio for first server / second. Missed: exit code 1
    #[arg(long, value_name = "GOAL")]
    pub goal: Vec<Goal>,
    /// Also write the JSON document to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of the workloads that keep a number of requests in flight.
#[derive(Debug, Clone, Args)]
pub struct Load {
    #[command(flatten)]
    pub shared: Shared,
    /// Requests in flight at a time
    #[arg(long, alias = "clients", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// How long each server is measured, over all rounds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_ttl)]
    pub duration: Duration,
    /// End after this many operations on each server, if that is sooner
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub total: Option<u64>,
    /// How many turns each server gets
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
}

/// Which keys, and how large.
#[derive(Debug, Clone, Args)]
pub struct Data {
    /// Different keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub value_size: u32,
}

/// Write keys, one after another and round again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench put --in-flight 256 --value-size 1024
  tenure bench put --total 1000000 --keys 1000000 --keep   # fill a server")]
pub struct Put {
    #[command(flatten)]
    pub load: Load,
    #[command(flatten)]
    pub data: Data,
}

/// Read single keys at random
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench get
  tenure bench get --serializable")]
pub struct Get {
    #[command(flatten)]
    pub load: Load,
    #[command(flatten)]
    pub data: Data,
    /// Take what the member has, without asking whether it is the newest
    #[arg(long)]
    pub serializable: bool,
}

/// Read ranges of keys at random
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench range --span 1000 --in-flight 8")]
pub struct Range {
    #[command(flatten)]
    pub load: Load,
    #[command(flatten)]
    pub data: Data,
    /// Keys in each range
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub span: u64,
    /// Take what the member has, without asking whether it is the newest
    #[arg(long)]
    pub serializable: bool,
}

/// Compare a key's revision, then write it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench txn --in-flight 64")]
pub struct Txn {
    #[command(flatten)]
    pub load: Load,
    #[command(flatten)]
    pub data: Data,
}

/// Grant leases
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench grant --total 100000 --ttl 1h --keep   # fill a server")]
pub struct Grant {
    #[command(flatten)]
    pub load: Load,
    /// Time to live of each lease
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse_ttl)]
    pub ttl: Duration,
}

/// Revoke leases, which are granted between the turns
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench revoke --attached-keys 1")]
pub struct Revoke {
    #[command(flatten)]
    pub load: Load,
    /// Keys that end with each lease
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub attached_keys: u32,
}

/// Renew leases as fast as they are answered, over streams
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench keepalive --streams 16 --in-flight 64")]
pub struct KeepAlive {
    #[command(flatten)]
    pub load: Load,
    /// Streams, which share the renewals in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub streams: u16,
    /// Leases to renew
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub leases: u32,
}

/// Hold leases with one key each: renew each every third of its time to live, evenly spread, and count what is lost
///
/// Then stop renewing, and see how late each lease ends: the event that its key is gone, against the answer to its last renewal plus
/// its time to live. Memory a lease is what leases and keys need, less what the same keys alone needed before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench hold --leases 100000 --ttl 10s --against 127.0.0.1:22379")]
pub struct Hold {
    #[command(flatten)]
    pub shared: Shared,
    /// Leases to hold
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub leases: u32,
    /// Time to live of each lease
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_ttl)]
    pub ttl: Duration,
    /// How long to hold them; three times the time to live at least
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub duration: Duration,
    /// Streams, which share the leases
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub streams: u16,
    /// Longest wait for the last lease to end
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = duration::parse)]
    pub wait: Duration,
}

/// Let leases with one key each run out, and see how late that is noticed
///
/// All are due together, right after one last renewal, unless --apart spreads them. One client goes on putting meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench expire --leases 10000                   # all due together
  tenure bench expire --leases 200 --apart 25ms --ttl 1s   # one at a time")]
pub struct Expire {
    #[command(flatten)]
    pub shared: Shared,
    /// Leases on each server
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub leases: u32,
    /// Time to live to ask for
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::parse_ttl)]
    pub ttl: Duration,
    /// Grant one lease each so long, and renew none
    #[arg(long, value_name = "TIME", value_parser = duration::parse_ttl)]
    pub apart: Option<Duration>,
    /// Puts a second by somebody else meanwhile
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub puts: u32,
    /// Streams for the last renewal
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub streams: u16,
    /// Longest wait for the last lease to end
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = duration::parse)]
    pub wait: Duration,
}

/// Watch one prefix many times over while keys are put at a steady rate
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench watch --watchers 1000 --events 100000")]
pub struct Watch {
    #[command(flatten)]
    pub shared: Shared,
    /// Watchers of the prefix
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub watchers: u32,
    /// Streams, which share the watchers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub streams: u16,
    /// Events a second to all watchers together: each put is one for each of them
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub events: u32,
    /// How long each server is measured, over all rounds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_ttl)]
    pub duration: Duration,
    /// How many turns each server gets
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    pub value_size: u32,
}

/// Turn the JSON documents of earlier runs into tables in Markdown
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure bench report results/*.json > results.md")]
pub struct Report {
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// A bound on one figure of the first server, or on its ratio to the second.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub metric: String,
    pub ratio: bool,
    pub at_most: bool,
    pub bound: f64,
}

impl Goal {
    pub fn is_met_by(&self, value: f64) -> bool {
        if self.at_most { value <= self.bound } else { value >= self.bound }
    }

    /// As it is written on the command line.
    pub fn text(&self) -> String {
        let ratio = if self.ratio { ".ratio" } else { "" };
        let sign = if self.at_most { "<=" } else { ">=" };
        format!("{}{ratio}{sign}{}", self.metric, self.bound)
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let at_most = text.contains("<=");
        let (left, right) = text
            .split_once(if at_most { "<=" } else { ">=" })
            .ok_or("write METRIC<=VALUE or METRIC>=VALUE")?;
        let left = left.trim();
        let (metric, ratio) = left.strip_suffix(".ratio").map_or((left, false), |metric| (metric, true));
        if super::report::Metric::find(metric).is_none() {
            return Err(format!("no metric is called {metric}; they are {}", super::report::Metric::names()));
        }
        let bound: f64 = right.trim().parse().map_err(|_| format!("{right} is not a number"))?;
        if !bound.is_finite() {
            return Err("the bound must be a number".into());
        }
        Ok(Goal { metric: metric.to_owned(), ratio, at_most, bound })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        bench: Bench,
    }

    fn parse(line: &str) -> Result<Bench, clap::Error> {
        Line::try_parse_from(format!("bench {line}").split(' ')).map(|line| line.bench)
    }

    #[test]
    fn every_workload_runs_without_an_option_and_ends_by_itself() {
        for name in ["put", "get", "range", "txn", "grant", "revoke", "keepalive", "hold", "expire", "watch"]
        {
            parse(name).expect(name);
        }
        let Bench::Put(put) = parse("put").expect("defaults") else { panic!("not put") };
        assert_eq!((put.load.in_flight, put.load.rounds), (64, 5));
        assert_eq!(put.load.duration, Duration::from_secs(10));
        assert_eq!(put.load.shared.against, None);
    }

    #[test]
    fn etcds_word_for_what_is_in_flight_is_understood() {
        let Bench::Txn(txn) = parse("txn --clients 8").expect("an alias") else { panic!("not txn") };
        assert_eq!(txn.load.in_flight, 8);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "put --in-flight 0",
            "put --rounds 0",
            "put --duration 0s",
            "put --total 0",
            "put --against-pid 1",
            "put --connections 0",
            "watch --value-size 4",
            "put --goal nonsense",
            "put --goal unknown<=1",
            "put --goal cpu_us_per_op<=much",
            "report",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_goal_is_a_bound_on_a_figure_or_on_a_ratio() {
        let goal: Goal = "cpu_us_per_op.ratio<=0.35".parse().expect("a goal");
        assert_eq!(goal, Goal { metric: "cpu_us_per_op".into(), ratio: true, at_most: true, bound: 0.35 });
        assert!(goal.is_met_by(0.35) && !goal.is_met_by(0.36) && !goal.is_met_by(f64::NAN));
        assert_eq!(goal.text(), "cpu_us_per_op.ratio<=0.35");
        let goal: Goal = "throughput_per_s>=1000".parse().expect("a goal");
        assert!(goal.is_met_by(1000.0) && !goal.is_met_by(999.0));
    }
}
