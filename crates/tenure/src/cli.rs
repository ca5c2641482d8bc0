//! What can be asked for on the command line. Only the words are here; what they do is in `commands/`.

use std::{env, ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tenure_client::LeaseId;

use crate::{bench::args::Bench, duration, print::Format};

const DEFAULT_ENDPOINT: &str = "127.0.0.1:2379";

/// Leases for distributed systems, over etcd's v3 API.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    arg_required_else_help = true,
    after_help = "\
Examples:
  tenure put greeting hello --ttl 30s      # gone after 30 seconds
  tenure get -p services/ -o json
  tenure lease grant 10s
  tenure watch -p services/

Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 conflict, 65 data directory damaged,
            69 no cluster, 75 lease lost, 124 timed out"
)]
pub struct Cli {
    /// Print the version of etcd's API that is spoken, and Tenure's own
    #[arg(long, short = 'V')]
    pub version: bool,

    #[command(flatten)]
    pub global: Global,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Members to talk to, separated by commas: host:port, http://host:port or unix:/path
    /// [env: TENURE_ENDPOINTS, ETCDCTL_ENDPOINTS] [default: 127.0.0.1:2379]
    #[arg(long, global = true, value_delimiter = ',', value_name = "LIST")]
    endpoints: Vec<String>,

    /// How long a command may take; watches and renewals only until they have started
    /// [env: TENURE_COMMAND_TIMEOUT, ETCDCTL_COMMAND_TIMEOUT] [default: 5s]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    command_timeout: Option<Duration>,

    /// How long one member may take to accept a connection
    /// [env: TENURE_DIAL_TIMEOUT, ETCDCTL_DIAL_TIMEOUT] [default: 2s]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    dial_timeout: Option<Duration>,

    /// How to print the answer
    #[arg(long, short, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Format,
}

impl Global {
    pub fn endpoints(&self) -> Vec<String> {
        if !self.endpoints.is_empty() {
            return self.endpoints.clone();
        }
        let text = from_env("ENDPOINTS").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        text.split(',').map(str::to_owned).collect()
    }

    pub fn command_timeout(&self) -> Result<Duration, String> {
        time(self.command_timeout, "COMMAND_TIMEOUT", Duration::from_secs(5))
    }

    pub fn dial_timeout(&self) -> Result<Duration, String> {
        time(self.dial_timeout, "DIAL_TIMEOUT", Duration::from_secs(2))
    }
}

fn time(flag: Option<Duration>, variable: &str, default: Duration) -> Result<Duration, String> {
    match (flag, from_env(variable)) {
        (Some(duration), _) => Ok(duration),
        (None, Some(text)) => {
            duration::parse(&text).map_err(|why| format!("{variable} in the environment: {why}"))
        }
        (None, None) => Ok(default),
    }
}

fn whole_number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "it must be a whole number".to_owned())
}

/// Tenure's own variable, or etcdctl's, so that a shell that is set up for etcd works as it is.
fn from_env(name: &str) -> Option<String> {
    ["TENURE_", "ETCDCTL_"]
        .iter()
        .filter_map(|prefix| env::var(format!("{prefix}{name}")).ok())
        .find(|text| !text.is_empty())
}

#[derive(Debug, Subcommand)]
pub enum Command {
    // The server's own verbs, which are carried out in serve.rs.
    Serve(Flags),
    Dev(DevFlags),
    Check(Check),
    Export(Export),

    // The client's verbs.
    Put(Put),
    Get(Get),
    Del(Del),
    Txn(Txn),
    Watch(Watch),
    Compact(Compact),
    #[command(subcommand)]
    Lease(Lease),
    Status(Status),
    Version(Version),
    Completion(Completion),
    #[command(subcommand)]
    Bench(Bench),
}

/// Start a server. Takes etcd's flags: tenure serve --help
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  tenure serve                                      # on localhost:2379, data in ./default.tenure
  tenure serve --name n1 --data-dir /var/lib/tenure"
)]
pub struct Flags {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    pub flags: Vec<OsString>,
}

/// Start a server to try things on, with its data in a temporary directory
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  tenure dev
  tenure dev --data-dir ./keep-it --listen-client-urls http://127.0.0.1:3379"
)]
pub struct DevFlags {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    pub flags: Vec<OsString>,
}

/// Verify the data directory of a server that does not run
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure check /var/lib/tenure             # exit code 0 if it is sound, 65 if it is damaged
  tenure check /var/lib/tenure -o json")]
pub struct Check {
    pub dir: PathBuf,
}

/// Write the keys and leases of a server that does not run as JSON, one a line
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure export /var/lib/tenure > all.jsonl
  tenure export /var/lib/tenure --out all.jsonl   # what is readable, also of a damaged directory")]
pub struct Export {
    pub dir: PathBuf,
    /// Write to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Write a key
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure put greeting hello
  tenure put flag on --ttl 30s             # grants a lease of 30 s and attaches the key
  tenure put svc/1 10.0.0.7 --lease 2d8257079fa1bc0c
  tenure put config < config.json          # the value from standard input")]
pub struct Put {
    pub key: OsString,
    /// Read from standard input when it is left out
    #[arg(allow_negative_numbers = true)]
    pub value: Option<OsString>,
    /// Attach the key to this lease: it goes when the lease does
    #[arg(long, value_name = "ID", conflicts_with = "ttl", allow_negative_numbers = true)]
    pub lease: Option<LeaseId>,
    /// Grant a lease of this time for the key. Nothing renews it
    #[arg(long, value_name = "TIME", value_parser = duration::parse_ttl)]
    pub ttl: Option<Duration>,
    /// Also print what was there before
    #[arg(long)]
    pub prev_kv: bool,
}

/// Which keys are meant.
#[derive(Debug, Args)]
pub struct Keys {
    pub key: OsString,
    /// The first key that is no longer meant
    #[arg(conflicts_with_all = ["prefix", "from_key"])]
    pub range_end: Option<OsString>,
    /// Every key that starts with KEY
    #[arg(long, short, conflicts_with = "from_key")]
    pub prefix: bool,
    /// KEY and every key after it
    #[arg(long)]
    pub from_key: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    Key,
    Version,
    #[value(alias = "create-revision")]
    Create,
    #[value(alias = "modify", alias = "mod-revision")]
    Mod,
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    #[value(alias = "ascend")]
    Asc,
    #[value(alias = "descend")]
    Desc,
}

/// Read a key, or a range of keys
///
/// A single key that is not there ends with exit code 3; an empty range does not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure get greeting
  tenure get greeting --value-only         # nothing but the value
  tenure get -p services/ -o json
  tenure get a m                           # from a up to, but not including, m
  tenure get -p '' --keys-only --limit 10 --sort-by mod --order desc
  tenure get greeting --rev 12             # as it was at revision 12")]
pub struct Get {
    #[command(flatten)]
    pub keys: Keys,
    /// As it was at this revision
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number)]
    pub rev: i64,
    /// At most this many keys
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number)]
    pub limit: i64,
    /// Order the keys by this
    #[arg(long, value_enum, value_name = "WHAT")]
    pub sort_by: Option<SortBy>,
    /// Smallest or largest first
    #[arg(long, value_enum)]
    pub order: Option<Order>,
    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,
    /// Only the number of keys
    #[arg(long, conflicts_with = "keys_only")]
    pub count_only: bool,
    /// Only the values, as they are, a line each
    #[arg(long, alias = "print-value-only", conflicts_with_all = ["keys_only", "count_only"])]
    pub value_only: bool,
    /// Take what the member has, which may be old, but needs no leader
    #[arg(long)]
    pub serializable: bool,
}

/// Delete a key, or a range of keys
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure del greeting
  tenure del -p services/web/ --prev-kv    # and print what is gone")]
pub struct Del {
    #[command(flatten)]
    pub keys: Keys,
    /// Also print what was there before
    #[arg(long)]
    pub prev_kv: bool,
}

/// Compare, then run one of two lists of operations, all at once
///
/// Read from standard input or a file, either as text in three parts that end with an empty line (the comparisons, what to do when
/// they hold, what to do when they do not), or as JSON. When the comparisons do not hold and there is nothing to do then, the exit
/// code is 4.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure txn                               # asks, on a terminal
  tenure txn <<'END'
  create(\"lock\") = \"0\"

  put lock mine --lease 2d8257079fa1bc0c

  get lock

  END
  tenure txn -f change.json

Comparisons: create, mod, version, value or lease, of a key, with =, !=, < or >:
  mod(\"config\") > \"12\"        value(\"flag\") = \"on\"

JSON:
  {\"compare\": [{\"key\": \"lock\", \"target\": \"create\", \"op\": \"=\", \"value\": 0}],
   \"success\": [{\"put\": {\"key\": \"lock\", \"value\": \"mine\"}}],
   \"failure\": [{\"get\": {\"key\": \"lock\"}}, {\"del\": {\"key\": \"old/\", \"prefix\": true}}]}")]
pub struct Txn {
    /// Read the transaction from this file; - is standard input
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Without {
    #[value(alias = "noput")]
    Put,
    #[value(alias = "nodelete", alias = "del")]
    Delete,
}

/// Follow what happens to a key, or a range of keys
///
/// Goes on over lost connections and changes of leader without a gap, and says on standard error when a server is lost and
/// when it is back; when the history that it would have to go on from has been
/// compacted, it says so and ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure watch greeting
  tenure watch -p services/ --rev 1 -o json    # everything since revision 1, a line each
  tenure watch -p '' --without put             # deletions only")]
pub struct Watch {
    #[command(flatten)]
    pub keys: Keys,
    /// Begin with this revision; 0 is now
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number)]
    pub rev: i64,
    /// Also print what was there before
    #[arg(long)]
    pub prev_kv: bool,
    /// Leave out this kind of event
    #[arg(long, alias = "filter", value_enum, value_name = "KIND", value_delimiter = ',')]
    pub without: Vec<Without>,
    /// Also print how far the server has looked, whenever it says so
    #[arg(long, alias = "progress-notify")]
    pub progress: bool,
}

/// Forget what only older revisions need
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure compact 1200
  tenure compact 1200 --physical           # returns when the space is free")]
pub struct Compact {
    #[arg(value_parser = whole_number)]
    pub revision: i64,
    /// Wait until the space is free
    #[arg(long)]
    pub physical: bool,
}

/// Grant, keep, look at and end leases
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Lease ids are 16 hex digits, 0x and hex digits, or decimal.

Examples:
  id=$(tenure lease grant 10s -o name)
  tenure lease keepalive $id &
  tenure lease ls")]
pub enum Lease {
    Grant(Grant),
    #[command(alias = "list")]
    Ls(LeaseLs),
    #[command(alias = "timetolive")]
    Get(LeaseGet),
    #[command(name = "keepalive", alias = "keep-alive")]
    KeepAlive(KeepAlive),
    Revoke(Revoke),
}

/// Make a lease. Nothing renews it; see `lease keepalive`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure lease grant 10s
  tenure lease grant 2h -o name            # only the id
  tenure lease grant 60 --id 0x1234        # a bare number is seconds")]
pub struct Grant {
    /// 250ms, 10s, 2h, or a number of seconds. Rounded up to whole seconds
    #[arg(value_parser = duration::parse_ttl)]
    pub ttl: Duration,
    /// The lease's id; the server picks one when it is left out
    #[arg(long, allow_negative_numbers = true)]
    pub id: Option<LeaseId>,
}

/// List the leases with what is left of them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure lease ls
  tenure lease ls -o name                  # only the ids; asks once, however many there are")]
pub struct LeaseLs {}

/// Show one lease
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure lease get 2d8257079fa1bc0c --keys")]
pub struct LeaseGet {
    #[arg(allow_negative_numbers = true)]
    pub id: LeaseId,
    /// Also list the keys that go with it
    #[arg(long)]
    pub keys: bool,
}

/// Keep leases alive, until this program ends or they are lost
///
/// Every renewal is printed. A lease is lost when the server does not know it any more, or when no renewal was answered before the
/// time that is certain: then exit code 75.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure lease keepalive 2d8257079fa1bc0c
  a=$(tenure lease grant 1m -o name) b=$(tenure lease grant 1m -o name)
  tenure lease keepalive $a $b --once      # renew both once, and end")]
pub struct KeepAlive {
    #[arg(required = true, allow_negative_numbers = true, value_name = "ID")]
    pub ids: Vec<LeaseId>,
    /// Renew once and end
    #[arg(long)]
    pub once: bool,
}

/// End leases now, and delete their keys
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure lease revoke 2d8257079fa1bc0c
  tenure lease ls -o name | xargs -r tenure lease revoke")]
pub struct Revoke {
    #[arg(required = true, allow_negative_numbers = true, value_name = "ID")]
    pub ids: Vec<LeaseId>,
}

/// Show how each endpoint is doing
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure status
  tenure status --endpoints a:2379,b:2379,c:2379 -o json")]
pub struct Status {}

/// Print the version of this program
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure version -o json")]
pub struct Version {}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure completion bash > /etc/bash_completion.d/tenure
  tenure completion fish > ~/.config/fish/completions/tenure.fish")]
pub struct Completion {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        use clap::CommandFactory;
        fn walk(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{} has none", command.get_name());
            command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(walk);
        }
        walk(&Cli::command());
    }

    #[test]
    fn wrong_usage_is_refused_with_code_2() {
        for line in [
            "tenure frobnicate",
            "tenure get",
            "tenure get a b -p",
            "tenure get a -p --from-key",
            "tenure put a b --lease 1 --ttl 5s",
            "tenure put a b --lease nonsense",
            "tenure lease grant 0",
            "tenure lease revoke",
            "tenure get a -o xml",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_our_words() {
        for (line, why) in [
            ("tenure lease grant 10x", "'10x' for '<TTL>': write 250ms, 10s, 2h, or a number of seconds"),
            ("tenure put a b --ttl 1x", "write 250ms, 10s, 2h, or a number of seconds"),
            ("tenure get a --rev abc", "'abc' for '--rev <N>': it must be a whole number"),
            ("tenure get a --limit 1k", "it must be a whole number"),
            ("tenure watch a --rev abc", "it must be a whole number"),
            ("tenure compact now", "it must be a whole number"),
            (
                "tenure lease get zz",
                "'zz' for '<ID>': a lease id is 16 hex digits, 0x and hex digits, or a decimal number",
            ),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.lines().next().is_some_and(|first| first.ends_with(why)), "{line}: {text}");
        }
    }

    #[test]
    fn global_options_may_stand_anywhere() {
        let cli =
            parse("tenure get a -o json --endpoints a:1,b:2 --command-timeout 250ms").expect("well formed");
        assert_eq!(cli.global.output, Format::Json);
        assert_eq!(cli.global.endpoints(), ["a:1", "b:2"]);
        assert_eq!(cli.global.command_timeout(), Ok(Duration::from_millis(250)));
        assert!(parse("tenure -o yaml get a").is_ok());
    }

    #[test]
    fn values_and_ids_may_be_negative_and_options_may_follow_them() {
        assert!(parse("tenure put a -1").is_ok());
        assert!(parse("tenure put a -- -x").is_ok());
        let cli = parse("tenure put a --ttl 5s").expect("the value comes from standard input");
        assert!(matches!(cli.command, Some(Command::Put(Put { value: None, ttl: Some(_), .. }))));
        let cli = parse("tenure lease keepalive -9 7 --once -o json").expect("ids and options");
        assert!(matches!(
            cli.command,
            Some(Command::Lease(Lease::KeepAlive(KeepAlive { ids, once: true }))) if ids == [LeaseId(-9), LeaseId(7)]
        ));
        let cli = parse("tenure lease get -9").expect("a negative id");
        assert!(matches!(cli.command, Some(Command::Lease(Lease::Get(LeaseGet { id: LeaseId(-9), .. })))));
    }
}
