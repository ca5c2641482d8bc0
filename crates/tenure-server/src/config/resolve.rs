//! From texts to a configuration, with everything refused that cannot be or would lie.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::flags::{self, FEATURE_GATES, FLAGS, Flag, Kind, Standing};
use super::parse::{Value, Values, nearest, parse_bool, same};
use super::{
    AutoCompaction, Config, ConfigError, Host, ListenUrl, LogConfig, LogFormat, LogOutput, duration,
};

const QUOTA_DEFAULT_BYTES: u64 = 2 << 30;
/// Beyond this etcd warns, and so do we: one such request holds up all others.
const REQUEST_WARN_BYTES: i64 = 10 << 20;
const RUNTIMES_MAX: usize = 8;

pub(super) fn resolve(values: Values) -> Result<(Config, Vec<String>), ConfigError> {
    let mut settings = Settings { values };
    settings.check_all()?;

    let name = settings.text("name").to_owned();
    if name.is_empty() || name.contains(['/', '=', ',']) {
        return Err(settings.wrong("name", "it must have letters, and no '/', '=' or ','"));
    }
    let data_dir = match settings.text("data-dir") {
        "" => PathBuf::from(format!("{name}.tenure")),
        dir => PathBuf::from(dir),
    };
    if settings.text("initial-cluster-state") == "existing" && is_empty(&data_dir) {
        let why = format!(
            "{} has no data, and joining the cluster of others is not there yet (a cluster has one member for now)",
            data_dir.display()
        );
        return Err(settings.wrong("initial-cluster-state", &why));
    }
    let advertise_peer_urls = settings.peer_urls(&name)?;

    let listen_client_urls = settings.listen_urls("listen-client-urls")?;
    if listen_client_urls.is_empty() {
        return Err(settings.wrong("listen-client-urls", "there must be at least one"));
    }
    let advertise_client_urls = match settings.urls("advertise-client-urls")? {
        urls if urls.is_empty() => advertised(&listen_client_urls),
        urls => urls,
    };

    let heartbeat = Duration::from_millis(settings.int("heartbeat-interval").unsigned_abs());
    let election_timeout = Duration::from_millis(settings.int("election-timeout").unsigned_abs());
    if election_timeout < 5 * heartbeat {
        let why =
            format!("it must be five times --heartbeat-interval ({} ms) or more", heartbeat.as_millis());
        return Err(settings.wrong("election-timeout", &why));
    }

    let quota_bytes = match settings.int("quota-backend-bytes") {
        0 => QUOTA_DEFAULT_BYTES,
        bytes => u64::try_from(bytes).unwrap_or(0),
    };
    let max_request_bytes = settings.int("max-request-bytes");
    if max_request_bytes > REQUEST_WARN_BYTES {
        settings.warn(format!(
            "--max-request-bytes {max_request_bytes} is large: one such request delays all others"
        ));
    }
    if settings.switch("unsafe-no-fsync") {
        settings.warn("--unsafe-no-fsync: a crash of this machine loses what was acknowledged".to_owned());
    }
    settings.feature_gates()?;

    let config = Config {
        data_dir,
        listen_client_urls,
        listen_metrics_urls: settings.listen_urls("listen-metrics-urls")?,
        advertise_client_urls,
        advertise_peer_urls,
        cluster_token: settings.text("initial-cluster-token").to_owned(),
        election_timeout,
        lease_grace: settings.duration("lease-grace"),
        quota_bytes,
        max_request_bytes: settings.size("max-request-bytes"),
        max_txn_ops: settings.size("max-txn-ops"),
        max_concurrent_streams: settings.int("max-concurrent-streams").try_into().unwrap_or(u32::MAX),
        keepalive_interval: settings.duration("grpc-keepalive-interval"),
        keepalive_timeout: settings.duration("grpc-keepalive-timeout"),
        watch_progress_interval: settings.duration("watch-progress-notify-interval"),
        auto_compaction: settings.auto_compaction()?,
        checkpoint_interval: settings.duration("checkpoint-interval"),
        wal_segment_bytes: settings.int("wal-segment-bytes").unsigned_abs(),
        wal_spare_segments: settings.size("wal-spare-segments"),
        ballast_bytes: settings.int("ballast-bytes").unsigned_abs(),
        no_fsync: settings.switch("unsafe-no-fsync"),
        runtimes: match settings.size("runtimes") {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(RUNTIMES_MAX)),
            runtimes => runtimes,
        },
        reuse_port: settings.switch("socket-reuse-port"),
        cors: settings.list("cors"),
        host_whitelist: settings.list("host-whitelist"),
        warning_apply: settings.duration("warning-apply-duration"),
        warning_unary: settings.duration("warning-unary-request-duration"),
        metrics_extensive: settings.text("metrics") == "extensive",
        log: settings.log()?,
        name,
    };
    Ok((config, settings.values.warnings))
}

fn is_empty(dir: &std::path::Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

/// What clients can be told when nobody said: where we listen, and for "everywhere" this machine's own address.
fn advertised(listen: &[ListenUrl]) -> Vec<String> {
    let url = |url: &ListenUrl| match url {
        ListenUrl::Tcp { host: Host::Ip(ip), port } if ip.is_unspecified() => {
            format!("http://localhost:{port}")
        }
        other => other.to_string(),
    };
    listen.iter().map(url).collect()
}

/// The values, read by name. Names are those of the table, so a wrong one is our mistake.
struct Settings {
    values: Values,
}

impl Settings {
    fn place(name: &str) -> usize {
        flags::find(name).unwrap_or_else(|| panic!("no flag is called {name}"))
    }

    fn warn(&mut self, text: String) {
        self.values.warnings.push(text);
    }

    /// How the one who set it calls it.
    fn origin(&self, name: &str) -> String {
        self.values.get(Self::place(name)).map_or_else(|| format!("--{name}"), |value| value.origin.clone())
    }

    fn wrong(&self, name: &str, why: &str) -> ConfigError {
        refusal(&Value { text: self.text(name).to_owned(), origin: self.origin(name) }, why)
    }

    /// Every value fits its kind, and none counts on what is not there.
    fn check_all(&mut self) -> Result<(), ConfigError> {
        for (place, flag) in FLAGS.iter().enumerate() {
            let Some(value) = self.values.get(place) else { continue };
            check(flag, value)?;
            if same(flag.kind, &value.text, flag.default) {
                continue;
            }
            match flag.standing {
                Standing::Works => {}
                Standing::Ignored(why) => {
                    let warning = format!("{} has no effect: {why}", value.origin);
                    self.warn(warning);
                }
                Standing::Refused(why) => {
                    return Err(ConfigError::new(format!("{} cannot be honoured: {why}", value.origin)));
                }
            }
        }
        Ok(())
    }

    fn is_set(&self, name: &str) -> bool {
        self.values.get(Self::place(name)).is_some()
    }

    fn text(&self, name: &str) -> &str {
        let place = Self::place(name);
        self.values.get(place).map_or(FLAGS[place].default, |value| &value.text)
    }

    fn switch(&self, name: &str) -> bool {
        parse_bool(self.text(name)).expect("it was checked")
    }

    fn int(&self, name: &str) -> i64 {
        self.text(name).parse().expect("it was checked")
    }

    fn size(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).expect("its range was checked")
    }

    fn duration(&self, name: &str) -> Duration {
        duration::parse(self.text(name)).expect("it was checked")
    }

    fn list(&self, name: &str) -> Vec<String> {
        let items = self.text(name).split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(str::to_owned).collect()
    }

    fn listen_urls(&self, name: &str) -> Result<Vec<ListenUrl>, ConfigError> {
        self.list(name).iter().map(|url| listen_url(url).map_err(|why| self.wrong(name, &why))).collect()
    }

    /// URLs for others to connect to: any name will do.
    fn urls(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.list(name)
            .into_iter()
            .map(|url| public_url(&url).map_err(|why| self.wrong(name, &why)))
            .collect()
    }

    /// This member's, by `--initial-advertise-peer-urls` and `--initial-cluster`, which must agree.
    fn peer_urls(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        let mut urls = self.urls("initial-advertise-peer-urls")?;
        urls.sort_unstable();
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for member in self.list("initial-cluster") {
            let (member, url) = member
                .split_once('=')
                .ok_or_else(|| self.wrong("initial-cluster", "it must be NAME=PEER_URL, for each member"))?;
            let url = public_url(url).map_err(|why| self.wrong("initial-cluster", &why))?;
            members.entry(member.to_owned()).or_default().push(url);
        }
        if members.len() > 1 {
            let names: Vec<_> = members.into_keys().collect();
            let why = format!(
                "a cluster has one member for now, and this names {} ({}); start one server with one of them",
                names.len(),
                names.join(", ")
            );
            return Err(self.wrong("initial-cluster", &why));
        }
        if let Some((member, mut listed)) = members.into_iter().next() {
            if member != name {
                let why = format!("it names {member:?}, but this member is called {name:?} (--name)");
                return Err(self.wrong("initial-cluster", &why));
            }
            listed.sort_unstable();
            if !self.is_set("initial-advertise-peer-urls") {
                urls = listed;
            } else if listed != urls {
                let why = format!("--initial-advertise-peer-urls says otherwise: {}", urls.join(","));
                return Err(self.wrong("initial-cluster", &why));
            }
        }
        if urls.is_empty() {
            return Err(self.wrong("initial-advertise-peer-urls", "there must be at least one"));
        }
        Ok(urls)
    }

    fn auto_compaction(&self) -> Result<Option<AutoCompaction>, ConfigError> {
        let retention = self.text("auto-compaction-retention");
        let number = retention.parse::<i64>();
        let wrong = |why: &str| Err(self.wrong("auto-compaction-retention", why));
        match self.text("auto-compaction-mode") {
            "revision" => match number {
                Ok(0) => Ok(None),
                Ok(revisions) if revisions > 0 => Ok(Some(AutoCompaction::Revisions(revisions))),
                _ => {
                    wrong("with --auto-compaction-mode=revision it must be a number of revisions, 0 or more")
                }
            },
            _ => {
                let retention = match number {
                    Ok(hours) => hours
                        .try_into()
                        .ok()
                        .and_then(|hours: u32| Duration::from_secs(3600).checked_mul(hours)),
                    Err(_) => duration::parse(retention),
                };
                match retention {
                    Some(Duration::ZERO) => Ok(None),
                    // Below, a compaction would follow the next without a pause.
                    Some(retention) if retention >= Duration::from_secs(1) => {
                        Ok(Some(AutoCompaction::Periodic(retention)))
                    }
                    Some(_) => wrong("it must be a second or more"),
                    None => wrong("it must be a time such as 10m or 1h, or a number of hours"),
                }
            }
        }
    }

    fn feature_gates(&mut self) -> Result<(), ConfigError> {
        for gate in self.list("feature-gates") {
            let (name, value) = gate.split_once('=').unwrap_or((&gate, ""));
            if !FEATURE_GATES.contains(&name) {
                let hint = nearest(name, FEATURE_GATES.into_iter());
                let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                return Err(self.wrong("feature-gates", &format!("{name:?} is none of etcd's{hint}")));
            }
            if parse_bool(value).is_none() {
                return Err(self.wrong("feature-gates", &format!("{name} must be true or false")));
            }
            self.warn(format!(
                "--feature-gates {gate} has no effect: what it switches in etcd does not exist here"
            ));
        }
        Ok(())
    }

    fn log(&mut self) -> Result<LogConfig, ConfigError> {
        let level = match self.text("log-level") {
            _ if self.switch("debug") => tracing::Level::DEBUG,
            "debug" => tracing::Level::DEBUG,
            "info" => tracing::Level::INFO,
            "warn" => tracing::Level::WARN,
            _ => tracing::Level::ERROR,
        };
        let format = if self.text("log-format") == "json" { LogFormat::Json } else { LogFormat::Text };
        let outputs = self.list("log-outputs");
        if outputs.is_empty() || outputs.len() > 1 && outputs.iter().any(|output| output == "default") {
            return Err(self.wrong("log-outputs", "it must be default alone, or a list of others"));
        }
        let mut resolved = Vec::with_capacity(outputs.len());
        for output in outputs {
            resolved.push(match output.as_str() {
                "default" | "stderr" => LogOutput::Stderr,
                "stdout" => LogOutput::Stdout,
                "systemd/journal" => {
                    self.warn(
                        "--log-outputs systemd/journal: written to stderr, which systemd takes".to_owned(),
                    );
                    LogOutput::Stderr
                }
                path => LogOutput::File(PathBuf::from(path)),
            });
        }
        Ok(LogConfig { level, format, outputs: resolved })
    }
}

fn refusal(value: &Value, why: &str) -> ConfigError {
    ConfigError::new(format!("{} {:?} is wrong: {why}", value.origin, value.text))
}

fn check(flag: &Flag, value: &Value) -> Result<(), ConfigError> {
    let text = value.text.as_str();
    let why = match flag.kind {
        Kind::Bool => parse_bool(text).is_none().then(|| "it must be true or false".to_owned()),
        Kind::Int(min, max) => match text.parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) => None,
            Ok(_) if max == i64::MAX => Some(format!("it must be {min} or more")),
            Ok(_) => Some(format!("it must be from {min} to {max}")),
            Err(_) => Some("it must be a whole number".to_owned()),
        },
        Kind::Duration(min) => match duration::parse(text) {
            None => Some("it must be a duration such as 300ms, 10s or 1h30m".to_owned()),
            Some(given) => {
                let min = duration::parse(min).expect("the table has durations");
                (given < min).then(|| format!("it must be {} or more", duration::format(min)))
            }
        },
        Kind::Choice(choices) => (!choices.contains(&text)).then(|| {
            format!(
                "it must be {}",
                choices.iter().map(|c| format!("{c:?}")).collect::<Vec<_>>().join(" or ")
            )
        }),
        Kind::Text | Kind::List | Kind::Urls => None,
    };
    why.map_or(Ok(()), |why| Err(refusal(value, &why)))
}

/// Sockets are bound to addresses, not names; `localhost` is the one exception, as on etcd.
fn listen_url(url: &str) -> Result<ListenUrl, String> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| needs_scheme(url))?;
    match scheme {
        "http" => {
            let (host, port) = host_and_port(url, rest)?;
            let host = match host {
                "localhost" => Host::Localhost,
                host => Host::Ip(host.parse::<IpAddr>().map_err(|_| {
                    format!(
                        "{url}: a server listens on an address, not on a name: use an IP address or localhost"
                    )
                })?),
            };
            Ok(ListenUrl::Tcp { host, port })
        }
        "unix" if rest.is_empty() => Err(format!("{url} has no path")),
        "unix" => Ok(ListenUrl::Unix(PathBuf::from(rest))),
        "https" | "unixs" => {
            Err(format!("{url}: TLS is not there yet; listen on http:// and terminate it in front"))
        }
        _ => Err(needs_scheme(url)),
    }
}

fn public_url(url: &str) -> Result<String, String> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| needs_scheme(url))?;
    match scheme {
        "http" | "https" => {
            let (host, _) = host_and_port(url, rest)?;
            if host.is_empty() {
                Err(format!("{url} has no host"))
            } else {
                Ok(url.trim_end_matches('/').to_owned())
            }
        }
        "unix" | "unixs" if !rest.is_empty() => Ok(url.to_owned()),
        _ => Err(needs_scheme(url)),
    }
}

fn needs_scheme(url: &str) -> String {
    format!("{url:?} must begin with http:// or unix://")
}

fn host_and_port<'a>(url: &str, rest: &'a str) -> Result<(&'a str, u16), String> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(format!("{url} must end after the port"));
    }
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| format!("{url} has no port"))?;
    let port = port.parse().map_err(|_| format!("{url} has no port from 0 to 65535"))?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(host) => Ok((host, port)),
        None if host.contains(':') => {
            Err(format!("{url}: an IPv6 address goes in brackets: http://[::1]:{port}"))
        }
        None => Ok((host, port)),
    }
}
