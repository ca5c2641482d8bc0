//! Log lines: made by `tracing`, written by a thread of their own.
//!
//! Logging never holds up serving: a line goes into a bounded queue, and if whoever takes the lines does not keep
//! up (a full pipe, a slow disk) it is dropped and counted. Once there is room again a line says how many are
//! missing.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{LogConfig, LogFormat, LogOutput};

mod format;

use format::Style;

/// Lines that wait for one output: at the size of usual lines half a megabyte, at most [`LINE_BYTES_MAX`] times so
/// many.
const QUEUE_LINES_MAX: usize = 4096;
/// What is longer is cut.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Lines written at once, so that a burst is not a system call for each.
const WRITE_BYTES: usize = 64 * 1024;
/// How long the end of the program waits for the last lines to be taken.
const FLUSH_WAIT: Duration = Duration::from_millis(500);
/// Libraries whose debug lines are about every frame on every connection.
const CHATTY: [&str; 4] = ["h2", "hyper", "hyper_util", "tower"];

static LINES_DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that nobody took in time, since the process started.
pub(crate) fn lines_dropped() -> u64 {
    LINES_DROPPED.load(Ordering::Relaxed)
}

/// Keep it as long as lines are wanted: dropping it writes the last ones.
pub struct Logs {
    sinks: Vec<Sink>,
}

/// Sends all log lines of this process where `config` says. To be called once.
pub fn start(config: &LogConfig) -> anyhow::Result<Logs> {
    let mut sinks = Vec::new();
    let mut layers = Vec::new();
    for output in &config.outputs {
        let (file, terminal) = open(output)?;
        let style = match config.format {
            LogFormat::Json => Style::Json,
            LogFormat::Text => Style::Text { colours: terminal && wants_colours() },
        };
        let sink = Sink::start(file, style)?;
        layers.push(layer(sink.writer.clone(), style));
        sinks.push(sink);
    }
    subscriber(layers, config.level).try_init().context("the log of this process is set up already")?;
    Ok(Logs { sinks })
}

/// A descriptor of our own: whoever blocks on it holds no lock of the standard library's.
fn open(output: &LogOutput) -> anyhow::Result<(File, bool)> {
    let own = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
    match output {
        LogOutput::Stderr => Ok((own(&io::stderr())?, io::stderr().is_terminal())),
        LogOutput::Stdout => Ok((own(&io::stdout())?, io::stdout().is_terminal())),
        LogOutput::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.with_context(|| format!("the log {} cannot be opened", path.display()))?;
            Ok((file, false))
        }
    }
}

/// <https://no-color.org>: set to anything, it says no.
fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

fn layer(writer: LineWriter, style: Style) -> BoxedLayer {
    tracing_subscriber::fmt::layer().with_writer(writer).event_format(style).boxed()
}

fn subscriber(layers: Vec<BoxedLayer>, level: Level) -> impl Subscriber + Send + Sync {
    let quiet = CHATTY.map(|target| (target, LevelFilter::WARN.min(level.into())));
    let filter = Targets::new().with_default(level).with_targets(quiet);
    tracing_subscriber::registry().with(layers.with_filter(filter))
}

/// One output and the thread that writes to it.
struct Sink {
    writer: LineWriter,
    finished: Receiver<()>,
}

impl Sink {
    fn start(output: impl Write + Send + 'static, style: Style) -> anyhow::Result<Sink> {
        let (lines, queue) = crossbeam_channel::bounded(QUEUE_LINES_MAX);
        let (finish, finished) = crossbeam_channel::bounded(1);
        let missing = Arc::new(AtomicU64::new(0));
        let writer = LineWriter { lines, missing: missing.clone() };
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write_lines(output, style, &queue, &missing);
                let _ = finish.send(());
            })
            .context("the thread that writes the log cannot be started")?;
        Ok(Sink { writer, finished })
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        for sink in self.sinks.drain(..) {
            // Without a line: the end. The subscriber lives as long as the process, and with it the other senders.
            if sink.writer.lines.send_timeout(Vec::new(), FLUSH_WAIT).is_ok() {
                let _ = sink.finished.recv_timeout(FLUSH_WAIT);
            }
        }
    }
}

fn write_lines(mut output: impl Write, style: Style, queue: &Receiver<Vec<u8>>, missing: &AtomicU64) {
    let mut buffer = Vec::with_capacity(WRITE_BYTES);
    let mut end = false;
    while !end {
        let Ok(first) = queue.recv() else { return };
        let mut line_count = 0;
        for line in std::iter::once(first).chain(queue.try_iter()) {
            if line.is_empty() {
                end = true;
                break;
            }
            buffer.extend_from_slice(&line);
            line_count += 1;
            if buffer.len() >= WRITE_BYTES {
                break;
            }
        }
        match missing.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => buffer.extend_from_slice(style.missing(lines).as_bytes()),
        }
        // A log that cannot be written must not end the server; where it is read, the count shows it.
        if output.write_all(&buffer).is_err() {
            LINES_DROPPED.fetch_add(line_count, Ordering::Relaxed);
        }
        buffer.clear();
    }
}

/// What `tracing` writes its lines to.
#[derive(Clone)]
struct LineWriter {
    lines: Sender<Vec<u8>>,
    missing: Arc<AtomicU64>,
}

impl MakeWriter<'_> for LineWriter {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        self.clone()
    }
}

impl Write for LineWriter {
    /// Is given a whole line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut line_kept = line.to_vec();
        if line.len() > LINE_BYTES_MAX {
            line_kept.truncate(LINE_BYTES_MAX);
            line_kept.push(b'\n');
        }
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line_kept) {
            self.missing.fetch_add(1, Ordering::Relaxed);
            LINES_DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
