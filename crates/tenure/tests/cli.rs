//! The program as a script meets it: exit codes, where output goes, what happens when nobody reads it. No server is needed.

use std::{
    net::TcpListener,
    process::{Command, Output, Stdio},
};

fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["ENDPOINTS", "COMMAND_TIMEOUT", "DIAL_TIMEOUT"] {
        command.env_remove(format!("TENURE_{name}")).env_remove(format!("ETCDCTL_{name}"));
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    tenure(arguments).output().expect("the program was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A port that nobody listens on.
fn dead_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the machine has free ports");
    listener.local_addr().expect("it is bound").to_string()
}

#[test]
fn the_version_begins_as_etcds_does() {
    let output = run(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert_eq!(text.lines().next(), Some("etcd Version: 3.7.3"));
    assert_eq!(text.lines().count(), 4);
    assert!(text.contains("Tenure Version: "), "{text}");
}

#[test]
fn version_as_json_is_one_document_without_colours() {
    let output = run(&["version", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["tenure"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["etcd"], "3.7.3");
}

#[test]
fn wrong_usage_is_2_and_says_so_on_standard_error() {
    for arguments in
        [&["get"][..], &["lease", "grant", "0"], &["get", ""], &["put", "k", "v", "--endpoints", "ftp://a"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn no_cluster_is_69_and_names_the_endpoint_and_the_reason() {
    let port = dead_port();
    for arguments in [&["get", "k"][..], &["watch", "k"], &["lease", "keepalive", "7"], &["status"]] {
        let output = tenure(arguments).env("TENURE_ENDPOINTS", &port).output().expect("it runs");
        assert_eq!(output.status.code(), Some(69), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(&port), "{}", stderr(&output));
        assert!(stderr(&output).contains("Connection refused"), "{}", stderr(&output));
    }
}

#[test]
fn etcdctls_environment_is_read_and_tenures_goes_first() {
    let port = dead_port();
    let output = tenure(&["get", "k"]).env("ETCDCTL_ENDPOINTS", &port).output().expect("it runs");
    assert!(stderr(&output).contains(&port));
    let output = tenure(&["get", "k"])
        .env("ETCDCTL_ENDPOINTS", "127.0.0.1:1")
        .env("TENURE_ENDPOINTS", &port)
        .output()
        .expect("it runs");
    assert!(stderr(&output).contains(&port));
}

#[test]
fn a_silent_server_is_124_when_the_time_is_over() {
    // It takes the connection, into the kernel's queue, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("the machine has free ports");
    let endpoint = silent.local_addr().expect("it is bound").to_string();
    let output = run(&["put", "k", "v", "--command-timeout", "200ms", "--endpoints", &endpoint]);
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(stderr(&output), "error: no answer within 200ms; it may or may not have been done\n");
    let output = run(&["get", "k", "--command-timeout", "200ms", "--endpoints", &endpoint]);
    assert_eq!(stderr(&output), "error: no answer within 200ms\n");
}

#[test]
fn nobody_reading_is_no_failure() {
    for arguments in [&["completion", "bash"][..], &["--help"], &["version"], &["--version"]] {
        let (reader, writer) = std::io::pipe().expect("the machine has free pipes");
        drop(reader);
        let output = tenure(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let output = output.and_then(std::process::Child::wait_with_output).expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn every_shell_gets_a_completion() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&run(&["completion", shell]));
        assert!(script.contains("keepalive") && script.contains("listen-client-urls"), "{shell}");
    }
}
