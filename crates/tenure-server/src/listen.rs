//! Sockets: bound first, before anything else can go wrong; then one thread accepts, and hands each connection to
//! one of several single-threaded runtimes in turn, where it stays for its life.
//!
//! Several runtimes of one thread, because a call then never moves between cores; one acceptor, because a kernel
//! that spreads connections by itself spreads few of them badly.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};

use crate::config::{Config, ListenUrl};
use crate::handle::Home;
use crate::http::Front;
use crate::metrics::Metrics;

mod bind;

use bind::{Connection, Listener};

/// hyper's own 400 KiB for each stream would let slow readers hold too much.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Small frames that wait to be read count against half of this window, 256 bytes each; a client that renews many
/// leases sends each renewal in a frame of its own. hyper's 1 MiB would end its connection at some 2,000 of them.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
/// h2's defaults, written down because they are what stops floods of resets.
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 1024;
/// Who opens a connection for HTTP/1.1 has so long to say what he wants.
const HEADER_WAIT: Duration = Duration::from_secs(30);
/// A peer that vanished without a word is noticed after about so long, whatever the protocol.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// When descriptors have run out, wait for some to come back, longer each time.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Descriptors that connections leave to files: a log that cannot open its next segment would stop the member.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Of these, what metrics and health on their own URLs may use, so that one can still look when clients use up theirs.
const DESCRIPTORS_FOR_METRICS: i64 = 16;

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Everything,
    Metrics,
}

/// Bound sockets that nobody answers yet; connections wait in the backlog.
pub(crate) struct Bound {
    /// As many may be open at a time as the process has descriptors for.
    connections_max: i64,
    listeners: Vec<(Listener, Scope)>,
    client_urls: Vec<ListenUrl>,
    metrics_urls: Vec<ListenUrl>,
}

impl Bound {
    /// Fails with a text that says which address, why, and what to do.
    pub(crate) fn bind(config: &Config) -> anyhow::Result<Bound> {
        let connections_max = connections_max();
        let mut bound = Bound {
            connections_max,
            listeners: Vec::new(),
            client_urls: Vec::new(),
            metrics_urls: Vec::new(),
        };
        for url in &config.listen_client_urls {
            let (url, listeners) = bind::bind(url, "--listen-client-urls", config.reuse_port)?;
            bound.client_urls.push(url);
            bound.listeners.extend(listeners.into_iter().map(|listener| (listener, Scope::Everything)));
        }
        for url in &config.listen_metrics_urls {
            let (url, listeners) = bind::bind(url, "--listen-metrics-urls", config.reuse_port)?;
            bound.metrics_urls.push(url);
            bound.listeners.extend(listeners.into_iter().map(|listener| (listener, Scope::Metrics)));
        }
        Ok(bound)
    }

    /// Where clients connect, with the port that was drawn where 0 was asked for.
    pub(crate) fn client_urls(&self) -> &[ListenUrl] {
        &self.client_urls
    }

    pub(crate) fn metrics_urls(&self) -> &[ListenUrl] {
        &self.metrics_urls
    }

    /// Begins to answer: `everything` on client URLs, `metrics_only` on the others.
    pub(crate) fn serve(
        self,
        config: &Config,
        metrics: Arc<Metrics>,
        everything: Front,
        metrics_only: Front,
    ) -> anyhow::Result<Serving> {
        let (stop, stopping) = watch::channel(Phase::Serving);
        let mut threads = Vec::new();
        let mut workers = Vec::new();
        for number in 0..config.runtimes.max(1) {
            // Bounded by the descriptors that the process may have.
            let (connections, queue) = mpsc::unbounded_channel();
            workers.push(connections);
            let worker = Worker {
                http: settings(config),
                everything: everything.clone(),
                metrics_only: metrics_only.clone(),
                stopping: stopping.clone(),
            };
            threads.push(spawn(format!("serve-{number}"), move |runtime| worker.run(runtime, queue))?);
        }
        let listeners = self.listeners;
        let acceptor = Acceptor { workers, metrics, connections_max: self.connections_max, stopping };
        threads.push(spawn("accept".to_owned(), move |runtime| acceptor.run(&runtime, listeners))?);
        Ok(Serving { stop, threads })
    }
}

fn spawn(
    name: String,
    run: impl FnOnce(tokio::runtime::Runtime) + Send + 'static,
) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // For what takes long and waits for nothing, such as the sorting of a large answer.
        .max_blocking_threads(1)
        .build()
        .with_context(|| format!("the runtime of {name} cannot be made"))?;
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(|| run(runtime))
        .with_context(|| format!("the thread {name} cannot be started"))
}

fn settings(config: &Config) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_WAIT);
    let keepalive = Some(config.keepalive_interval).filter(|interval| !interval.is_zero());
    http.http2()
        .timer(TokioTimer::new())
        // Without it hyper stops at 200, where etcd does not.
        .max_concurrent_streams(config.max_concurrent_streams)
        .keep_alive_interval(keepalive)
        .keep_alive_timeout(config.keepalive_timeout)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX);
    http
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Nothing new; what runs may finish.
    Draining,
    /// Whatever is not over by then is cut.
    Until(Instant),
}

/// Resolves when serving ends, also when whoever would say so is gone.
async fn stops(stopping: &mut watch::Receiver<Phase>) {
    let _ = stopping.wait_for(|phase| *phase != Phase::Serving).await;
}

/// The threads that serve. Dropping it cuts every connection.
pub(crate) struct Serving {
    stop: watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Accepts nothing more and tells every client so (GOAWAY); calls in flight go on.
    pub(crate) fn drain(&self) {
        self.stop.send_replace(Phase::Draining);
    }

    /// Waits until all connections are closed, for at most `grace`; what is left then is cut.
    pub(crate) fn finish(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.stop.send_replace(Phase::Until(Instant::now() + grace));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that served connections panicked");
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// A connection on its way to a worker.
struct Dealt {
    connection: Connection,
    scope: Scope,
    counted: Counted,
}

/// Raises the limit of descriptors as far as the system allows, as etcd's runtime does, and says how many of them
/// connections may use.
fn connections_max() -> i64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // Without it the server serves all the same, fewer at a time.
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    let descriptors = limit.current.unwrap_or(u64::MAX);
    descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(descriptors / 2).try_into().unwrap_or(i64::MAX)
}

/// Accepts on all listeners and deals the connections out.
struct Acceptor {
    workers: Vec<mpsc::UnboundedSender<Dealt>>,
    metrics: Arc<Metrics>,
    connections_max: i64,
    stopping: watch::Receiver<Phase>,
}

impl Acceptor {
    fn run(self, runtime: &tokio::runtime::Runtime, listeners: Vec<(Listener, Scope)>) {
        let turn = AtomicUsize::new(0);
        let all = listeners.into_iter().map(|(listener, scope)| self.accept(listener, scope, &turn));
        runtime.block_on(async {
            let mut stopping = self.stopping.clone();
            tokio::select! {
                () = join_all(all) => {}
                () = stops(&mut stopping) => {}
            }
        });
    }

    async fn accept(&self, listener: Listener, scope: Scope, turn: &AtomicUsize) {
        let listener = match listener.register() {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a socket cannot be listened on"),
        };
        let connections_max = match scope {
            Scope::Everything => self.connections_max,
            Scope::Metrics => self.connections_max.saturating_add(DESCRIPTORS_FOR_METRICS),
        };
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            let accepted = if self.metrics.connections.get() < connections_max {
                listener.accept().await
            } else {
                Err(io::Error::other("as many connections are open as there are file descriptors for"))
            };
            match accepted {
                Ok(connection) => {
                    pause = ACCEPT_PAUSE_MIN;
                    self.metrics.connections_accepted.inc();
                    let counted = Counted::new(&self.metrics);
                    let worker = turn.fetch_add(1, Ordering::Relaxed) % self.workers.len();
                    // A worker that is gone is one that stops, and then we do too.
                    let _ = self.workers[worker].send(Dealt { connection, scope, counted });
                }
                // The client was gone before we came: its business, not ours.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    self.metrics.accept_errors.inc();
                    let pause_ms = pause.as_millis() as u64;
                    tracing::warn!(%error, pause_ms, "a connection cannot be accepted; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }
}

/// Waits for all of them. There are few, and they end together.
async fn join_all(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Serves the connections that it is dealt, on one thread.
struct Worker {
    http: Builder<TokioExecutor>,
    everything: Front,
    metrics_only: Front,
    stopping: watch::Receiver<Phase>,
}

impl Worker {
    fn run(mut self, runtime: tokio::runtime::Runtime, mut queue: mpsc::UnboundedReceiver<Dealt>) {
        // Each connection holds a clone; the channel closes when the last is over.
        let (open, mut all_closed) = mpsc::channel::<()>(1);
        runtime.block_on(async {
            Home::settle();
            while let Some(dealt) = tokio::select! {
                dealt = queue.recv() => dealt,
                () = stops(&mut self.stopping) => None,
            } {
                self.serve(dealt, open.clone());
            }
            // What was accepted and never looked at is told by its closing.
            drop(queue);
            drop(open);
            let deadline = async {
                let until = |phase: &Phase| matches!(phase, Phase::Until(_));
                // An error: whoever would say when is gone, and so is the time.
                if let Ok(Phase::Until(deadline)) = self.stopping.wait_for(until).await.map(|phase| *phase) {
                    tokio::time::sleep_until(deadline.into()).await;
                }
            };
            tokio::select! {
                _ = all_closed.recv() => {}
                () = deadline => {}
            }
        });
        // Whatever is left of connections is dropped with it.
        runtime.shutdown_background();
    }

    fn serve(&self, dealt: Dealt, open: mpsc::Sender<()>) {
        let Dealt { connection, scope, counted } = dealt;
        let served = match connection {
            Connection::Tcp(stream) => prepare(&stream).and_then(|()| {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                self.spawn(stream, scope, (counted, open));
                Ok(())
            }),
            Connection::Unix(stream) => tokio::net::UnixStream::from_std(stream).map(|stream| {
                self.spawn(stream, scope, (counted, open));
            }),
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection was gone before it was served");
        }
    }

    fn spawn<S>(&self, stream: S, scope: Scope, held: (Counted, mpsc::Sender<()>))
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let front = match scope {
            Scope::Everything => self.everything.clone(),
            Scope::Metrics => self.metrics_only.clone(),
        };
        let serving = self.http.serve_connection(TokioIo::new(stream), front).into_owned();
        let mut stopping = self.stopping.clone();
        tokio::spawn(async move {
            let _held = held;
            let mut serving = pin!(serving);
            let ended = tokio::select! {
                ended = serving.as_mut() => ended,
                () = stops(&mut stopping) => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            };
            if let Err(error) = ended {
                // Most often a client that went away in the middle of something.
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}

fn prepare(stream: &std::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE / 3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// One open connection in the metrics.
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Counted {
        metrics.connections.inc();
        Counted(metrics.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

#[cfg(test)]
mod tests;
