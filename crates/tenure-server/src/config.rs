//! What a server is told at its start: etcd's flags, environment and file, and a few own ones.
//!
//! One table ([`flags`]) knows every flag; [`parse`] finds out which value each has and from where, [`resolve`]
//! turns the values into this module's plain fields and refuses what cannot be, [`help`] writes the same table
//! down for people. A flag of etcd either works, or is accepted with a warning because nothing depends on it here,
//! or is refused because a server that ignored it would lie.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sha1::{Digest, Sha1};
use tenure_state::ids::MemberId;

use crate::identity::Identity;

mod duration;
mod flags;
mod help;
mod parse;
mod resolve;

pub use help::{Offer, help, offers, version};

/// Everything that a server needs to know, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub name: String,
    pub data_dir: PathBuf,
    pub listen_client_urls: Vec<ListenUrl>,
    /// Serve only metrics and health.
    pub listen_metrics_urls: Vec<ListenUrl>,
    pub advertise_client_urls: Vec<String>,
    /// Nothing listens on them while clusters have one member; they are part of the member's id.
    pub advertise_peer_urls: Vec<String>,
    pub cluster_token: String,

    pub election_timeout: Duration,
    /// What a take-over gives every lease, so that clients find the new leader.
    pub lease_grace: Duration,

    /// The most logical bytes in the store; 0: no limit.
    pub quota_bytes: u64,
    pub max_request_bytes: usize,
    pub max_txn_ops: usize,
    pub max_concurrent_streams: u32,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    pub watch_progress_interval: Duration,
    pub auto_compaction: Option<AutoCompaction>,

    /// How long a change may wait for the checkpoint.
    pub checkpoint_interval: Duration,
    pub wal_segment_bytes: u64,
    /// Log files kept ready for a full disk.
    pub wal_spare_segments: usize,
    /// Kept occupied, to be given up when the disk is full.
    pub ballast_bytes: u64,
    /// Acknowledge what is not durable. For tests.
    pub no_fsync: bool,

    /// Threads that serve connections.
    pub runtimes: usize,
    pub reuse_port: bool,
    /// Origins that browsers may call from; `*` for all.
    pub cors: Vec<String>,
    /// Names under which HTTP may be asked; `*` for all.
    pub host_whitelist: Vec<String>,

    pub warning_apply: Duration,
    pub warning_unary: Duration,
    pub metrics_extensive: bool,
    pub log: LogConfig,
}

/// Which history is given up by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// What is older than this.
    Periodic(Duration),
    /// All but the latest so many revisions.
    Revisions(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub level: tracing::Level,
    pub format: LogFormat,
    pub outputs: Vec<LogOutput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    Stderr,
    Stdout,
    File(PathBuf),
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenUrl {
    Tcp { host: Host, port: u16 },
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Ip(std::net::IpAddr),
    /// Both 127.0.0.1 and ::1, whichever the system has.
    Localhost,
}

impl ListenUrl {
    /// Can be reached from this machine only.
    pub fn is_local(&self) -> bool {
        match self {
            ListenUrl::Tcp { host: Host::Ip(ip), .. } => ip.is_loopback(),
            ListenUrl::Tcp { host: Host::Localhost, .. } | ListenUrl::Unix(_) => true,
        }
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenUrl::Tcp { host: Host::Ip(std::net::IpAddr::V6(ip)), port } => {
                write!(f, "http://[{ip}]:{port}")
            }
            ListenUrl::Tcp { host: Host::Ip(ip), port } => write!(f, "http://{ip}:{port}"),
            ListenUrl::Tcp { host: Host::Localhost, port } => write!(f, "http://localhost:{port}"),
            ListenUrl::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Serve. The warnings are to be logged once there is a log.
    Serve(Box<Config>, Vec<String>),
    Help,
    Version,
}

/// The settings make no sense; the text says which, and what to do. Worth exit code 2.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(text: impl Into<String>) -> ConfigError {
        ConfigError(text.into())
    }
}

impl Config {
    /// Reads the arguments that follow the name of the command, and the environment.
    pub fn read(
        args: impl IntoIterator<Item = String>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Asked, ConfigError> {
        Config::read_or(args, env, |_| Vec::new())
    }

    /// As [`Config::read`], for a command with defaults of its own, which count where neither a flag nor the environment nor the
    /// file says anything. `defaults` can ask whether a flag, named without its dashes, is set.
    pub fn read_or(
        args: impl IntoIterator<Item = String>,
        env: impl IntoIterator<Item = (String, String)>,
        defaults: impl FnOnce(&dyn Fn(&str) -> bool) -> Vec<(&'static str, String)>,
    ) -> Result<Asked, ConfigError> {
        match parse::parse(args, env, defaults)? {
            parse::Parsed::Help => Ok(Asked::Help),
            parse::Parsed::Version => Ok(Asked::Version),
            parse::Parsed::Values(values) => {
                let (config, warnings) = resolve::resolve(*values)?;
                Ok(Asked::Serve(Box::new(config), warnings))
            }
        }
    }

    /// Who a server with this configuration is.
    pub fn identity(&self) -> Identity {
        let member = self.member_id();
        Identity {
            cluster: first_eight_bytes(&[&member.0.to_be_bytes()]),
            member,
            name: self.name.clone(),
            peer_urls: self.advertise_peer_urls.clone(),
            client_urls: self.advertise_client_urls.clone(),
        }
    }

    /// Made as etcd makes it, so that whoever wrote ids down finds the same ones.
    fn member_id(&self) -> MemberId {
        let mut urls: Vec<&str> = self.advertise_peer_urls.iter().map(String::as_str).collect();
        urls.sort_unstable();
        let urls = urls.concat();
        MemberId(first_eight_bytes(&[urls.as_bytes(), self.cluster_token.as_bytes()]))
    }

    /// How long a request may wait for its answer.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election_timeout
    }

    /// What makes this server open to strangers, for one line of warning; empty if nothing does.
    pub fn insecurities(&self) -> Vec<String> {
        let beyond: Vec<_> = self.listen_client_urls.iter().filter(|url| !url.is_local()).collect();
        if beyond.is_empty() {
            return Vec::new();
        }
        let urls: Vec<_> = beyond.iter().map(ToString::to_string).collect();
        let mut found = vec![
            format!("clients from other machines can connect ({})", urls.join(", ")),
            "connections are not encrypted (no TLS)".to_owned(),
            "nobody has to log in (no auth): whoever connects can read and change everything".to_owned(),
        ];
        if self.host_whitelist.iter().any(|host| host == "*") {
            found.push("HTTP is answered under any host name (--host-whitelist=*)".to_owned());
        }
        if self.cors.iter().any(|origin| origin == "*") {
            found.push("any web page may call it from a browser (--cors=*)".to_owned());
        }
        found
    }
}

fn first_eight_bytes(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    let digest = hash.finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has twenty bytes"))
}

#[cfg(test)]
mod tests;
