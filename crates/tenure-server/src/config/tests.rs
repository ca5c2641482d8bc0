//! Parsing as a table: what is written, what comes of it.

use std::collections::BTreeSet;
use std::fs;

use super::flags::{FLAGS, Kind, Standing};
use super::*;

fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Asked, ConfigError> {
    Config::read(
        args.iter().map(|arg| (*arg).to_owned()),
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn serve_with(args: &[&str], env: &[(&str, &str)]) -> (Config, Vec<String>) {
    match read(args, env) {
        Ok(Asked::Serve(config, warnings)) => (*config, warnings),
        other => panic!("{args:?}: {other:?}"),
    }
}

fn serve(args: &[&str]) -> Config {
    let (config, warnings) = serve_with(args, &[]);
    assert!(warnings.is_empty(), "{args:?}: {warnings:?}");
    config
}

fn refused(args: &[&str]) -> String {
    match read(args, &[]) {
        Err(error) => error.to_string(),
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn nothing_said_is_what_etcd_does() {
    let config = serve(&[]);
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir, PathBuf::from("default.tenure"));
    assert_eq!(config.listen_client_urls, [ListenUrl::Tcp { host: Host::Localhost, port: 2379 }]);
    assert_eq!(config.advertise_client_urls, ["http://localhost:2379"]);
    assert_eq!(config.advertise_peer_urls, ["http://localhost:2380"]);
    assert_eq!(config.quota_bytes, 2 << 30);
    assert_eq!(config.max_request_bytes, 1_572_864);
    assert_eq!(config.max_txn_ops, 128);
    assert_eq!(config.max_concurrent_streams, u32::MAX);
    assert_eq!(config.keepalive_interval, Duration::from_secs(7200));
    assert_eq!(config.request_timeout(), Duration::from_secs(7));
    assert_eq!(config.auto_compaction, None);
    assert!((1..=8).contains(&config.runtimes));
    assert!(config.insecurities().is_empty());
}

#[test]
fn ids_are_made_as_etcd_makes_them() {
    // The ids of an etcd that was told nothing, as many a page of its documentation shows them.
    let identity = serve(&[]).identity();
    assert_eq!(identity.member.to_string(), "8e9e05c52164694d");
    assert_eq!(format!("{:x}", identity.cluster), "cdf818194e3a8c32");

    let one = serve(&["--initial-advertise-peer-urls=http://a:1,http://b:2"]).identity();
    let other_order = serve(&["--initial-advertise-peer-urls=http://b:2,http://a:1"]).identity();
    let other_token =
        serve(&["--initial-advertise-peer-urls=http://a:1,http://b:2", "--initial-cluster-token=x"])
            .identity();
    assert_eq!(one.member, other_order.member);
    assert_ne!(one.member, other_token.member);
    assert_ne!(one.cluster, other_token.cluster);
}

/// The flags of etcd 3.7, by name.
const ETCD_FLAGS: &str = "
    name data-dir wal-dir snapshot-count heartbeat-interval election-timeout initial-election-tick-advance
    listen-peer-urls listen-client-urls listen-client-http-urls max-wals memory-mlock quota-backend-bytes
    backend-bbolt-freelist-type backend-batch-interval backend-batch-limit max-txn-ops max-request-bytes
    max-concurrent-streams grpc-keepalive-min-time grpc-keepalive-interval grpc-keepalive-timeout socket-reuse-port
    socket-reuse-address enable-grpc-gateway raft-read-timeout raft-write-timeout feature-gates
    initial-advertise-peer-urls initial-cluster initial-cluster-state initial-cluster-token advertise-client-urls
    discovery-token discovery-endpoints discovery-dial-timeout discovery-request-timeout discovery-keepalive-time
    discovery-keepalive-timeout discovery-insecure-transport discovery-insecure-skip-tls-verify discovery-cert
    discovery-key discovery-cacert discovery-user discovery-password discovery-srv discovery-srv-name discovery
    discovery-fallback discovery-proxy strict-reconfig-check pre-vote auto-compaction-retention auto-compaction-mode
    cert-file key-file client-cert-auth trusted-ca-file auto-tls client-cert-file client-key-file client-crl-file
    client-cert-allowed-hostname peer-cert-file peer-key-file peer-client-cert-auth peer-trusted-ca-file
    peer-auto-tls peer-client-cert-file peer-client-key-file peer-cert-allowed-cn peer-cert-allowed-hostname
    peer-crl-file peer-skip-client-san-verification self-signed-cert-validity cipher-suites cors host-whitelist
    tls-min-version tls-max-version auth-token bcrypt-cost auth-token-ttl enable-pprof metrics listen-metrics-urls
    logger log-outputs log-level log-format enable-log-rotation log-rotation-config-json
    warning-unary-request-duration enable-distributed-tracing distributed-tracing-address
    distributed-tracing-service-name distributed-tracing-instance-id distributed-tracing-sampling-rate
    corrupt-check-time compact-hash-check-time compaction-batch-limit compaction-sleep-interval
    watch-progress-notify-interval warning-apply-duration bootstrap-defrag-threshold-megabytes max-learners
    downgrade-check-time snapshot-catchup-entries force-new-cluster unsafe-no-fsync config-file";

#[test]
fn every_flag_of_etcd_is_known_and_takes_its_default() {
    let known: BTreeSet<_> = FLAGS.iter().map(|flag| flag.name).collect();
    assert_eq!(known.len(), FLAGS.len(), "a flag is in the table twice");
    for name in ETCD_FLAGS.split_whitespace() {
        assert!(known.contains(name), "--{name}");
    }
    for flag in FLAGS {
        let (name, default) = (flag.name, flag.default);
        serve(&[&format!("--{name}={default}")]);
        assert!(flag.help.ends_with('.'), "--{name}: {}", flag.help);
        if let Standing::Ignored(why) | Standing::Refused(why) = flag.standing {
            assert!(!why.is_empty() && !why.ends_with('.'), "--{name}: {why}");
        }
        if let Kind::Choice(choices) = flag.kind {
            assert!(choices.contains(&default), "--{name}");
        }
    }
}

#[test]
fn every_way_to_write_a_flag() {
    for args in [
        &["--name=x"][..],
        &["--name", "x"],
        &["-name", "x"],
        &["-name=x"],
        &["--name=y", "-name", "x"],
        &["--name", "x", "--"],
    ] {
        assert_eq!(serve(args).name, "x", "{args:?}");
    }
    for (args, expected) in [
        (&["--unsafe-no-fsync"][..], true),
        (&["-unsafe-no-fsync"], true),
        (&["--unsafe-no-fsync=t"], true),
        (&["--unsafe-no-fsync", "--unsafe-no-fsync=false"], false),
        (&["--unsafe-no-fsync=0"], false),
    ] {
        assert_eq!(serve_with(args, &[]).0.no_fsync, expected, "{args:?}");
    }
    // A value may look like a flag.
    assert_eq!(serve(&["--name", "--x"]).name, "--x");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (args, text) in [
        (&["--nmae=x"][..], "--nmae is not a known flag; did you mean --name?"),
        (&["--listen-client-url=http://x"], "did you mean --listen-client-urls?"),
        (&["--zzzzzz"], "--zzzzzz is not a known flag. `tenure serve --help` lists them all"),
        (&["--data-dir"], "--data-dir needs a value"),
        (&["--unsafe-no-fsync", "false"], "\"false\" is not a flag"),
        (&["--unsafe-no-fsync=maybe"], "must be true or false"),
        (&["serve"], "\"serve\" is not a flag"),
        (&["--", "x"], "\"x\" is not a flag"),
        (&["--name="], "--name \"\" is wrong"),
        (&["--name=a/b"], "--name \"a/b\" is wrong"),
        (&["--heartbeat-interval=0"], "must be from 1 to 10000"),
        (&["--heartbeat-interval=1s"], "must be a whole number"),
        (&["--heartbeat-interval=300"], "--election-timeout \"1000\" is wrong: it must be five times"),
        (&["--snapshot-count=-1"], "must be 1 or more"),
        (&["--snapshot-count=99999999999999999999"], "must be a whole number"),
        (&["--max-concurrent-streams=0"], "must be from 1"),
        (&["--grpc-keepalive-timeout=20"], "must be a duration such as"),
        (&["--watch-progress-notify-interval=10ms"], "must be 100ms or more"),
        (&["--auto-compaction-retention=-1"], "number of hours"),
        (&["--auto-compaction-retention=-5m"], "number of hours"),
        (&["--auto-compaction-retention=1ms"], "a second or more"),
        (&["--auto-compaction-mode=revision", "--auto-compaction-retention=5m"], "number of revisions"),
        (&["--auto-compaction-mode=revision", "--auto-compaction-retention=-3"], "number of revisions"),
        (&["--auto-compaction-mode=daily"], "\"periodic\" or \"revision\""),
        (&["--listen-client-urls="], "at least one"),
        (&["--listen-client-urls=localhost:2379"], "must begin with http:// or unix://"),
        (&["--listen-client-urls=http://localhost"], "has no port"),
        (&["--listen-client-urls=http://localhost:70000"], "from 0 to 65535"),
        (&["--listen-client-urls=http://example.com:2379"], "not on a name"),
        (&["--listen-client-urls=http://::1:2379"], "in brackets"),
        (&["--listen-client-urls=http://1.2.3.4:5/x"], "must end after the port"),
        (&["--listen-client-urls=https://1.2.3.4:5"], "TLS is not there yet"),
        (&["--listen-client-urls=unix://"], "has no path"),
        (&["--advertise-client-urls=ftp://x:1"], "must begin with"),
        (&["--log-level=loud"], "--log-level \"loud\" is wrong"),
        (&["--log-outputs=default,stdout"], "default alone"),
        (&["--cert-file=x"], "--cert-file cannot be honoured: TLS is not there yet"),
        (&["--client-cert-auth"], "TLS is not there yet"),
        (&["--auto-tls=true"], "TLS is not there yet"),
        (&["--auth-token=jwt,pub-key=x"], "--auth-token cannot be honoured: users, roles and tokens"),
        (&["--discovery-srv=example.com"], "nothing to discover"),
        (&["--discovery-token=x"], "nothing to discover"),
        (&["--wal-dir=/fast"], "--wal-dir cannot be honoured"),
        (&["--force-new-cluster"], "cannot be honoured"),
        (&["--enable-log-rotation"], "logrotate"),
        (&["--enable-v2"], "v2 API was removed"),
        (&["--feature-gates=LeaseCheckpint=true"], "did you mean LeaseCheckpoint?"),
        (&["--feature-gates=LeaseCheckpoint=maybe"], "true or false"),
        (&["--initial-cluster=a=http://a:1,b=http://b:1,c=http://c:1"], "names 3 (a, b, c)"),
        (&["--initial-cluster=other=http://a:1"], "this member is called \"default\""),
        (&["--initial-cluster=http://a:1"], "NAME=PEER_URL"),
        (
            &["--initial-cluster=default=http://a:1", "--initial-advertise-peer-urls=http://b:1"],
            "--initial-advertise-peer-urls says otherwise: http://b:1",
        ),
        (&["--initial-cluster-state=existing", "--data-dir=/nonexistent"], "has no data"),
        (&["--config-file=/nonexistent.yaml"], "/nonexistent.yaml cannot be read"),
    ] {
        let error = refused(args);
        assert!(error.contains(text), "{args:?}: {error}");
    }
}

#[test]
fn what_is_accepted() {
    assert_eq!(
        serve(&["--auto-compaction-retention=1"]).auto_compaction,
        Some(AutoCompaction::Periodic(Duration::from_secs(3600)))
    );
    assert_eq!(
        serve(&["--auto-compaction-retention=5m"]).auto_compaction,
        Some(AutoCompaction::Periodic(Duration::from_secs(300)))
    );
    assert_eq!(
        serve(&["--auto-compaction-mode=revision", "--auto-compaction-retention=1000"]).auto_compaction,
        Some(AutoCompaction::Revisions(1000))
    );
    assert_eq!(serve(&["--quota-backend-bytes=-1"]).quota_bytes, 0, "no limit");
    assert_eq!(serve(&["--quota-backend-bytes=100"]).quota_bytes, 100);
    let urls = serve(&["--listen-client-urls", "http://127.0.0.1:1, http://[::1]:2/,unix:///run/x.sock"]);
    let shown: Vec<_> = urls.listen_client_urls.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["http://127.0.0.1:1", "http://[::1]:2", "unix:///run/x.sock"]);
    assert!(urls.insecurities().is_empty());
    let one = serve(&["--name=a", "--initial-cluster=a=http://10.0.0.1:2380", "--initial-cluster-token=t"]);
    assert_eq!(one.advertise_peer_urls, ["http://10.0.0.1:2380"]);
    assert_eq!(one.data_dir, PathBuf::from("a.tenure"));
    assert!(matches!(read(&["--name=a", "-h"], &[]), Ok(Asked::Help)));
    assert!(matches!(read(&["--version"], &[]), Ok(Asked::Version)));
}

#[test]
fn what_changes_nothing_is_said_so() {
    for (args, text) in [
        (&["--max-wals=7"][..], "--max-wals has no effect"),
        (&["--listen-peer-urls=http://0.0.0.0:2380"], "--listen-peer-urls has no effect"),
        (&["--experimental-max-learners=2"], "--experimental-max-learners is called --max-learners now"),
        (&["--experimental-initial-corrupt-check=true"], "one member has nobody to compare with"),
        (&["--feature-gates=LeaseCheckpoint=true"], "--feature-gates LeaseCheckpoint=true has no effect"),
        (&["--max-request-bytes=20000000"], "is large"),
        (&["--unsafe-no-fsync"], "a crash of this machine loses"),
    ] {
        let (_, warnings) = serve_with(args, &[]);
        assert!(warnings.iter().any(|warning| warning.contains(text)), "{args:?}: {warnings:?}");
    }
    let (config, _) = serve_with(&["--experimental-watch-progress-notify-interval=5s"], &[]);
    assert_eq!(config.watch_progress_interval, Duration::from_secs(5));
}

/// The command line of kubeadm's manifest, without its certificates.
#[test]
fn a_command_line_of_the_wild() {
    let (config, warnings) = serve_with(
        &[
            "--advertise-client-urls=http://10.0.0.7:2379",
            "--data-dir=/var/lib/etcd",
            "--experimental-initial-corrupt-check=true",
            "--experimental-watch-progress-notify-interval=5s",
            "--initial-advertise-peer-urls=http://10.0.0.7:2380",
            "--initial-cluster=node=http://10.0.0.7:2380",
            "--listen-client-urls=http://127.0.0.1:2379,http://10.0.0.7:2379",
            "--listen-metrics-urls=http://127.0.0.1:2381",
            "--listen-peer-urls=http://10.0.0.7:2380",
            "--name=node",
            "--snapshot-count=10000",
            "--client-cert-auth=false",
        ],
        &[],
    );
    assert_eq!(config.listen_metrics_urls.len(), 1);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    let insecurities = config.insecurities();
    assert!(
        insecurities[0].contains("http://10.0.0.7:2379") && !insecurities[0].contains("127"),
        "{insecurities:?}"
    );
}

#[test]
fn the_environment_comes_after_flags_and_ours_before_etcds() {
    let env = [
        ("ETCD_NAME", "from-etcd"),
        ("TENURE_NAME", "from-tenure"),
        ("ETCD_DATA_DIR", "/etcd"),
        ("ETCD_UNSAFE_NO_FSYNC", ""),
        ("TENURE_ENDPOINTS", "of the tools"),
        ("ETCD_EXPERIMENTAL_MAX_LEARNERS", "1"),
        ("HOME", "/root"),
    ];
    let (config, warnings) = serve_with(&[], &env);
    assert_eq!((config.name.as_str(), config.data_dir), ("from-tenure", PathBuf::from("/etcd")));
    assert!(warnings.is_empty(), "{warnings:?}");
    let (config, _) = serve_with(&["--name=flag"], &env);
    assert_eq!(config.name, "flag");
    let (_, warnings) = serve_with(&[], &[("ETCD_NAEM", "x")]);
    assert!(warnings[0].contains("ETCD_NAEM") && warnings[0].contains("ETCD_NAME?"), "{warnings:?}");
    let error = read(&[], &[("ETCD_HEARTBEAT_INTERVAL", "soon")]).expect_err("no number");
    assert!(error.to_string().contains("ETCD_HEARTBEAT_INTERVAL \"soon\" is wrong"), "{error}");
    let error = read(&[], &[("ETCD_CERT_FILE", "x")]).expect_err("no TLS");
    assert!(error.to_string().contains("ETCD_CERT_FILE cannot be honoured"), "{error}");
}

#[test]
fn a_misspelt_variable_of_ours_is_named_and_those_of_others_are_left_alone() {
    let (_, warnings) = serve_with(&[], &[("TENURE_DATA_DIRR", "/x"), ("TENURE_NAEM", "x")]);
    assert_eq!(
        warnings,
        [
            "TENURE_DATA_DIRR in the environment is no setting; did you mean TENURE_DATA_DIR?",
            "TENURE_NAEM in the environment is no setting; did you mean TENURE_NAME?",
        ]
    );
    let of_others = [
        "ENDPOINTS",
        "ENDPOINT",
        "COMMAND_TIMEOUT",
        "DIAL_TIMEOUT",
        "BIN",
        "COMPAT_CACHE",
        "PORT",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "PORT_2379_TCP",
        "PORT_2379_TCP_PROTO",
    ];
    for name in of_others {
        let (_, warnings) = serve_with(&[], &[(&format!("TENURE_{name}"), "x")]);
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn defaults_of_a_command_come_after_everything_else() {
    let read = |args: &[&str], env: &[(&str, &str)]| {
        let args = args.iter().map(|arg| (*arg).to_owned());
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let asked = Config::read_or(args, env, |is_set| {
            assert!(!is_set("cors"));
            let url = if is_set("data-dir") { "http://127.0.0.1:7" } else { "http://127.0.0.1:8" };
            vec![("name", "own".to_owned()), ("listen-client-urls", url.to_owned())]
        });
        match asked {
            Ok(Asked::Serve(config, warnings)) => {
                assert!(warnings.is_empty(), "{warnings:?}");
                (config.name, config.listen_client_urls[0].to_string())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(&[], &[]), ("own".into(), "http://127.0.0.1:8".into()));
    assert_eq!(read(&["--name=x", "--data-dir=/x"], &[]), ("x".into(), "http://127.0.0.1:7".into()));
    assert_eq!(
        read(&[], &[("TENURE_NAME", "y"), ("ETCD_DATA_DIR", "/x")]),
        ("y".into(), "http://127.0.0.1:7".into())
    );
}

fn with_file(text: &str, args: &[&str]) -> Result<Asked, ConfigError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tenure.yaml");
    fs::write(&path, text).expect("a file");
    let file = format!("--config-file={}", path.display());
    let mut all = vec![file.as_str()];
    all.extend(args);
    read(
        &all,
        &[("ETCD_NAME", "env"), ("ETCD_CERT_FILE", "/x"), ("TENURE_NAME", "env"), ("ETCD_NAEM", "env")],
    )
}

#[test]
fn a_file_stands_alone() {
    let text = "
name: 'from-file'
data-dir: /data
heartbeat-interval: 50
election-timeout: 300
grpc-keepalive-timeout: 3000000000
watch-progress-notify-interval: 7s
listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2
log-outputs: [stdout, /var/log/tenure.log]
auto-compaction-retention: 2
discovery:
client-transport-security:
  cert-file:
  client-cert-auth: false
peer-transport-security:
  auto-tls: false
socket-options:
  reuse-port: true
unsafe-no-fsync: false
lease-grace: 1s
proxy: 'off'
";
    match with_file(text, &["--name=flag", "--data-dir=/flag"]) {
        Ok(Asked::Serve(config, warnings)) => {
            assert_eq!(config.name, "from-file");
            assert_eq!(config.data_dir, PathBuf::from("/data"));
            assert_eq!(config.election_timeout, Duration::from_millis(300));
            assert_eq!(config.keepalive_timeout, Duration::from_secs(3));
            assert_eq!(config.watch_progress_interval, Duration::from_secs(7));
            assert_eq!(config.listen_client_urls.len(), 2);
            assert_eq!(
                config.log.outputs,
                [LogOutput::Stdout, LogOutput::File("/var/log/tenure.log".into())]
            );
            assert_eq!(config.auto_compaction, Some(AutoCompaction::Periodic(Duration::from_secs(7200))));
            assert_eq!(config.lease_grace, Duration::from_secs(1));
            assert!(config.reuse_port);
            assert_eq!(warnings.len(), 3, "{warnings:?}");
            let unheard = "not looked at --name, --data-dir, ETCD_CERT_FILE, ETCD_NAME, TENURE_NAME";
            assert!(warnings[0].ends_with(unheard), "{warnings:?}");
            assert!(warnings[1].contains("ETCD_NAEM"), "{warnings:?}");
            assert!(warnings[2].starts_with("heartbeat-interval in "), "{warnings:?}");
        }
        other => panic!("{other:?}"),
    }
    match with_file("", &[]) {
        Ok(Asked::Serve(config, _)) => {
            assert_eq!(config.name, "default", "neither flags nor environment count")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_cannot_be_is_refused_by_name() {
    for (text, expected) in [
        ("nmae: x", "nmae is not a known setting; did you mean name?"),
        ("name: 123", "name is a text: put it in quotes"),
        ("name: [a]", "name must be one value"),
        ("- name", "a list of `name: value`"),
        ("name: a\nname: b", "duplicate"),
        ("config-file: x", "cannot name another"),
        ("client-transport-security: yes", "`name: value` pairs"),
        ("client-transport-security: {cert-file: x}", "cert-file in"),
        ("peer-transport-security: {allowed-cn: x}", "peer-cert-allowed-cn in"),
        ("name: {", ".yaml: "),
        ("log-outputs: [1]", "a list of texts"),
    ] {
        let error = with_file(text, &[]).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_name_0123_in_quotes_stays_what_it_is() {
    assert_eq!(serve_with(&[], &[("ETCD_NAME", "0123")]).0.name, "0123");
    match with_file("name: '0123'", &[]) {
        Ok(Asked::Serve(config, _)) => assert_eq!(config.name, "0123"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_shows_what_works_and_names_the_rest() {
    let help = help();
    for flag in FLAGS.iter().filter(|flag| flag.standing == Standing::Works && flag.name != "debug") {
        assert!(help.contains(&format!("  --{} ", flag.name)), "--{}", flag.name);
    }
    for flag in FLAGS {
        assert!(help.contains(flag.name), "--{}", flag.name);
    }
    for line in help.lines() {
        assert!(line.chars().count() <= 120, "too wide: {line}");
    }
}

#[test]
fn version_has_etcds_four_lines() {
    let version = version();
    let starts: Vec<_> =
        version.lines().filter_map(|line| line.split_once(": ")).map(|(start, _)| start).collect();
    assert_eq!(starts, ["etcd Version", "Git SHA", "Go Version", "Go OS/Arch"]);
    assert!(version.starts_with("etcd Version: 3.7.3\n"));
}

/// The tables of docs/configuration.md are made from the table of flags. `TENURE_WRITE_DOCS=1` writes them anew.
#[test]
fn the_page_on_configuration_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = fs::read_to_string(path).expect("the page is there");
    let (before, rest) =
        page.split_once("<!-- begin: flags -->\n").expect("the page marks where its tables begin");
    let (_, after) = rest.split_once("<!-- end: flags -->").expect("the page marks where its tables end");
    let expected = format!(
        "{before}<!-- begin: flags -->\n{}\n<!-- end: flags -->{after}",
        super::help::markdown().trim_end()
    );
    if std::env::var_os("TENURE_WRITE_DOCS").is_some() {
        fs::write(path, &expected).expect("the page can be written");
    } else {
        assert!(
            page == expected,
            "docs/configuration.md is out of date: run the tests with TENURE_WRITE_DOCS=1"
        );
    }
}
