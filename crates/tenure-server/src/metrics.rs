//! What the server counts and measures, under the names that etcd's dashboards and alerts ask for, and a few own ones.
//!
//! Two sources meet at a scrape. What happens outside the replica (disks, sockets, requests) is observed where it
//! happens, through the handles in [`Metrics`]. What the replica knows is not counted twice: a scrape asks it for
//! its [`Status`] and writes that down. `docs/metrics.md` lists every family, and etcd's that are left out.

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use tenure_replica::effect::Status;
use tenure_state::ids::MemberId;

use self::exposition::Exposition;
use self::grpc::GrpcMetrics;

mod exposition;
pub(crate) mod grpc;
mod process;
mod status;

/// The handles to count with. One per server, never global: a process may run several servers in its tests.
pub struct Metrics {
    registry: Registry,
    member: MemberId,
    quota_bytes: u64,

    /// One fsync of the write-ahead log.
    pub(crate) wal_fsync: Histogram,
    /// One write to the write-ahead log, without its fsync.
    pub(crate) wal_write: Histogram,
    /// Bytes written to the write-ahead log. A gauge, because etcd calls it one.
    pub(crate) wal_written_bytes: IntGauge,
    /// One commit of the checkpoint store.
    pub(crate) commit: Histogram,
    /// One defragmentation of the checkpoint store.
    pub(crate) defrag: Histogram,
    /// One snapshot sent to a client (`Maintenance.Snapshot`).
    pub(crate) snapshot_send: Histogram,
    /// Size of the checkpoint store's file, as etcd's `dbSize`.
    pub(crate) store_bytes: IntGauge,

    /// What one turn of the loop takes.
    pub(crate) loop_turn: Histogram,
    /// Inputs that one turn took from the queue.
    pub(crate) loop_inputs: Histogram,
    /// Turns that applied entries.
    pub(crate) apply: Histogram,
    pub(crate) slow_applies: IntCounter,

    pub(crate) connections: IntGauge,
    pub(crate) connections_accepted: IntCounter,
    pub(crate) accept_errors: IntCounter,

    pub(crate) health_success: IntCounter,
    pub(crate) health_failures: IntCounter,
    /// By labels `type` (livez, readyz) and `name`.
    pub(crate) healthcheck: GaugeVec,
    /// By labels `type`, `name` and `status`.
    pub(crate) healthchecks: IntCounterVec,

    pub(crate) grpc: GrpcMetrics,
}

impl Metrics {
    /// `extensive` adds the histogram of how long each gRPC method takes.
    pub(crate) fn new(member: MemberId, quota_bytes: u64, extensive: bool) -> Metrics {
        let new = Register(Registry::new());
        Metrics {
            member,
            quota_bytes,
            wal_fsync: new.histogram(
                "etcd_disk_wal_fsync_duration_seconds",
                "How long an fsync of the write-ahead log takes.",
                doubling(0.001 / 16.0, 18),
            ),
            wal_write: new.histogram(
                "etcd_disk_wal_write_duration_seconds",
                "How long a write to the write-ahead log takes, without its fsync.",
                doubling(0.001 / 64.0, 20),
            ),
            wal_written_bytes: new
                .gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the write-ahead log."),
            commit: new.histogram(
                "etcd_disk_backend_commit_duration_seconds",
                "How long a synced commit of the checkpoint store takes.",
                doubling(0.001 / 4.0, 16),
            ),
            defrag: new.histogram(
                "etcd_disk_backend_defrag_duration_seconds",
                "How long a defragmentation of the checkpoint store takes.",
                doubling(0.1, 13),
            ),
            snapshot_send: new.histogram(
                "etcd_disk_backend_snapshot_duration_seconds",
                "How long sending a snapshot to a client takes.",
                doubling(0.01, 17),
            ),
            store_bytes: new.gauge(
                "etcd_mvcc_db_total_size_in_bytes",
                "Size of the checkpoint store's file, free pages included.",
            ),
            loop_turn: new.histogram(
                "tenure_loop_turn_seconds",
                "How long one turn of the loop takes: inputs, consensus, apply and effects.",
                doubling(0.000_004, 20),
            ),
            loop_inputs: new.histogram(
                "tenure_loop_turn_inputs",
                "How many inputs one turn of the loop took.",
                doubling(1.0, 14),
            ),
            // Entries are applied a turn at a time, so that is what is measured.
            apply: new
                .histograms(
                    "etcd_server_apply_duration_seconds",
                    "How long a turn takes that applies what was committed.",
                    doubling(0.0001, 20),
                    &["version", "op", "success"],
                )
                .with_label_values(&["v3", "Turn", "true"]),
            slow_applies: new.counter(
                "etcd_server_slow_apply_total",
                "Turns that took longer than --warning-apply-duration to apply what was committed.",
            ),
            connections: new.gauge("tenure_connections", "Connections of clients that are open."),
            connections_accepted: new
                .counter("tenure_connections_accepted_total", "Connections of clients that were accepted."),
            accept_errors: new.counter(
                "tenure_accept_errors_total",
                "Times that a connection was not accepted, most often because file descriptors ran out.",
            ),
            health_success: new.counter(
                "etcd_server_health_success",
                "Requests for the health that were answered with healthy.",
            ),
            health_failures: new.counter(
                "etcd_server_health_failures",
                "Requests for the health that were answered with unhealthy.",
            ),
            healthcheck: new.gauges(
                "etcd_server_healthcheck",
                "1 if the check passed the last time, else 0.",
                &["type", "name"],
            ),
            healthchecks: new.counters(
                "etcd_server_healthchecks_total",
                "How often each check came out how.",
                &["type", "name", "status"],
            ),
            grpc: GrpcMetrics::new(extensive),
            registry: new.0,
        }
    }

    /// Everything, in the text format that Prometheus scrapes. Without a `status` (the replica gave no answer in
    /// time) only what is known outside of it, and `tenure_replica_answers` says so.
    pub(crate) fn render(&self, status: Option<&Status>) -> String {
        let mut out = Exposition::from(self.registry.gather());
        self.grpc.expose(&mut out);
        process::expose(&mut out);
        status::expose_constants(&mut out, self.member, self.quota_bytes);
        out.gauge(
            "tenure_replica_answers",
            "1 if the replica answered this scrape in time; without it, its families are missing.",
            f64::from(u8::from(status.is_some())),
        );
        if let Some(status) = status {
            status::expose(&mut out, status);
        }
        let families = out.finish();
        TextEncoder::new().encode_to_string(&families).expect("every family has a name and a sample")
    }
}

/// Makes a metric and registers it; neither can fail, because names are written here and nowhere twice.
struct Register(Registry);

impl Register {
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("names, labels and buckets are valid");
        self.0.register(Box::new(collector.clone())).expect("every name is registered once");
        collector
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
    }

    fn histograms(&self, name: &str, help: &str, buckets: Vec<f64>, labels: &[&str]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
    }
}

/// Bounds that double. Where etcd starts at a millisecond, ours start below at the same steps, so that its
/// queries still find its bounds and fast disks are told apart.
fn doubling(first: f64, count: usize) -> Vec<f64> {
    prometheus::exponential_buckets(first, 2.0, count).expect("the first bound is positive")
}

#[cfg(test)]
mod tests;
