//! A running server: opens the directory, starts the loop, serves; and the way back.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tenure_replica::Replica;
use tenure_replica::effect::{Answer, Membership, Status};
use tenure_replica::input::{Consistency, Read};
use tenure_replica::wal::Origin;
use tenure_replica::watch::WatchConfig;
use tenure_state::ids::Nanos;
use tokio::sync::watch;

use crate::clock::Monotonic;
use crate::compactor;
use crate::config::{AutoCompaction, Config, ListenUrl};
use crate::driver::Driver;
use crate::edge::{self, Context, Limits, REPLY_BYTES_MAX};
use crate::handle::{Handle, ToLoop};
use crate::http::{Front, Http};
use crate::identity::Identity;
use crate::listen::{Bound, Serving};
use crate::metrics::Metrics;
use crate::storage::{Phase, Progress, Storage, StorageOptions, Tell, Timings};

/// How long a start may be silent before it says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// How old the shown size of the files may be.
const SIZES_EVERY: Duration = Duration::from_secs(1);
/// After this much of a stop, calls in flight are cut.
const DRAIN_MAX: Duration = Duration::from_millis(500);
/// A loop that is broken must not keep a stop waiting for ever.
const FIRST_LEADER_MAX: Duration = Duration::from_secs(30);

/// A server that serves until it is stopped.
pub struct Server {
    to_loop: crossbeam_channel::Sender<ToLoop>,
    stopping: watch::Sender<bool>,
    loop_thread: JoinHandle<()>,
    serving: Serving,
    /// Runs what the server does by itself beside serving.
    background: JoinHandle<()>,
    client_urls: Vec<ListenUrl>,
    metrics_urls: Vec<ListenUrl>,
}

impl Server {
    /// Starts a server and returns once it serves. Fails with a text for people; [`OpenError::is_damage`] of its
    /// cause tells a damaged directory.
    pub fn start(config: &Config) -> anyhow::Result<Server> {
        // Sockets first: a port that is taken is the most likely mistake, and the cheapest to find.
        let bound = Bound::bind(config)?;
        let (client_urls, metrics_urls) = (bound.client_urls().to_vec(), bound.metrics_urls().to_vec());
        let identity = Arc::new(config.identity());
        let metrics = Arc::new(Metrics::new(identity.member, config.quota_bytes, config.metrics_extensive));
        let (to_loop, inbox) = crossbeam_channel::unbounded();
        let handle = Handle::new(to_loop.clone());

        let (start, storage, boot) = open(config, &identity, &handle, &metrics)?;
        let clock = Monotonic::start();
        let replica = Replica::new(replica_config(config, boot), start, clock.now());
        let storage = Arc::new(storage);
        let driver = Driver {
            replica,
            storage: Arc::clone(&storage),
            clock,
            inbox,
            metrics: Arc::clone(&metrics),
            warning_apply: config.warning_apply,
            quota_bytes: config.quota_bytes,
            is_out_of_space: false,
        };
        let loop_thread = driver.spawn().context("the thread of the replica cannot be started")?;

        let (stopping, stopped) = watch::channel(false);
        let context = Context {
            handle: handle.clone(),
            identity,
            limits: Limits {
                max_request_bytes: config.max_request_bytes,
                max_txn_ops: config.max_txn_ops,
                reply_bytes_max: REPLY_BYTES_MAX,
                warning_unary: config.warning_unary,
                quota_bytes: config.quota_bytes,
            },
            stopping: stopped.clone(),
            storage: Arc::clone(&storage),
            slow: Arc::default(),
        };
        let http = Arc::new(Http {
            handle: handle.clone(),
            metrics: Arc::clone(&metrics),
            request_timeout: config.request_timeout(),
            cors: config.cors.clone(),
            host_whitelist: config.host_whitelist.clone(),
            started: Instant::now(),
        });
        let sizes = show_sizes(storage, Arc::clone(&metrics));
        let served = wait_to_serve(&handle)?;
        let background = background(handle, config.auto_compaction, sizes, stopped)?;
        let everything = Front::new(edge::routes(context), None, Arc::clone(&http));
        let serving = bound.serve(config, metrics, everything, Front::metrics_only(http))?;
        for url in &client_urls {
            let (revision, leases) = (served.revision.0, served.stats.leases);
            tracing::info!(%url, revision, leases, "ready to serve client requests");
        }
        Ok(Server { to_loop, stopping, loop_thread, serving, background, client_urls, metrics_urls })
    }

    /// Where clients connect, with the port that was drawn where 0 was asked for.
    pub fn client_urls(&self) -> &[ListenUrl] {
        &self.client_urls
    }

    pub fn metrics_urls(&self) -> &[ListenUrl] {
        &self.metrics_urls
    }

    /// Drains and stops: open streams are told `server stopped`, calls in flight get a moment, then the loop ends
    /// with everything durable. Takes less than a second unless the disk does.
    pub fn stop(self) {
        tracing::info!("stopping");
        self.serving.drain();
        self.stopping.send_replace(true);
        self.serving.finish(DRAIN_MAX);
        // Gone already if the loop ended by itself.
        let _ = self.to_loop.send(ToLoop::Stop);
        for thread in [self.loop_thread, self.background] {
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
        tracing::info!("stopped");
    }
}

/// Opens the directory and brings back what it holds.
fn open(
    config: &Config,
    identity: &Identity,
    handle: &Handle,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<(tenure_replica::Start, Storage, u64)> {
    let origin = Origin { cluster: identity.cluster, member: identity.member.0 };
    let told = handle.clone();
    let tell: Tell = Arc::new(move |input| told.tell(input));
    let mut announcer = Announcer::new();
    let (recovered, storage) = Storage::open(
        &config.data_dir,
        &storage_options(config),
        origin,
        tell,
        timings(metrics),
        &mut |progress| announcer.at(progress),
    )?;
    let first = Membership { voters: vec![identity.member.0], ..Membership::default() };
    let start = recovered.into_start(first);
    tracing::info!(
        checkpoint_revision = start.state.revision().0,
        checkpoint_leases = start.state.lease_count(),
        entries_to_replay = start.entries.len(),
        "opened {}",
        config.data_dir.display()
    );
    let boot = storage.identity().boot;
    Ok((start, storage, boot))
}

/// Waits for the first leader: who asks before there is one waits for it, so nothing is served before this returns.
fn wait_to_serve(handle: &Handle) -> anyhow::Result<Box<Status>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        // One after the other: all that was committed is applied when the first one is answered.
        let ready = async {
            handle.read(Read::Barrier, Consistency::Linearizable).await?;
            handle.read(Read::Status, Consistency::Serializable).await
        };
        match tokio::time::timeout(FIRST_LEADER_MAX, ready).await {
            Ok(Ok((_, Answer::Status(status)))) => Ok(status),
            Ok(Ok((_, other))) => unreachable!("a status is answered by a status, not by {other:?}"),
            Ok(Err(failure)) => Err(anyhow::anyhow!("the member does not get to serve: {failure}")),
            Err(_) => Err(anyhow::anyhow!("the member does not get to serve: its disk does not answer")),
        }
    })
}

/// Compacts by the rule until the server stops.
fn background(
    handle: Handle,
    rule: Option<AutoCompaction>,
    show_sizes: impl Future<Output = ()> + Send + 'static,
    mut stopping: watch::Receiver<bool>,
) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let run = move || {
        runtime.block_on(async {
            let compactor = async {
                match rule {
                    Some(rule) => compactor::run(handle, rule).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = compactor => {}
                () = show_sizes => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
    };
    Ok(std::thread::Builder::new().name("background".into()).spawn(run)?)
}

/// Keeps the metric of the checkpoint's size up to date.
async fn show_sizes(storage: Arc<Storage>, metrics: Arc<Metrics>) {
    let mut every = tokio::time::interval(SIZES_EVERY);
    loop {
        every.tick().await;
        metrics.store_bytes.set(i64::try_from(storage.sizes().db_bytes()).unwrap_or(i64::MAX));
    }
}

fn replica_config(config: &Config, incarnation: u64) -> tenure_replica::Config {
    tenure_replica::Config {
        member: config.identity().member,
        incarnation,
        seed: rand::random(),
        election_timeout: nanos(config.election_timeout),
        request_timeout: nanos(config.request_timeout()),
        grace: nanos(config.lease_grace),
        quota_bytes: config.quota_bytes,
        watch: WatchConfig {
            progress_interval: nanos(config.watch_progress_interval),
            ..WatchConfig::default()
        },
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn storage_options(config: &Config) -> StorageOptions {
    StorageOptions {
        segment_bytes: config.wal_segment_bytes,
        spare_count: config.wal_spare_segments,
        ballast_bytes: config.ballast_bytes,
        checkpoint_interval: config.checkpoint_interval,
        unsafe_no_fsync: config.no_fsync,
        ..StorageOptions::default()
    }
}

fn timings(metrics: &Arc<Metrics>) -> Timings {
    let observe = |pick: fn(&Metrics) -> &prometheus::Histogram| -> Box<dyn Fn(Duration) + Send + Sync> {
        let metrics = Arc::clone(metrics);
        Box::new(move |took| pick(&metrics).observe(took.as_secs_f64()))
    };
    let counted = Arc::clone(metrics);
    Timings {
        wal_write: observe(|metrics| &metrics.wal_write),
        wal_written: Box::new(move |bytes| counted.wal_written_bytes.add(bytes.cast_signed())),
        wal_fsync: observe(|metrics| &metrics.wal_fsync),
        commit: observe(|metrics| &metrics.commit),
        defragment: observe(|metrics| &metrics.defrag),
        snapshot: observe(|metrics| &metrics.snapshot_send),
    }
}

/// Tells people how far a long start is.
struct Announcer {
    last: Instant,
}

impl Announcer {
    fn new() -> Announcer {
        Announcer { last: Instant::now() }
    }

    fn at(&mut self, progress: Progress) {
        if self.last.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.last = Instant::now();
        let what = match progress.phase {
            Phase::Checkpoint => "reading the checkpoint",
            Phase::Log => "reading the log",
        };
        let percent = (progress.done * 100).checked_div(progress.total).unwrap_or(100);
        tracing::info!(done = progress.done, total = progress.total, "{what}: {percent} %");
    }
}
