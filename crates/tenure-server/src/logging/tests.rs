//! Logging must not hold up anybody, and must say what it lost.

use std::io::Read;
use std::sync::mpsc;
use std::time::Instant;

use super::*;

fn logged(output: impl Write + Send + 'static, style: Style, level: Level, run: impl FnOnce()) -> Logs {
    let sink = Sink::start(output, style).expect("a thread");
    let subscriber = subscriber(vec![layer(sink.writer.clone(), style)], level);
    tracing::subscriber::with_default(subscriber, run);
    Logs { sinks: vec![sink] }
}

fn written(style: Style, level: Level, run: impl FnOnce()) -> String {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    drop(logged(writer, style, level, run));
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn fields_and_levels() {
    let run = || {
        tracing::info!(key = "a b", count = 3_u64, delta = -1_i64, ok = true, rate = 0.5, url = %"http://x", "done");
        tracing::debug!("not wanted");
        tracing::error!(error = ?io::ErrorKind::NotFound, "it is gone");
    };
    let text = written(Style::Text { colours: false }, Level::INFO, run);
    let lines: Vec<_> = text.lines().map(|line| line.split_once("Z ").expect("a time").1).collect();
    assert_eq!(
        lines,
        [
            " INFO done key=\"a b\" count=3 delta=-1 ok=true rate=0.5 url=http://x",
            "ERROR it is gone error=NotFound"
        ]
    );
    let text = written(Style::Json, Level::DEBUG, run);
    let parsed: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(parsed.len(), 3);
    assert_eq!(parsed[0]["level"], "info");
    assert_eq!(parsed[0]["msg"], "done");
    assert_eq!(parsed[0]["count"], 3);
    assert_eq!(parsed[0]["key"], "a b");
    assert!(parsed[0]["caller"].as_str().expect("text").starts_with("logging/tests.rs:"));
    assert_eq!(parsed[1]["level"], "debug");
}

#[test]
fn libraries_do_not_chatter() {
    let text = written(Style::Json, Level::DEBUG, || {
        tracing::debug!(target: "h2::codec::framed_read", "a frame");
        tracing::warn!(target: "h2::server", "a flood");
        tracing::debug!(target: "tenure_server::x", "ours");
    });
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn long_lines_are_cut() {
    let long = "x".repeat(100_000);
    let text = written(Style::Text { colours: false }, Level::INFO, || {
        tracing::info!("{long}");
        tracing::info!("short");
    });
    let lengths: Vec<_> = text.lines().map(str::len).collect();
    assert_eq!(lengths.len(), 2);
    assert_eq!(lengths[0], LINE_BYTES_MAX);
}

#[test]
fn a_full_pipe_holds_up_nobody_and_is_told_of() {
    let lines = 50_000;
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let before = lines_dropped();
    let (done, waited) = mpsc::channel();
    let logging = std::thread::spawn(move || {
        let began = Instant::now();
        let logs = logged(writer, Style::Text { colours: false }, Level::INFO, || {
            for number in 0..lines {
                tracing::info!(number, "a line that nobody reads");
            }
        });
        done.send(began.elapsed()).expect("somebody waits");
        logs
    });
    waited.recv_timeout(Duration::from_secs(60)).expect("logging into a full pipe does not block");
    let dropped = lines_dropped() - before;
    assert!(dropped > 0, "the queue is bounded");

    // Now somebody reads: what was kept comes, and a word about the rest.
    let logs = logging.join().expect("no panic");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    });
    drop(logs);
    let text = reading.join().expect("no panic");
    let told: u64 = text
        .lines()
        .filter_map(|line| {
            line.split_once(" WARN ")?.1.split_once(" log lines were dropped")?.0.parse::<u64>().ok()
        })
        .sum();
    let kept = text.lines().filter(|line| line.contains("a line that nobody reads")).count() as u64;
    assert_eq!(kept + told, lines, "every line is there or told of");
}
