//! `tenure serve` and `tenure dev`: from the command line to a running server, and back when a signal says so.
//!
//! What follows these two verbs is written as etcd's flags are, which no clap parser reads: it goes to the server's own
//! table of flags as it is.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process,
    time::Duration,
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tenure_server::{
    Config, Server,
    config::{self, Asked, ConfigError, ListenUrl, LogOutput},
    logging,
    storage::OpenError,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    time,
};

use crate::exit::{self, Failure};

const DEFAULT_URL: &str = "http://127.0.0.1:2379";

const DEV_HELP: &str = "\
Start a server to try things on: on this machine only, with its data in a temporary directory that is gone when it ends.

Usage: tenure dev [flags]

It takes every flag of `tenure serve`, see tenure serve --help; each can be set in the environment, too. Where neither says
anything, dev differs from serve in these:
  --listen-client-urls http://127.0.0.1:2379   no other machine can connect
  --data-dir                                   a temporary directory; one that you name is kept
  --auto-compaction-retention 5m               five minutes of history, so that the data does not grow
  --log-level warn                             only what may be wrong
and, in a temporary directory, small files: --wal-segment-bytes 8388608 --wal-spare-segments 0 --ballast-bytes 0

Another port:
  tenure dev --listen-client-urls http://127.0.0.1:3379
  export TENURE_ENDPOINTS=127.0.0.1:3379       for the client, in another terminal

Examples:
  tenure dev
  tenure dev --data-dir ./keep-it              start it again, and everything is there
  TENURE_LOG_LEVEL=debug tenure dev
";

/// A signal that comes again so soon is the same one: `timeout` and terminals send it to a process and to its group.
const SIGNAL_REPEAT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Serve,
    Dev,
}

/// Whether the whole command line is for a server, and if so, what follows the verb.
pub fn asked_for(args: impl IntoIterator<Item = OsString>) -> Option<(Verb, Vec<OsString>)> {
    let mut args = args.into_iter().skip(1);
    let verb = |word: &OsString| match word.to_str()? {
        "serve" => Some(Verb::Serve),
        "dev" => Some(Verb::Dev),
        _ => None,
    };
    let first = args.next()?;
    if first == "help" {
        return Some((verb(&args.next()?)?, vec!["--help".into()]));
    }
    Some((verb(&first)?, args.collect()))
}

/// Serves until a signal comes, or fails to start.
pub fn run(verb: Verb, args: Vec<OsString>) -> Result<()> {
    let args = args.into_iter().map(text).collect::<Result<Vec<_>>>()?;
    let env = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (asked, temporary) = match verb {
        Verb::Serve => (Config::read(args, env).map_err(wrong_usage)?, None),
        Verb::Dev => read_dev(args, env)?,
    };
    let (config, warnings) = match (asked, verb) {
        (Asked::Help, Verb::Serve) => return print(&config::help()),
        (Asked::Help, Verb::Dev) => return print(DEV_HELP),
        (Asked::Version, _) => return print(&config::version()),
        (Asked::Serve(config, warnings), _) => (*config, warnings),
    };
    let logs = logging::start(&config.log)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        name = config.name,
        data_dir = %config.data_dir.display(),
        runtimes = config.runtimes,
        "Tenure starts"
    );
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let insecurities = config.insecurities();
    if !insecurities.is_empty() {
        tracing::warn!("not secure: {}", insecurities.join("; "));
    }
    let outcome = serve(verb, &config, temporary.as_ref());
    let Err(error) = outcome else { return Ok(()) };
    if exit::is_silent(&error) {
        return Err(error);
    }
    tracing::error!("{error:#}");
    drop(logs);
    // Said already, unless the log goes where nobody who typed the command looks.
    if config.log.outputs.contains(&LogOutput::Stderr) {
        let code = code(&error);
        return Err(Failure::Silent(code).into());
    }
    Err(error)
}

fn text(arg: OsString) -> Result<String> {
    arg.into_string().map_err(|arg| Failure::Usage(format!("{arg:?} is not text")).into())
}

fn wrong_usage(error: ConfigError) -> Failure {
    Failure::Usage(error.to_string())
}

/// A damaged directory is told from everything else that can go wrong at a start.
fn code(error: &anyhow::Error) -> u8 {
    match error.chain().find_map(|cause| cause.downcast_ref::<OpenError>()) {
        Some(open) if open.is_damage() => exit::DAMAGED,
        _ => exit::ERROR,
    }
}

fn print(text: &str) -> Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Reads what `dev` was told, and fills the rest with its own defaults, among them a directory of its own unless one was named.
fn read_dev(
    args: Vec<String>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<(Asked, Option<TempDir>)> {
    let mut temporary = Ok(None);
    let asked = Config::read_or(args, env, |is_set| {
        let mut defaults = vec![("listen-client-urls", DEFAULT_URL), ("log-level", "warn")];
        // Whoever asks for --debug gets it, and whoever counts revisions has no use for minutes.
        defaults.retain(|(name, _)| *name != "log-level" || !is_set("debug"));
        if !is_set("auto-compaction-mode") {
            defaults.push(("auto-compaction-retention", "5m"));
        }
        let mut defaults: Vec<_> = defaults.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        if !is_set("data-dir") {
            match tempfile::Builder::new().prefix("tenure-dev-").tempdir() {
                Ok(dir) => {
                    defaults.push(("data-dir", dir.path().display().to_string()));
                    // What will be thrown away is not worth room for a full disk.
                    defaults.push(("wal-segment-bytes", "8388608".to_owned()));
                    defaults.push(("wal-spare-segments", "0".to_owned()));
                    defaults.push(("ballast-bytes", "0".to_owned()));
                    temporary = Ok(Some(dir));
                }
                Err(error) => temporary = Err(error),
            }
        }
        defaults
    });
    let temporary = temporary.context("no place for data")?;
    Ok((asked.map_err(wrong_usage)?, temporary))
}

fn serve(verb: Verb, config: &Config, temporary: Option<&TempDir>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anything is there that would have to be put away in order.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let Some(server) = start(&runtime, &mut signals, config)? else {
        tracing::info!("told to stop before it served");
        return Ok(());
    };
    if verb == Verb::Dev {
        // Nobody needs to read it for the server to serve.
        let _ = print(&welcome(config, server.client_urls(), temporary.is_some()));
    }
    let name = runtime.block_on(signals.next());
    tracing::info!(signal = name, "told to stop; once more to stop at once");
    let (stopped, mut all_stopped) = oneshot::channel();
    std::thread::spawn(move || {
        server.stop();
        let _ = stopped.send(());
    });
    runtime.block_on(async {
        tokio::select! {
            _ = &mut all_stopped => Ok(()),
            name = signals.second() => {
                tracing::warn!(signal = name, "stops at once; what was acknowledged is on disk");
                Err(Failure::Silent(exit::ERROR).into())
            }
        }
    })
}

/// `None` if a signal came first: nothing is served yet, and what is on disk needs no farewell.
fn start(runtime: &Runtime, signals: &mut Signals, config: &Config) -> Result<Option<Server>> {
    let (started, mut server) = oneshot::channel();
    let config = config.clone();
    std::thread::Builder::new().name("start".to_owned()).spawn(move || {
        let _ = started.send(Server::start(&config));
    })?;
    runtime.block_on(async {
        tokio::select! {
            started = &mut server => started.context("the server panicked while it started")?.map(Some),
            _ = signals.next() => Ok(None),
        }
    })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// To be called on a runtime.
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The next one that is not the echo of the last one.
    async fn second(&mut self) -> &'static str {
        let echoes = async {
            loop {
                self.next().await;
            }
        };
        let _: Result<(), _> = time::timeout(SIGNAL_REPEAT, echoes).await;
        self.next().await
    }
}

fn welcome(config: &Config, urls: &[ListenUrl], temporary: bool) -> String {
    let url = urls.first().map_or_else(String::new, ToString::to_string);
    let keeps =
        if temporary { "gone when this ends; --data-dir DIR keeps it" } else { "kept when this ends" };
    let endpoints = if url == DEFAULT_URL {
        String::new()
    } else {
        format!("  export TENURE_ENDPOINTS={url} ETCDCTL_ENDPOINTS={url}\n")
    };
    format!(
        "\
Tenure {version} serves leases and keys on {url}, over etcd's v3 API.
Data is in {dir} ({keeps}).

Try, in another terminal:
{endpoints}  tenure watch -p ''                         # see everything that happens
  tenure put greeting hello --ttl 30s        # a key that is gone after 30 seconds
  tenure lease grant 10s                     # a lease to put keys on
  etcdctl lease grant 60                     # etcd's own tools work as they are
  curl -s {url}/metrics | grep ^tenure_lease

Health: {url}/health   Metrics: {url}/metrics   Ctrl-C ends it. (process {process})
",
        version = env!("CARGO_PKG_VERSION"),
        dir = config.data_dir.display(),
        process = process::id(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn only_a_verb_in_front_is_for_the_server() {
        assert_eq!(
            asked_for(words(&["tenure", "serve", "-name", "x"])),
            Some((Verb::Serve, words(&["-name", "x"])))
        );
        assert_eq!(asked_for(words(&["tenure", "dev"])), Some((Verb::Dev, Vec::new())));
        for (name, verb) in [("serve", Verb::Serve), ("dev", Verb::Dev)] {
            assert_eq!(asked_for(words(&["tenure", "help", name])), Some((verb, words(&["--help"]))));
        }
        let others = [
            &["tenure"][..],
            &["tenure", "get", "serve"],
            &["tenure", "--version"],
            &["tenure", "help"],
            &["tenure", "help", "get"],
        ];
        for other in others {
            assert_eq!(asked_for(words(other)), None);
        }
    }

    fn dev_with(args: &[&str], env: &[(&str, &str)]) -> (Config, Option<TempDir>) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        match read_dev(args, env).expect("well formed") {
            (Asked::Serve(config, warnings), temporary) => {
                assert!(warnings.is_empty(), "{warnings:?}");
                (*config, temporary)
            }
            other => panic!("{other:?}"),
        }
    }

    fn dev(args: &[&str]) -> (Config, Option<TempDir>) {
        dev_with(args, &[])
    }

    #[test]
    fn dev_listens_to_the_environment() {
        let env = [
            ("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:4"),
            ("TENURE_LOG_LEVEL", "error"),
            ("TENURE_DATA_DIR", "/x"),
        ];
        let (config, temporary) = dev_with(&[], &env);
        assert_eq!(config.listen_client_urls[0].to_string(), "http://127.0.0.1:4");
        assert_eq!(config.log.level, tracing::Level::ERROR);
        assert_eq!(config.data_dir.to_str(), Some("/x"));
        assert!(temporary.is_none());
        assert!(config.ballast_bytes > 0, "a directory that is kept is a real one");
        let (config, _) = dev_with(&["--log-level=info"], &env);
        assert_eq!(config.log.level, tracing::Level::INFO);
        let (config, _dir) = dev_with(&["--auto-compaction-mode=revision"], &[]);
        assert_eq!(config.auto_compaction, None);
        let (config, _dir) = dev_with(&["--debug"], &[]);
        assert_eq!(config.log.level, tracing::Level::DEBUG);
    }

    #[test]
    fn dev_has_a_directory_of_its_own_unless_one_is_named() {
        let (config, temporary) = dev(&[]);
        let temporary = temporary.expect("a directory");
        assert_eq!(config.data_dir, temporary.path());
        assert!(config.auto_compaction.is_some());
        assert!(config.listen_client_urls.iter().all(ListenUrl::is_local));
        for args in [&["--data-dir=/x"][..], &["-data-dir", "/x"]] {
            let (config, temporary) = dev(args);
            assert_eq!(config.data_dir.to_str(), Some("/x"));
            assert!(temporary.is_none());
        }
    }

    #[test]
    fn dev_does_what_it_is_told() {
        let (config, _dir) =
            dev(&["--auto-compaction-retention=0", "--listen-client-urls", "http://127.0.0.1:4"]);
        assert_eq!(config.auto_compaction, None);
        let text = welcome(&config, &config.listen_client_urls, true);
        assert!(text.contains("export TENURE_ENDPOINTS=http://127.0.0.1:4"), "{text}");
        assert!(text.contains("http://127.0.0.1:4/metrics"), "{text}");
    }
}
