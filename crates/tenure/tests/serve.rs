//! Servers as whoever starts them meets them: exit codes, signals, and what is left behind. Each listens on a port that the system
//! draws and keeps its data in a directory of the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(arguments).stdin(Stdio::null());
    // What the shell of whoever runs the tests says of servers is not for these.
    for (name, _) in std::env::vars() {
        if name.starts_with("ETCD_") || name.starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    tenure(arguments).output().expect("the program was built for this test")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A server that ends with the test.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
    /// What it printed until it served.
    welcome: String,
}

impl Running {
    fn dev(arguments: &[&str]) -> Running {
        let mut child = tenure(&["dev", "--listen-client-urls=http://127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut welcome = String::new();
        while !welcome.contains("Ctrl-C ends it.") {
            let length = out.read_line(&mut welcome).expect("text");
            assert_ne!(length, 0, "it ended before it served: {welcome} {}", rest(&mut child));
        }
        let address =
            welcome.split_once("http://").and_then(|(_, rest)| rest.split_once(',')).expect("a URL").0;
        Running { address: address.to_owned(), child, out, welcome }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it serves");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill is there").success());
    }

    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    let _ = child.stderr.take().expect("a pipe").read_to_string(&mut text);
    text
}

#[test]
fn dev_serves_says_how_to_go_on_and_leaves_nothing_behind() {
    let mut server = Running::dev(&[]);
    assert!(server.get("/health").ends_with(r#"{"health":"true","reason":""}"#));
    assert!(server.get("/metrics").contains("\netcd_server_is_leader 1\n"));
    assert!(server.welcome.contains(&format!("http://{}/metrics", server.address)), "{}", server.welcome);
    let dir = server
        .welcome
        .split_once("Data is in ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("a path")
        .0;
    let dir = dir.to_owned();
    assert!(Path::new(&dir).is_dir());

    let endpoint = format!("--endpoints={}", server.address);
    assert!(run(&[&endpoint, "put", "k", "v"]).status.success());
    let got = run(&[&endpoint, "get", "k", "-o", "json"]);
    assert!(String::from_utf8_lossy(&got.stdout).contains("\"v\""), "{got:?}");

    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(0));
    assert!(!Path::new(&dir).exists(), "a temporary directory goes with its server");
    let mut more = String::new();
    server.out.read_to_string(&mut more).expect("text");
    assert_eq!(more.trim(), "", "nothing but the welcome is printed");
}

#[test]
fn a_stop_is_quick_though_watches_and_connections_are_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Running::dev(&["--data-dir", dir.path().to_str().expect("text")]);
    let endpoint = format!("--endpoints={}", server.address);
    let mut watch = tenure(&[&endpoint, "watch", "-p", ""])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program");
    // A connection that never says what it wants.
    let _silent = TcpStream::connect(&server.address).expect("it serves");
    let mut seen = String::new();
    let mut events = BufReader::new(watch.stdout.take().expect("a pipe"));
    assert!(run(&[&endpoint, "put", "seen", "v"]).status.success());
    // The watch may have begun after that put; then one of the next is its first event.
    let began = Instant::now();
    let waiting = std::thread::spawn(move || events.read_line(&mut seen).map(|_| seen));
    while !waiting.is_finished() {
        assert!(began.elapsed() < PATIENCE, "the watch sees nothing");
        assert!(run(&[&endpoint, "put", "seen", "v"]).status.success());
    }
    let began = Instant::now();
    server.signal("INT");
    assert_eq!(server.ended().code(), Some(0));
    let took = began.elapsed();
    let _ = watch.kill();
    let _ = watch.wait();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("text");
    let mut server = Running::dev(&["--data-dir", dir]);
    let endpoint = format!("--endpoints={}", server.address);
    assert!(run(&[&endpoint, "put", "k", "kept"]).status.success());
    server.signal("KILL");
    assert_eq!(server.ended().code(), None);
    let server = Running::dev(&["--data-dir", dir]);
    let got = run(&[&format!("--endpoints={}", server.address), "get", "k"]);
    assert!(String::from_utf8_lossy(&got.stdout).contains("kept"), "{got:?}");
}

#[test]
fn wrong_flags_are_2_and_named() {
    for (arguments, text) in [
        (&["serve", "--nmae", "x"][..], "did you mean --name?"),
        (&["dev", "--heartbeat-interval=soon"], "must be a whole number"),
        (&["serve", "--cert-file=x"], "TLS is not there yet"),
        (&["serve", "--initial-cluster=a=http://a:1,b=http://b:1"], "one member for now"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for verb in ["serve", "dev"] {
        let output = run(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("--listen-client-urls"), "{text}");
        assert!(text.contains(&format!("Usage: tenure {verb} [flags]")), "{text}");
        assert_eq!(String::from_utf8_lossy(&run(&["help", verb]).stdout), text, "help {verb}");
    }
    let output = run(&["serve", "--version"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let starts: Vec<_> = text.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    assert_eq!(starts, ["etcd Version", "Git SHA", "Go Version", "Go OS/Arch"]);
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("  serve ") && text.contains("  dev "), "{text}");
}

#[test]
fn dev_listens_to_the_environment_and_keeps_the_directory_that_it_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("kept");
    let output = tenure(&["dev", "--initial-cluster-state=existing"])
        .env("TENURE_DATA_DIR", &path)
        .output()
        .expect("the program was built for this test");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("{} has no data", path.display())), "{}", stderr(&output));
}

#[test]
fn the_same_signal_twice_in_a_moment_is_one() {
    let mut server = Running::dev(&[]);
    let id = server.child.id().to_string();
    // Two kinds, because two of one kind may become one on the way.
    let twice = Command::new("sh").args(["-c", "kill -s TERM $0; kill -s INT $0", &id]).status();
    assert!(twice.expect("a shell is there").success());
    assert_eq!(server.ended().code(), Some(0), "{}", rest(&mut server.child));
}

#[test]
fn a_port_without_grpc_is_called_so() {
    let metrics = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let _server = Running::dev(&[&format!("--listen-metrics-urls=http://{metrics}")]);
    for verb in [&["get", "k"][..], &["watch", "k"], &["lease", "grant", "5"]] {
        let output = tenure(verb).args(["--endpoints", &metrics.to_string()]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(69), "{verb:?}: {}", stderr(&output));
        let text = format!("http://{metrics} is no gRPC endpoint");
        assert!(stderr(&output).contains(&text), "{verb:?}: {}", stderr(&output));
    }
}

#[test]
fn a_watch_says_once_that_its_server_is_lost_and_once_that_it_is_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("text");
    let mut server = Running::dev(&["--data-dir", path]);
    let address = server.address.clone();
    let mut watch = tenure(&["--endpoints", &address, "watch", "k", "--rev", "1", "--progress"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut events = BufReader::new(watch.stdout.take().expect("a pipe"));
    let mut said = BufReader::new(watch.stderr.take().expect("a pipe"));
    let mut line = String::new();
    assert!(run(&["--endpoints", &address, "put", "k", "v"]).status.success());
    events.read_line(&mut line).expect("the watch sees it");
    server.signal("TERM");
    server.ended();
    line.clear();
    said.read_line(&mut line).expect("text");
    assert!(line.starts_with("lost the server (") && line.ends_with(", trying again\n"), "{line}");
    let url = format!("--listen-client-urls=http://{address}");
    let server = Running::dev(&[&url, "--data-dir", path]);
    line.clear();
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "the server is back; nothing was missed\n");
    assert!(run(&["--endpoints", &server.address, "put", "k", "w"]).status.success());
    events.read_line(&mut line).expect("the watch sees it");
    let _ = watch.kill();
    let _ = watch.wait();
    line.clear();
    said.read_to_string(&mut line).expect("text");
    assert_eq!(line, "", "said once");
}

#[test]
fn answers_for_programs_are_alike() {
    let server = Running::dev(&[]);
    let ask = |code: i32, arguments: &[&str]| {
        let output = tenure(arguments).args(["--endpoints", &server.address]).output().expect("it was built");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        (String::from_utf8(output.stdout.clone()).expect("text"), stderr(&output))
    };
    let json = |code: i32, arguments: &[&str]| -> (Vec<String>, serde_json::Value) {
        let (text, _) = ask(code, &[arguments, &["-o", "json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&text).expect(&text);
        // The order is that of the text: the keys of the outermost object stand two spaces in.
        let outer =
            text.lines().filter_map(|line| line.strip_prefix("  \"")).filter_map(|line| line.split_once('"'));
        (outer.map(|(key, _)| key.to_owned()).collect(), value)
    };
    let (keys, granted) = json(0, &["lease", "grant", "60"]);
    assert_eq!(keys, ["header", "id", "ttl"]);
    let id = granted["id"].as_str().expect("an id").to_owned();
    assert_eq!(json(0, &["lease", "get", &id]).0, ["header", "id", "ttl", "left", "keys"]);
    let (keys, put) = json(0, &["put", "a", "1", "--ttl", "7s"]);
    assert_eq!(keys, ["header", "lease", "ttl"]);
    assert_eq!(put["ttl"], 7);
    assert_eq!(json(3, &["lease", "get", "1"]).1["left"], -1);
    let (line, why) = ask(3, &["lease", "keepalive", "1", "--once", "-o", "json"]);
    let lost: serde_json::Value = serde_json::from_str(&line).expect("a line");
    assert_eq!(lost["id"], "0000000000000001");
    assert!(lost["lost"].is_string() && !why.is_empty(), "{line}{why}");

    for value in ["2", "3"] {
        ask(0, &["put", "b", value]);
    }
    assert_eq!(ask(0, &["get", "-p", "", "--count-only", "-o", "name"]).0, "2\n");
    let (_, compacted) = json(0, &["compact", "4"]);
    assert_eq!(compacted["compacted"], 4);
    for arguments in [&["get", "b", "--rev", "2"][..], &["compact", "3"]] {
        let (_, why) = ask(1, arguments);
        assert!(why.ends_with("has been compacted; the oldest that is left is 4\n"), "{why}");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), r#"{"success": [{"get": {"key": "b"}}, {"del": {"key": "b"}}]}"#)
        .expect("a file");
    let (yaml, _) = ask(0, &["txn", "-f", file.path().to_str().expect("text"), "-o", "yaml"]);
    assert!(yaml.contains("- get:\n") && yaml.contains("- del:\n") && !yaml.contains('!'), "{yaml}");
}

#[test]
fn what_cannot_be_started_is_1_with_the_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("--listen-client-urls=http://{}", taken.local_addr().expect("an address"));
    let output = run(&["dev", &url]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the port is in use"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "said once: {}", stderr(&output));

    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("text");
    let _server = Running::dev(&["--data-dir", dir]);
    let output = run(&["serve", "--listen-client-urls=http://127.0.0.1:0", "--data-dir", dir]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("is in use by"), "{}", stderr(&output));
}

#[test]
fn a_damaged_directory_is_65() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("text");
    let mut server = Running::dev(&["--data-dir", path]);
    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(0));
    std::fs::write(dir.path().join("identity"), "garbage").expect("a file");
    let output = run(&["serve", "--listen-client-urls=http://127.0.0.1:0", "--data-dir", path]);
    assert_eq!(output.status.code(), Some(65), "{}", stderr(&output));
    assert!(stderr(&output).contains("is damaged"), "{}", stderr(&output));
}

#[test]
fn a_failing_start_gives_a_directory_no_identity() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("text");
    let mut server = Running::dev(&["--data-dir", path]);
    let endpoint = format!("--endpoints={}", server.address);
    assert!(run(&[&endpoint, "put", "k", "v"]).status.success());
    server.signal("TERM");
    server.ended();
    let identity = dir.path().join("identity");
    let sound = std::fs::read(&identity).expect("it is there");
    let start = |more: &[&str]| {
        let arguments = ["serve", "--listen-client-urls=http://127.0.0.1:0", "--data-dir", path];
        run(&[&arguments, more].concat())
    };
    let others = "--initial-cluster-token=other";
    let output = start(&[others]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("belongs to member"), "{}", stderr(&output));
    assert_eq!(std::fs::read(&identity).expect("it is there"), sound);
    std::fs::remove_file(&identity).expect("it is there");
    for more in [&[others][..], &[]] {
        let output = start(more);
        assert_eq!(output.status.code(), Some(65), "{}", stderr(&output));
        assert!(stderr(&output).contains("identity is missing"), "{}", stderr(&output));
        assert!(!identity.exists());
    }
    let output = run(&["export", path]);
    assert_eq!(output.status.code(), Some(65), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 keys, 0 leases"), "{}", stderr(&output));
    std::fs::write(&identity, sound).expect("a file");
    Running::dev(&["--data-dir", path]);
}

#[test]
fn a_start_says_what_it_serves_and_what_it_cut_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("text");
    let mut server =
        Running::dev(&["--data-dir", path, "--wal-segment-bytes=1048576", "--wal-spare-segments=0"]);
    let endpoint = format!("--endpoints={}", server.address);
    assert!(run(&[&endpoint, "put", "k", "v", "--ttl", "1h"]).status.success());
    server.signal("TERM");
    server.ended();
    assert_eq!(rest(&mut server.child), "", "nothing was wrong");
    // The end of the log, in a segment that held nothing before.
    let segment = dir.path().join("log/0000000000000001.wal");
    let mut bytes = std::fs::read(&segment).expect("a file");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    bytes[last] ^= 1;
    std::fs::write(&segment, bytes).expect("a file");

    let mut server = Running::dev(&["--data-dir", path, "--log-level=info", "--quota-backend-bytes=600"]);
    let endpoint = format!("--endpoints={}", server.address);
    for _ in 0..2 {
        assert!(!run(&[&endpoint, "put", "large", &"v".repeat(500)]).status.success());
    }
    server.signal("KILL");
    server.ended();
    let log = rest(&mut server.child);
    let line = |what: &str| {
        let lines: Vec<_> = log.lines().filter(|line| line.contains(what)).collect();
        assert_eq!(lines.len(), 1, "{what}: {log}");
        lines[0]
    };
    let cut = line("an incomplete record at the end of the log is cut off");
    assert!(cut.contains("WARN") && cut.contains("file=log/") && cut.contains("bytes="), "{cut}");
    assert!(line("entries_to_replay=").contains("checkpoint_revision="));
    let ready = line("ready to serve client requests");
    assert!(ready.contains("revision=2 ") && ready.contains("leases=1"), "{ready}");
    let full = line("NOSPACE is on");
    assert!(full.contains("WARN") && full.contains("quota_bytes=600"), "{full}");
    assert!(full.contains("logical_bytes=280"), "{full}");
}

#[test]
fn a_directory_is_checked_and_exported_while_its_server_is_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("data");
    let path = path.to_str().expect("text");
    let mut server = Running::dev(&["--data-dir", path]);
    let endpoint = format!("--endpoints={}", server.address);
    assert!(run(&[&endpoint, "put", "k", "v", "--ttl", "1h"]).status.success());
    for verb in ["check", "export"] {
        let output = run(&[verb, path]);
        assert_eq!(output.status.code(), Some(1), "{verb} while it runs: {}", stderr(&output));
    }
    server.signal("TERM");
    server.ended();

    let output = run(&["check", path]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("sound: a server would start on it"), "{text}");
    let output = run(&["check", path, "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["findings"], serde_json::json!([]));

    let file = dir.path().join("all.jsonl");
    let file = file.to_str().expect("text");
    let output = run(&["export", path, "--out", file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 keys, 1 leases"), "{}", stderr(&output));
    let exported = std::fs::read_to_string(file).expect("the file");
    assert!(exported.contains(r#""kind":"key""#) && exported.contains(r#""kind":"lease""#), "{exported}");
    let printed = run(&["export", path]);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), exported);
    assert_eq!(run(&["export", path, "--out", file]).status.code(), Some(1), "it overwrites nothing");
    assert_eq!(run(&["check", "/nonexistent"]).status.code(), Some(1));
}

#[test]
fn strangers_that_can_connect_are_warned_about_in_one_line() {
    let server = Running::dev(&["--listen-client-urls=http://127.0.0.1:0,http://0.0.0.0:0"]);
    let mut server = server;
    server.signal("TERM");
    server.ended();
    let log = rest(&mut server.child);
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("not secure")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    for word in ["no TLS", "no auth", "--cors=*", "--host-whitelist=*"] {
        assert!(warnings[0].contains(word), "{log}");
    }
}
