//! Every flag, once: how it is called, what it takes, what it does here.

/// One flag. Its environment variable and its key in the file follow from its name.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// As one would write it; empty for "not set".
    pub(super) default: &'static str,
    pub(super) group: Group,
    pub(super) standing: Standing,
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Bool,
    /// From, to.
    Int(i64, i64),
    /// The shortest.
    Duration(&'static str),
    Text,
    Choice(&'static [&'static str]),
    /// Comma-separated.
    List,
    /// Comma-separated.
    Urls,
}

/// What a flag does on Tenure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    Works,
    /// Accepted; what it would change does not exist here, and nobody is harmed by that. Says why.
    Ignored(&'static str),
    /// Accepted only with its default: whoever sets it counts on something that does not exist here. Says why.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Member,
    Leases,
    Limits,
    Compaction,
    Storage,
    Network,
    Logging,
    Monitoring,
    Cluster,
    Unsafe,
    Features,
    Security,
    Auth,
    Discovery,
    Old,
}

impl Group {
    /// In the order in which people are shown them.
    pub(super) const ALL: [(Group, &'static str); 15] = [
        (Group::Member, "Member"),
        (Group::Leases, "Leases"),
        (Group::Limits, "Limits"),
        (Group::Compaction, "History"),
        (Group::Storage, "Storage"),
        (Group::Network, "Connections"),
        (Group::Logging, "Logging"),
        (Group::Monitoring, "Monitoring"),
        (Group::Cluster, "Cluster"),
        (Group::Unsafe, "Unsafe"),
        (Group::Features, "Details of etcd"),
        (Group::Security, "Security"),
        (Group::Auth, "Auth"),
        (Group::Discovery, "Discovery"),
        (Group::Old, "Flags of etcd 3.5 and older"),
    ];
}

pub(super) fn find(name: &str) -> Option<usize> {
    FLAGS.iter().position(|flag| flag.name == name)
}

use Group::{
    Auth, Cluster, Compaction, Discovery, Features, Leases, Limits, Logging, Member, Monitoring, Network,
    Old, Security, Storage, Unsafe,
};
use Kind::{Bool, Choice, Duration, Int, List, Text, Urls};
use Standing::{Ignored, Refused, Works};

const NO_TLS: &str = "TLS is not there yet; terminate it in front of the server";
const NO_AUTH: &str = "users, roles and tokens are not there yet";
const NO_DISCOVERY: &str = "a cluster has one member for now, so there is nothing to discover";
const NO_TRACING: &str = "there is no distributed tracing";
const ONE_MEMBER: &str = "a cluster has one member for now";
const OF_BBOLT: &str = "a setting of bbolt, which is not used here";
const OF_PROXY: &str = "a setting of etcd's v2 proxy, which was removed";

const fn flag(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    group: Group,
    standing: Standing,
    help: &'static str,
) -> Flag {
    Flag { name, kind, default, group, standing, help }
}

#[rustfmt::skip]
pub(super) const FLAGS: &[Flag] = &[
    flag("name", Text, "default", Member, Works, "Name of this member."),
    flag("data-dir", Text, "", Member, Works, "Where everything is kept; NAME.tenure unless given."),
    flag("listen-client-urls", Urls, "http://localhost:2379", Member, Works, "Where clients connect: http://IP:PORT, http://localhost:PORT, unix://PATH."),
    flag("advertise-client-urls", Urls, "", Member, Works, "What clients are told to connect to; the URLs that are listened on unless given."),
    flag("config-file", Text, "", Member, Works, "Read everything from this YAML file; flags and environment are then not looked at, and named in a warning."),

    flag("lease-grace", Duration("0s"), "750ms", Leases, Works, "What every lease is given at least after a start or a change of leader, so that its holder finds the server."),
    flag("heartbeat-interval", Int(1, 10_000), "100", Leases, Ignored("one member sends no heartbeats"), "Milliseconds between heartbeats."),
    flag("election-timeout", Int(5, 50_000), "1000", Leases, Works, "Milliseconds without a leader until a new one is elected; five heartbeats or more."),
    flag("initial-election-tick-advance", Bool, "true", Leases, Ignored("one member elects itself at once"), "Shorten the first election."),

    flag("quota-backend-bytes", Int(i64::MIN, i64::MAX), "0", Limits, Works, "The most logical bytes in the store; 0 stands for 2 GiB, a negative number for no limit."),
    flag("max-request-bytes", Int(1024, 1 << 30), "1572864", Limits, Works, "The largest request."),
    flag("max-txn-ops", Int(1, 1_000_000), "128", Limits, Works, "The most operations in a transaction."),
    flag("max-concurrent-streams", Int(1, u32::MAX as i64), "4294967295", Limits, Works, "The most calls and streams open on one connection."),

    flag("auto-compaction-mode", Choice(&["periodic", "revision"]), "periodic", Compaction, Works, "What --auto-compaction-retention counts: time or revisions."),
    flag("auto-compaction-retention", Text, "0", Compaction, Works, "How much history to keep: 10m or 1h (a bare number: hours), or revisions; 0 keeps all."),
    flag("watch-progress-notify-interval", Duration("100ms"), "10m", Compaction, Works, "How often a quiet watch that asked for it is told the revision."),

    flag("checkpoint-interval", Duration("100ms"), "5s", Storage, Works, "How often the checkpoint is written, behind which the log is cut."),
    flag("snapshot-count", Int(1, i64::MAX), "10000", Storage, Ignored("the checkpoint is written by time (--checkpoint-interval) and by size"), "Entries between snapshots."),
    flag("wal-segment-bytes", Int(1 << 20, 1 << 32), "67108864", Storage, Works, "Size of one file of the write-ahead log."),
    flag("wal-spare-segments", Int(0, 64), "2", Storage, Works, "Log files kept ready, filled with zeros, for a disk that is full."),
    flag("ballast-bytes", Int(0, 1 << 40), "67108864", Storage, Works, "What is kept occupied, to be given up for the checkpoint when the disk is full; 0: nothing."),
    flag("wal-dir", Text, "", Storage, Refused("the log is kept in the data directory; mount the faster disk there"), "A directory of its own for the write-ahead log."),

    flag("runtimes", Int(0, 64), "0", Network, Works, "Threads that serve connections; 0: one for each core, at most 8."),
    flag("grpc-keepalive-interval", Duration("0s"), "2h", Network, Works, "How often a silent connection is asked whether it lives; 0: never."),
    flag("grpc-keepalive-timeout", Duration("1ms"), "20s", Network, Works, "How long it may take to answer."),
    flag("grpc-keepalive-min-time", Duration("0s"), "5s", Network, Ignored("clients are not cut off for asking too often"), "How often clients may ask whether the server lives."),
    flag("socket-reuse-port", Bool, "false", Network, Works, "Let other processes listen on the same port."),
    flag("socket-reuse-address", Bool, "false", Network, Ignored("it is always on"), "Listen on a port that was just closed."),
    flag("host-whitelist", List, "*", Network, Works, "Names under which HTTP may be asked."),
    flag("cors", List, "*", Network, Works, "Origins whose pages may call from a browser."),
    flag("enable-grpc-gateway", Bool, "true", Network, Ignored("the JSON gateway is not there yet: /v3/ answers 404"), "Serve the API as JSON under /v3/."),
    flag("listen-client-http-urls", Urls, "", Network, Refused("HTTP is served on the client URLs"), "Separate URLs for HTTP."),

    flag("log-level", Choice(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]), "info", Logging, Works, "What is worth a line."),
    flag("log-format", Choice(&["text", "console", "json"]), "text", Logging, Works, "For people or for machines; console is text."),
    flag("log-outputs", List, "default", Logging, Works, "default or stderr, stdout, or paths of files."),
    flag("warning-unary-request-duration", Duration("0s"), "300ms", Logging, Works, "Log requests that take longer, one of a method in a second."),
    flag("warning-apply-duration", Duration("0s"), "100ms", Logging, Works, "Log applying that takes longer."),
    flag("logger", Choice(&["zap"]), "zap", Logging, Ignored("there is one logger"), "Which logger."),
    flag("enable-log-rotation", Bool, "false", Logging, Refused("files are not rotated; leave that to logrotate, or log to stderr"), "Rotate log files."),
    flag("log-rotation-config-json", Text, "", Logging, Ignored("files are not rotated"), "How to rotate them."),

    flag("listen-metrics-urls", Urls, "", Monitoring, Works, "More URLs, which serve only metrics and health."),
    flag("metrics", Choice(&["basic", "extensive"]), "basic", Monitoring, Works, "extensive adds how long each gRPC method takes."),
    flag("enable-pprof", Bool, "false", Monitoring, Ignored("there are no Go profiles"), "Profiles under /debug/pprof/."),
    flag("enable-distributed-tracing", Bool, "false", Monitoring, Refused(NO_TRACING), "Send traces."),
    flag("distributed-tracing-address", Text, "localhost:4317", Monitoring, Ignored(NO_TRACING), "Where to."),
    flag("distributed-tracing-service-name", Text, "etcd", Monitoring, Ignored(NO_TRACING), "As whom."),
    flag("distributed-tracing-instance-id", Text, "", Monitoring, Ignored(NO_TRACING), "As which one."),
    flag("distributed-tracing-sampling-rate", Int(0, 1_000_000), "0", Monitoring, Ignored(NO_TRACING), "How many of a million."),

    flag("initial-cluster", Text, "", Cluster, Works, "NAME=PEER_URL of the members; one member for now."),
    flag("initial-cluster-state", Choice(&["new", "existing"]), "new", Cluster, Works, "existing starts only on a data directory that is there."),
    flag("initial-cluster-token", Text, "etcd-cluster", Cluster, Works, "Makes the ids of clusters with the same URLs differ."),
    flag("initial-advertise-peer-urls", Urls, "http://localhost:2380", Cluster, Works, "How members will reach this one; part of its id."),
    flag("listen-peer-urls", Urls, "http://localhost:2380", Cluster, Ignored("nothing listens for members while there is one"), "Where members connect."),
    flag("strict-reconfig-check", Bool, "true", Cluster, Ignored(ONE_MEMBER), "Refuse changes of members that would lose the majority."),
    flag("pre-vote", Bool, "true", Cluster, Ignored("it is always on"), "Ask before an election whether it can be won."),
    flag("max-learners", Int(1, 100), "1", Cluster, Ignored(ONE_MEMBER), "The most learners."),
    flag("raft-read-timeout", Duration("0s"), "5s", Cluster, Ignored(ONE_MEMBER), "Of connections between members."),
    flag("raft-write-timeout", Duration("0s"), "5s", Cluster, Ignored(ONE_MEMBER), "Of connections between members."),
    flag("snapshot-catchup-entries", Int(0, i64::MAX), "5000", Cluster, Ignored(ONE_MEMBER), "Entries kept for slow members."),
    flag("corrupt-check-time", Duration("0s"), "0s", Cluster, Ignored("one member has nobody to compare with"), "How often members compare their data."),
    flag("compact-hash-check-time", Duration("0s"), "1m", Cluster, Ignored("one member has nobody to compare with"), "How often members compare compacted data."),
    flag("downgrade-check-time", Duration("0s"), "5s", Cluster, Ignored(ONE_MEMBER), "How often a downgrade is looked at."),

    flag("unsafe-no-fsync", Bool, "false", Unsafe, Works, "Do not wait for the disk: a crash loses what was acknowledged."),
    flag("force-new-cluster", Bool, "false", Unsafe, Refused("a cluster has one member for now, so there is no lost majority to leave behind"), "Start as a cluster of one."),

    flag("feature-gates", List, "", Features, Works, "etcd's NAME=true|false; known ones change nothing."),
    flag("max-wals", Int(0, i64::MAX), "5", Features, Ignored("files of the log are reused as soon as the checkpoint allows"), "Files of the log to keep."),
    flag("memory-mlock", Bool, "false", Features, Refused("memory is not locked"), "Keep all memory in RAM."),
    flag("backend-bbolt-freelist-type", Choice(&["array", "map"]), "map", Features, Ignored(OF_BBOLT), "How free pages are kept."),
    flag("backend-batch-interval", Duration("0s"), "0s", Features, Ignored(OF_BBOLT), "The longest time between commits."),
    flag("backend-batch-limit", Int(0, i64::MAX), "0", Features, Ignored(OF_BBOLT), "The most operations between commits."),
    flag("compaction-batch-limit", Int(1, i64::MAX), "1000", Features, Ignored("compaction runs in small steps by itself"), "Revisions removed in one step."),
    flag("compaction-sleep-interval", Duration("0s"), "10ms", Features, Ignored("compaction runs in small steps by itself"), "Rest between the steps."),
    flag("bootstrap-defrag-threshold-megabytes", Int(0, i64::MAX), "0", Features, Ignored("the store is not defragmented at the start"), "Defragment at the start if that frees so much."),

    flag("cert-file", Text, "", Security, Refused(NO_TLS), "Certificate for clients."),
    flag("key-file", Text, "", Security, Refused(NO_TLS), "Its key."),
    flag("client-cert-auth", Bool, "false", Security, Refused(NO_TLS), "Ask clients for certificates."),
    flag("trusted-ca-file", Text, "", Security, Refused(NO_TLS), "Who may sign them."),
    flag("auto-tls", Bool, "false", Security, Refused(NO_TLS), "Make a certificate at the start."),
    flag("client-cert-file", Text, "", Security, Refused(NO_TLS), "Certificate as a client."),
    flag("client-key-file", Text, "", Security, Refused(NO_TLS), "Its key."),
    flag("client-crl-file", Text, "", Security, Refused(NO_TLS), "Revoked certificates."),
    flag("client-cert-allowed-hostname", List, "", Security, Refused(NO_TLS), "Names that clients' certificates must have."),
    flag("peer-cert-file", Text, "", Security, Refused(NO_TLS), "Certificate for members."),
    flag("peer-key-file", Text, "", Security, Refused(NO_TLS), "Its key."),
    flag("peer-client-cert-auth", Bool, "false", Security, Refused(NO_TLS), "Ask members for certificates."),
    flag("peer-trusted-ca-file", Text, "", Security, Refused(NO_TLS), "Who may sign them."),
    flag("peer-auto-tls", Bool, "false", Security, Refused(NO_TLS), "Make a certificate at the start."),
    flag("peer-client-cert-file", Text, "", Security, Refused(NO_TLS), "Certificate towards members."),
    flag("peer-client-key-file", Text, "", Security, Refused(NO_TLS), "Its key."),
    flag("peer-cert-allowed-cn", List, "", Security, Refused(NO_TLS), "Names that members' certificates must have."),
    flag("peer-cert-allowed-hostname", List, "", Security, Refused(NO_TLS), "Host names that members' certificates must have."),
    flag("peer-crl-file", Text, "", Security, Refused(NO_TLS), "Revoked certificates."),
    flag("peer-skip-client-san-verification", Bool, "false", Security, Refused(NO_TLS), "Do not look at members' host names."),
    flag("self-signed-cert-validity", Int(1, 1000), "1", Security, Ignored(NO_TLS), "Years that an own certificate is good for."),
    flag("cipher-suites", List, "", Security, Refused(NO_TLS), "Allowed ciphers."),
    flag("tls-min-version", Choice(&["TLS1.2", "TLS1.3"]), "TLS1.2", Security, Refused(NO_TLS), "The oldest version."),
    flag("tls-max-version", Choice(&["", "TLS1.2", "TLS1.3"]), "", Security, Refused(NO_TLS), "The newest version."),

    flag("auth-token", Text, "simple", Auth, Refused(NO_AUTH), "Kind of token."),
    flag("bcrypt-cost", Int(4, 31), "10", Auth, Ignored(NO_AUTH), "Cost of hashing passwords."),
    flag("auth-token-ttl", Int(1, i64::MAX), "300", Auth, Ignored(NO_AUTH), "Seconds that a simple token lives."),

    flag("discovery-token", Text, "", Discovery, Refused(NO_DISCOVERY), "Token of the cluster to find."),
    flag("discovery-endpoints", List, "", Discovery, Refused(NO_DISCOVERY), "Where to ask."),
    flag("discovery-dial-timeout", Duration("0s"), "2s", Discovery, Ignored(NO_DISCOVERY), "Of that connection."),
    flag("discovery-request-timeout", Duration("0s"), "5s", Discovery, Ignored(NO_DISCOVERY), "Of that connection."),
    flag("discovery-keepalive-time", Duration("0s"), "2s", Discovery, Ignored(NO_DISCOVERY), "Of that connection."),
    flag("discovery-keepalive-timeout", Duration("0s"), "6s", Discovery, Ignored(NO_DISCOVERY), "Of that connection."),
    flag("discovery-insecure-transport", Bool, "true", Discovery, Ignored(NO_DISCOVERY), "Of that connection."),
    flag("discovery-insecure-skip-tls-verify", Bool, "false", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-cert", Text, "", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-key", Text, "", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-cacert", Text, "", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-user", Text, "", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-password", Text, "", Discovery, Refused(NO_DISCOVERY), "Of that connection."),
    flag("discovery-srv", Text, "", Discovery, Refused(NO_DISCOVERY), "Domain whose records name the members."),
    flag("discovery-srv-name", Text, "", Discovery, Refused(NO_DISCOVERY), "Suffix of those records."),
    flag("discovery", Text, "", Discovery, Refused(NO_DISCOVERY), "Of etcd 2."),
    flag("discovery-fallback", Text, "exit", Discovery, Ignored(NO_DISCOVERY), "Of etcd 2."),
    flag("discovery-proxy", Text, "", Discovery, Ignored(NO_DISCOVERY), "Of etcd 2."),

    flag("enable-v2", Bool, "false", Old, Refused("the v2 API was removed"), "Serve the v2 API."),
    flag("v2-deprecation", Text, "", Old, Ignored("the v2 API was removed"), "How far the v2 API is gone."),
    flag("max-snapshots", Int(0, i64::MAX), "5", Old, Ignored("there is one checkpoint"), "Snapshot files to keep."),
    flag("debug", Bool, "false", Old, Works, "Like --log-level=debug."),
    flag("log-package-levels", Text, "", Old, Ignored("there is one level for all"), "Levels by package."),
    flag("proxy", Choice(&["off", "readonly", "on"]), "off", Old, Refused(OF_PROXY), "Run as a v2 proxy."),
    flag("proxy-failure-wait", Int(0, i64::MAX), "5000", Old, Ignored(OF_PROXY), "Of the v2 proxy."),
    flag("proxy-refresh-interval", Int(0, i64::MAX), "30000", Old, Ignored(OF_PROXY), "Of the v2 proxy."),
    flag("proxy-dial-timeout", Int(0, i64::MAX), "1000", Old, Ignored(OF_PROXY), "Of the v2 proxy."),
    flag("proxy-write-timeout", Int(0, i64::MAX), "5000", Old, Ignored(OF_PROXY), "Of the v2 proxy."),
    flag("proxy-read-timeout", Int(0, i64::MAX), "0", Old, Ignored(OF_PROXY), "Of the v2 proxy."),
    flag("initial-corrupt-check", Bool, "false", Old, Ignored("one member has nobody to compare with; the store checks its own checksums"), "Compare data with other members at the start."),
    flag("compact-hash-check-enabled", Bool, "false", Old, Ignored("one member has nobody to compare with"), "Compare compacted data with other members."),
    flag("enable-lease-checkpoint", Bool, "false", Old, Ignored("every renewal is in the log anyway"), "Keep remaining times of leases over a change of leader."),
    flag("enable-lease-checkpoint-persist", Bool, "false", Old, Ignored("every renewal is in the log anyway"), "Keep them over a restart."),
    flag("txn-mode-write-with-shared-buffer", Bool, "true", Old, Ignored("a detail of etcd's store"), "How transactions read."),
    flag("stop-grpc-service-on-defrag", Bool, "false", Old, Ignored("defragmentation does not stop the server"), "Say that the server does not serve while it is defragmented."),
];

/// etcd's feature gates, all of which change nothing here.
pub(super) const FEATURE_GATES: [&str; 11] = [
    "AllAlpha",
    "AllBeta",
    "StopGRPCServiceOnDefrag",
    "InitialCorruptCheck",
    "CompactHashCheck",
    "TxnModeWriteWithSharedBuffer",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "SetMemberLocalAddr",
    "FastLeaseKeepAlive",
    "PriorityRequest",
];
