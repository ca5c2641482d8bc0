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
    let mut watch =
        tenure(&[&endpoint, "watch", "-p", ""]).stdout(Stdio::piped()).spawn().expect("the program");
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
        assert!(String::from_utf8_lossy(&output.stdout).contains("--listen-client-urls"));
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
