//! Counters of gRPC calls, resolved before the first call: a call finds its method by one hash of its path and then
//! touches only relaxed atomics.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::{Metric, MetricType};
use prometheus::{Histogram, HistogramOpts, HistogramVec};
use rustc_hash::FxHasher;

use super::exposition::{Exposition, counter};

/// Who streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    ServerStream,
    BidiStream,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Kind::Unary => "unary",
            Kind::ServerStream => "server_stream",
            Kind::BidiStream => "bidi_stream",
        }
    }
}

/// Every method that is served: path, kind. A call to anything else is not counted, so that nobody can grow the
/// metrics by inventing names.
pub(crate) const METHODS: [(&str, Kind); 51] = {
    use Kind::{BidiStream, ServerStream, Unary};
    [
        ("/etcdserverpb.KV/Range", Unary),
        ("/etcdserverpb.KV/RangeStream", ServerStream),
        ("/etcdserverpb.KV/Put", Unary),
        ("/etcdserverpb.KV/DeleteRange", Unary),
        ("/etcdserverpb.KV/Txn", Unary),
        ("/etcdserverpb.KV/Compact", Unary),
        ("/etcdserverpb.Watch/Watch", BidiStream),
        ("/etcdserverpb.Lease/LeaseGrant", Unary),
        ("/etcdserverpb.Lease/LeaseRevoke", Unary),
        ("/etcdserverpb.Lease/LeaseKeepAlive", BidiStream),
        ("/etcdserverpb.Lease/LeaseTimeToLive", Unary),
        ("/etcdserverpb.Lease/LeaseLeases", Unary),
        ("/etcdserverpb.Cluster/MemberAdd", Unary),
        ("/etcdserverpb.Cluster/MemberRemove", Unary),
        ("/etcdserverpb.Cluster/MemberUpdate", Unary),
        ("/etcdserverpb.Cluster/MemberList", Unary),
        ("/etcdserverpb.Cluster/MemberPromote", Unary),
        ("/etcdserverpb.Maintenance/Alarm", Unary),
        ("/etcdserverpb.Maintenance/Status", Unary),
        ("/etcdserverpb.Maintenance/Defragment", Unary),
        ("/etcdserverpb.Maintenance/Hash", Unary),
        ("/etcdserverpb.Maintenance/HashKV", Unary),
        ("/etcdserverpb.Maintenance/Snapshot", ServerStream),
        ("/etcdserverpb.Maintenance/MoveLeader", Unary),
        ("/etcdserverpb.Maintenance/Downgrade", Unary),
        ("/etcdserverpb.Auth/AuthEnable", Unary),
        ("/etcdserverpb.Auth/AuthDisable", Unary),
        ("/etcdserverpb.Auth/AuthStatus", Unary),
        ("/etcdserverpb.Auth/Authenticate", Unary),
        ("/etcdserverpb.Auth/UserAdd", Unary),
        ("/etcdserverpb.Auth/UserGet", Unary),
        ("/etcdserverpb.Auth/UserList", Unary),
        ("/etcdserverpb.Auth/UserDelete", Unary),
        ("/etcdserverpb.Auth/UserChangePassword", Unary),
        ("/etcdserverpb.Auth/UserGrantRole", Unary),
        ("/etcdserverpb.Auth/UserRevokeRole", Unary),
        ("/etcdserverpb.Auth/RoleAdd", Unary),
        ("/etcdserverpb.Auth/RoleGet", Unary),
        ("/etcdserverpb.Auth/RoleList", Unary),
        ("/etcdserverpb.Auth/RoleDelete", Unary),
        ("/etcdserverpb.Auth/RoleGrantPermission", Unary),
        ("/etcdserverpb.Auth/RoleRevokePermission", Unary),
        ("/v3lockpb.Lock/Lock", Unary),
        ("/v3lockpb.Lock/Unlock", Unary),
        ("/v3electionpb.Election/Campaign", Unary),
        ("/v3electionpb.Election/Proclaim", Unary),
        ("/v3electionpb.Election/Leader", Unary),
        ("/v3electionpb.Election/Observe", ServerStream),
        ("/v3electionpb.Election/Resign", Unary),
        ("/grpc.health.v1.Health/Check", Unary),
        ("/grpc.health.v1.Health/Watch", ServerStream),
    ]
};

/// gRPC's codes by their numbers.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
pub(crate) const CANCELED: u16 = 1;
pub(crate) const UNKNOWN: u16 = 2;

/// How many versions of clients are told apart; the rest is "other". What a client says of itself must not grow
/// the metrics without end.
const CLIENT_VERSIONS_MAX: usize = 15;
const CLIENT_VERSION_LEN_MAX: usize = 32;

/// Counts the calls of one server.
pub(crate) struct GrpcMetrics {
    by_path: HashMap<&'static str, usize, BuildHasherDefault<FxHasher>>,
    methods: Vec<Method>,
    durations: HistogramVec,
    ranges: HistogramVec,
    hash: Histogram,
    hash_rev: Histogram,
    handling: Option<HistogramVec>,
    client_versions: [ClientVersion; CLIENT_VERSIONS_MAX],
    /// Callers that said no version, and those with one version too many: unary, stream.
    client_unknown: [AtomicU64; 2],
    client_other: [AtomicU64; 2],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// On cache lines of its own, so that two cores that count different methods do not fight over one.
#[repr(align(128))]
pub(crate) struct Method {
    path: &'static str,
    pub(crate) kind: Kind,
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
    received: AtomicU64,
    sent: AtomicU64,
    /// Failed, succeeded.
    durations: Option<[Histogram; 2]>,
    /// The same under the name that etcd gives to this one operation.
    operation: Option<[Histogram; 2]>,
    handling: Option<Histogram>,
}

#[derive(Default)]
struct ClientVersion {
    name: OnceLock<Box<str>>,
    calls: [AtomicU64; 2],
}

impl GrpcMetrics {
    pub(super) fn new(extensive: bool) -> GrpcMetrics {
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "etcd_server_request_duration_seconds",
                "How long requests take, by their type.",
            )
            .buckets(super::doubling(0.0001, 18)),
            &["type", "success"],
        )
        .expect("names and buckets are valid");
        let ranges = HistogramVec::new(
            HistogramOpts::new("etcd_server_range_duration_seconds", "How long range reads take.")
                .buckets(super::doubling(0.0001, 20)),
            &["success"],
        )
        .expect("names and buckets are valid");
        let histogram = |name: &str, help: &str| {
            let options = HistogramOpts::new(name, help).buckets(super::doubling(0.01, 15));
            Histogram::with_opts(options).expect("names and buckets are valid")
        };
        let hash = histogram("etcd_mvcc_hash_duration_seconds", "How long hashing the whole state takes.");
        let hash_rev = histogram(
            "etcd_mvcc_hash_rev_duration_seconds",
            "How long hashing the records up to a revision takes.",
        );
        let handling = extensive.then(|| {
            HistogramVec::new(
                HistogramOpts::new("grpc_server_handling_seconds", "How long calls take, streams in whole.")
                    .buckets(super::doubling(0.0001, 18)),
                &["grpc_service", "grpc_method", "grpc_type"],
            )
            .expect("names and buckets are valid")
        });
        let methods: Vec<Method> = METHODS
            .iter()
            .map(|(path, kind)| {
                let (service, method) = split(path);
                let is_request =
                    *kind == Kind::Unary && matches!(service, "etcdserverpb.KV" | "etcdserverpb.Lease");
                Method {
                    path,
                    kind: *kind,
                    started: AtomicU64::new(0),
                    handled: std::array::from_fn(|_| AtomicU64::new(0)),
                    received: AtomicU64::new(0),
                    sent: AtomicU64::new(0),
                    durations: is_request.then(|| {
                        let name = snake(method);
                        ["false", "true"]
                            .map(|success| durations.with_label_values(&[name.as_str(), success]))
                    }),
                    operation: match *path {
                        "/etcdserverpb.KV/Range" => {
                            Some(["false", "true"].map(|success| ranges.with_label_values(&[success])))
                        }
                        "/etcdserverpb.Maintenance/Hash" => Some([hash.clone(), hash.clone()]),
                        "/etcdserverpb.Maintenance/HashKV" => Some([hash_rev.clone(), hash_rev.clone()]),
                        _ => None,
                    },
                    handling: handling
                        .as_ref()
                        .map(|handling| handling.with_label_values(&[service, method, kind.label()])),
                }
            })
            .collect();
        GrpcMetrics {
            by_path: METHODS.iter().enumerate().map(|(i, (path, _))| (*path, i)).collect(),
            methods,
            durations,
            ranges,
            hash,
            hash_rev,
            handling,
            client_versions: std::array::from_fn(|_| ClientVersion::default()),
            client_unknown: Default::default(),
            client_other: Default::default(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// The method at `path`, to be given to the other functions.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// A call starts; `client` is what it says is its version.
    pub(crate) fn started(&self, method: usize, client: Option<&[u8]>) {
        let method = &self.methods[method];
        method.started.fetch_add(1, Relaxed);
        self.client_calls(client)[usize::from(method.kind != Kind::Unary)].fetch_add(1, Relaxed);
    }

    /// A call is over.
    pub(crate) fn handled(&self, method: usize, code: u16, took: Duration) {
        let method = &self.methods[method];
        let code = if usize::from(code) < CODES.len() { code } else { UNKNOWN };
        method.handled[usize::from(code)].fetch_add(1, Relaxed);
        if let Some(durations) = &method.durations {
            durations[usize::from(code == 0)].observe(took.as_secs_f64());
        }
        if let Some(operation) = &method.operation {
            operation[usize::from(code == 0)].observe(took.as_secs_f64());
        }
        if let Some(handling) = &method.handling {
            handling.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn received(&self, method: usize, messages: u64, bytes: u64) {
        self.methods[method].received.fetch_add(messages, Relaxed);
        self.received_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn sent(&self, method: usize, messages: u64, bytes: u64) {
        self.methods[method].sent.fetch_add(messages, Relaxed);
        self.sent_bytes.fetch_add(bytes, Relaxed);
    }

    /// Calls of this method that have started and are not over.
    fn in_flight(&self, path: &str) -> f64 {
        let method = &self.methods[self.by_path[path]];
        // In this order, so that a call that ends meanwhile does not make it negative.
        let over: u64 = method.handled.iter().map(|count| count.load(Relaxed)).sum();
        method.started.load(Relaxed).saturating_sub(over) as f64
    }

    fn client_calls(&self, version: Option<&[u8]>) -> &[AtomicU64; 2] {
        let Some(version) = version.filter(|version| !version.is_empty()) else {
            return &self.client_unknown;
        };
        for known in &self.client_versions {
            match known.name.get() {
                Some(name) if name.as_bytes() == version => return &known.calls,
                Some(_) => {}
                None => {
                    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+_".contains(byte);
                    if version.len() > CLIENT_VERSION_LEN_MAX || !version.iter().all(plain) {
                        return &self.client_other;
                    }
                    // Two calls may race for the slot; whoever loses looks at what won, and goes on if it differs.
                    let name = known.name.get_or_init(|| String::from_utf8_lossy(version).into());
                    if name.as_bytes() == version {
                        return &known.calls;
                    }
                }
            }
        }
        &self.client_other
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let labelled = |method: &Method, value: u64| {
            let (service, name) = split(method.path);
            let labels =
                [("grpc_method", name), ("grpc_service", service), ("grpc_type", method.kind.label())];
            counter(&labels, value as f64)
        };
        let all = |value: fn(&Method) -> &AtomicU64| -> Vec<Metric> {
            self.methods.iter().map(|method| labelled(method, value(method).load(Relaxed))).collect()
        };
        let counters = MetricType::COUNTER;
        out.samples("grpc_server_started_total", "Calls that started.", counters, all(|m| &m.started));
        out.samples("grpc_server_msg_received_total", "Messages received.", counters, all(|m| &m.received));
        out.samples("grpc_server_msg_sent_total", "Messages sent.", counters, all(|m| &m.sent));
        let handled = self.methods.iter().flat_map(|method| {
            let (service, name) = split(method.path);
            CODES.iter().zip(&method.handled).map(move |(code, count)| {
                let labels = [
                    ("grpc_code", *code),
                    ("grpc_method", name),
                    ("grpc_service", service),
                    ("grpc_type", method.kind.label()),
                ];
                counter(&labels, count.load(Relaxed) as f64)
            })
        });
        out.samples(
            "grpc_server_handled_total",
            "Calls that are over, by their code.",
            counters,
            handled.collect(),
        );

        let named = self.client_versions.iter().filter_map(|v| v.name.get().map(|name| (&**name, &v.calls)));
        let calls = named.chain([("unknown", &self.client_unknown), ("other", &self.client_other)]);
        let requests = calls.flat_map(|(version, calls)| {
            ["unary", "stream"].into_iter().zip(calls).filter_map(move |(kind, calls)| {
                let calls = calls.load(Relaxed);
                let labels = [("client_api_version", version), ("type", kind)];
                (calls > 0).then(|| counter(&labels, calls as f64))
            })
        });
        out.samples(
            "etcd_server_client_requests_total",
            "Calls of clients, by what they say is their version.",
            counters,
            requests.collect(),
        );
        out.counter(
            "etcd_network_client_grpc_received_bytes_total",
            "Bytes of the messages received from clients.",
            self.received_bytes.load(Relaxed),
        );
        out.counter(
            "etcd_network_client_grpc_sent_bytes_total",
            "Bytes of the messages sent to clients.",
            self.sent_bytes.load(Relaxed),
        );
        out.gauge(
            "etcd_disk_defrag_inflight",
            "Defragmentations of the checkpoint store that run.",
            self.in_flight("/etcdserverpb.Maintenance/Defragment"),
        );
        out.gauge(
            "etcd_mvcc_db_open_read_transactions",
            "Reads of the checkpoint store that are open: snapshots on their way to clients.",
            self.in_flight("/etcdserverpb.Maintenance/Snapshot"),
        );
        for collector in [&self.durations as &dyn Collector, &self.ranges, &self.hash, &self.hash_rev] {
            out.extend(collector.collect());
        }
        if let Some(handling) = &self.handling {
            out.extend(handling.collect());
        }
    }
}

/// "/package.Service/Method" in its two parts.
fn split(path: &'static str) -> (&'static str, &'static str) {
    path[1..].split_once('/').expect("every path in the table has a service and a method")
}

/// "DeleteRange" as "delete_range".
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (i, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
