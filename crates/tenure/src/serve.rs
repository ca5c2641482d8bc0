//! `tenure serve` and `tenure dev`: from the command line to a running server, and back when a signal says so.
//!
//! What follows these two verbs is written as etcd's flags are, which no clap parser reads: it goes to the server's own
//! table of flags as it is.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process,
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
};

use crate::exit::{self, Failure};

/// What `dev` does unless told otherwise. Before the flags that were given, because the last one wins.
const DEV_DEFAULTS: [&str; 4] = [
    "--listen-client-urls=http://127.0.0.1:2379",
    "--auto-compaction-mode=periodic",
    "--auto-compaction-retention=5m",
    "--log-level=warn",
];
const DEFAULT_URL: &str = "http://127.0.0.1:2379";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Serve,
    Dev,
}

/// Whether the whole command line is for a server, and if so, what follows the verb.
pub fn asked_for(args: impl IntoIterator<Item = OsString>) -> Option<(Verb, Vec<OsString>)> {
    let mut args = args.into_iter().skip(1);
    let verb = match args.next()?.to_str()? {
        "serve" => Verb::Serve,
        "dev" => Verb::Dev,
        _ => return None,
    };
    Some((verb, args.collect()))
}

/// Serves until a signal comes, or fails to start.
pub fn run(verb: Verb, args: Vec<OsString>) -> Result<()> {
    let mut args = args.into_iter().map(text).collect::<Result<Vec<_>>>()?;
    let temporary = match verb {
        Verb::Serve => None,
        Verb::Dev => prepare_dev(&mut args)?,
    };
    let env = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (config, warnings) = match Config::read(args, env).map_err(wrong_usage)? {
        Asked::Help => return print(&config::help()),
        Asked::Version => return print(&config::version()),
        Asked::Serve(config, warnings) => (*config, warnings),
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

/// Puts the defaults of `dev` in front, with a directory of its own unless one was named.
fn prepare_dev(args: &mut Vec<String>) -> Result<Option<TempDir>> {
    let mut defaults = DEV_DEFAULTS.map(str::to_owned).to_vec();
    let named = args.iter().any(|arg| {
        let name = arg.trim_start_matches('-');
        arg.starts_with('-') && (name == "data-dir" || name.starts_with("data-dir="))
    });
    let temporary = if named {
        None
    } else {
        let dir = tempfile::Builder::new().prefix("tenure-dev-").tempdir().context("no place for data")?;
        // What will be thrown away is not worth room for a full disk.
        defaults.extend(
            ["--wal-segment-bytes=8388608", "--wal-spare-segments=0", "--ballast-bytes=0"].map(str::to_owned),
        );
        defaults.push(format!("--data-dir={}", dir.path().display()));
        Some(dir)
    };
    args.splice(..0, defaults);
    Ok(temporary)
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
            name = signals.next() => {
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
        for other in [&["tenure"][..], &["tenure", "get", "serve"], &["tenure", "--version"]] {
            assert_eq!(asked_for(words(other)), None);
        }
    }

    fn dev(args: &[&str]) -> (Config, Option<TempDir>) {
        let mut args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let temporary = prepare_dev(&mut args).expect("a directory");
        match Config::read(args, []) {
            Ok(Asked::Serve(config, warnings)) => {
                assert!(warnings.is_empty(), "{warnings:?}");
                (*config, temporary)
            }
            other => panic!("{other:?}"),
        }
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
