//! What the replica says of itself, written as families.

use tenure_replica::effect::{LATENESS_BOUNDS_MS, Status, TTL_BOUNDS_S};
use tenure_state::ids::MemberId;

use super::exposition::Exposition;
use crate::identity::{ETCD_CLUSTER_VERSION, ETCD_VERSION};

/// Counters and gauges of etcd whose 0 is the truth on Tenure, because what they count cannot happen here.
const COUNTERS_OF_NOTHING: [(&str, &str); 5] = [
    ("etcd_debugging_store_expires_total", "Expired keys of etcd's v2 store, which Tenure does not have."),
    ("etcd_debugging_store_watch_requests_total", "Watches on etcd's v2 store, which Tenure does not have."),
    ("etcd_grpc_proxy_events_coalescing_total", "Of etcd's gRPC proxy, which this is not."),
    (
        "etcd_server_heartbeat_send_failures_total",
        "Heartbeats that could not be sent; one member sends none.",
    ),
    ("etcd_server_learner_promote_successes", "Learners promoted; one member has none."),
];
const GAUGES_OF_NOTHING: [(&str, &str); 6] = [
    ("etcd_debugging_store_watchers", "Watchers of etcd's v2 store, which Tenure does not have."),
    ("etcd_grpc_proxy_cache_hits_total", "Of etcd's gRPC proxy, which this is not."),
    ("etcd_grpc_proxy_cache_keys_total", "Of etcd's gRPC proxy, which this is not."),
    ("etcd_grpc_proxy_cache_misses_total", "Of etcd's gRPC proxy, which this is not."),
    ("etcd_grpc_proxy_watchers_coalescing_total", "Of etcd's gRPC proxy, which this is not."),
    ("etcd_server_snapshot_apply_in_progress_total", "1 while a snapshot of another member is taken over."),
];

/// etcd's feature gates. Tenure has none of the mechanisms behind them, so each is off.
const FEATURE_GATES: [(&str, &str); 9] = [
    ("StopGRPCServiceOnDefrag", "ALPHA"),
    ("InitialCorruptCheck", "ALPHA"),
    ("CompactHashCheck", "ALPHA"),
    ("TxnModeWriteWithSharedBuffer", "BETA"),
    ("LeaseCheckpoint", "ALPHA"),
    ("LeaseCheckpointPersist", "ALPHA"),
    ("SetMemberLocalAddr", "ALPHA"),
    ("FastLeaseKeepAlive", "BETA"),
    ("PriorityRequest", "ALPHA"),
];

/// What does not change while the process runs.
pub(super) fn expose_constants(out: &mut Exposition, member: MemberId, quota_bytes: u64) {
    let member = member.to_string();
    out.gauges(
        "etcd_server_version",
        "The version of etcd whose API is served.",
        [(&[("server_version", ETCD_VERSION)][..], 1.0)],
    );
    out.gauges(
        "etcd_cluster_version",
        "The version of etcd that the cluster counts as.",
        // etcd's label has no patch number.
        [(
            &[("cluster_version", ETCD_CLUSTER_VERSION.rsplit_once('.').map_or("", |(minor, _)| minor))][..],
            1.0,
        )],
    );
    out.gauges(
        "tenure_build_info",
        "The version of Tenure.",
        [(&[("version", env!("CARGO_PKG_VERSION"))][..], 1.0)],
    );
    out.gauges("etcd_server_id", "The id of this member.", [(&[("server_id", member.as_str())][..], 1.0)]);
    out.gauges(
        "etcd_network_known_peers",
        "1 for each member that this one knows.",
        [(&[("Local", member.as_str()), ("Remote", member.as_str())][..], 1.0)],
    );
    let gates: Vec<_> =
        FEATURE_GATES.iter().map(|(name, stage)| [("name", *name), ("stage", *stage)]).collect();
    out.gauges(
        "etcd_server_feature_enabled",
        "1 for each of etcd's feature gates that is on.",
        gates.iter().map(|labels| (&labels[..], 0.0)),
    );
    out.gauge(
        "etcd_server_quota_backend_bytes",
        "The most logical bytes that the store may hold.",
        quota_bytes as f64,
    );
    out.counter(
        "tenure_log_lines_dropped_total",
        "Log lines that were dropped because nobody took them.",
        crate::logging::lines_dropped(),
    );
    for (name, help) in COUNTERS_OF_NOTHING {
        out.counter(name, help, 0);
    }
    for (name, help) in GAUGES_OF_NOTHING {
        out.gauge(name, help, 0.0);
    }
}

pub(super) fn expose(out: &mut Exposition, status: &Status) {
    consensus(out, status);
    store(out, status);
    watches(out, status);
    leases(out, status);
}

fn consensus(out: &mut Exposition, status: &Status) {
    let counters = &status.counters;
    let flag = |yes: bool| f64::from(u8::from(yes));
    out.gauge("etcd_server_has_leader", "1 if there is a leader.", flag(status.leader != 0));
    out.gauge("etcd_server_is_leader", "1 if this member is the leader.", flag(status.is_leader));
    out.gauge("etcd_server_is_learner", "1 if this member is a learner.", flag(status.is_learner));
    out.counter(
        "etcd_server_leader_changes_seen_total",
        "Changes of leader that this member saw.",
        counters.leader_changes,
    );
    out.gauge(
        "etcd_server_proposals_committed_total",
        "The index of the last commit.",
        status.committed as f64,
    );
    out.gauge(
        "etcd_server_proposals_applied_total",
        "The index of what was applied last.",
        status.applied as f64,
    );
    out.gauge(
        "etcd_server_proposals_pending",
        "Proposals that wait to be committed.",
        status.proposals_pending as f64,
    );
    out.counter("etcd_server_proposals_failed_total", "Proposals that failed.", counters.proposals_failed);
    out.counter(
        "etcd_server_read_indexes_failed_total",
        "Reads that were given up without a confirmed leader.",
        counters.read_indexes_failed,
    );
    out.counter(
        "etcd_server_slow_read_indexes_total",
        "Confirmations of leadership that had to be asked for again.",
        counters.read_index_batches_again,
    );
    out.gauge("tenure_raft_term", "The term of Raft.", status.term as f64);
    out.gauge(
        "tenure_proposals_stalled",
        "1 if the oldest proposal has waited for longer than an election timeout.",
        flag(status.stalled),
    );
    out.counter(
        "tenure_read_index_batches_total",
        "Confirmations of leadership; each serves all reads that waited.",
        counters.read_index_batches,
    );
    out.gauge("tenure_alarms", "Alarms that are on.", status.alarms.len() as f64);
}

fn store(out: &mut Exposition, status: &Status) {
    let (counters, stats) = (&status.counters, &status.stats);
    out.gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Logical bytes in the store, which is what the quota limits.",
        stats.logical_bytes as f64,
    );
    out.counter("etcd_mvcc_put_total", "Puts, those in transactions included.", counters.puts);
    out.counter("etcd_mvcc_delete_total", "Deletes, those in transactions included.", counters.deletes);
    out.counter("etcd_mvcc_range_total", "Ranges that were read.", counters.ranges);
    out.counter("etcd_mvcc_txn_total", "Transactions.", counters.txns);
    out.gauge("etcd_debugging_mvcc_keys_total", "Keys that live.", stats.keys as f64);
    out.gauge("tenure_store_records", "Records in history, superseded ones included.", stats.records as f64);
    out.gauge(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "Bytes of keys and values that were put since the start.",
        counters.put_bytes as f64,
    );
    out.gauge("etcd_debugging_mvcc_current_revision", "The revision of the store.", status.revision.0 as f64);
    out.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The revision compacted last.",
        status.compacted.0 as f64,
    );
    out.counter(
        "etcd_debugging_mvcc_db_compaction_keys_total",
        "Records that compactions removed.",
        counters.compacted_keys,
    );
}

fn watches(out: &mut Exposition, status: &Status) {
    let watch = &status.watch;
    out.gauge("etcd_debugging_mvcc_watch_stream_total", "Watch streams that are open.", watch.streams as f64);
    out.gauge("etcd_debugging_mvcc_watcher_total", "Watches.", watch.watchers as f64);
    out.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watches that are behind and read from history.",
        watch.slow_watchers as f64,
    );
    out.counter("etcd_debugging_mvcc_events_total", "Events that were sent to watches.", watch.events);
    out.gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Events that were sent and not yet taken by their readers.",
        watch.pending_events as f64,
    );
}

fn leases(out: &mut Exposition, status: &Status) {
    let counters = &status.counters;
    out.counter("etcd_debugging_lease_granted_total", "Leases granted.", counters.leases_granted);
    out.counter("etcd_debugging_lease_renewed_total", "Renewals of leases.", counters.leases_renewed);
    // etcd ends an expired lease by revoking it, and counts both here.
    out.counter(
        "etcd_debugging_lease_revoked_total",
        "Leases that ended, by revocation or expiry.",
        counters.leases_revoked + counters.leases_expired,
    );
    out.counter("etcd_debugging_server_lease_expired_total", "Leases that expired.", counters.leases_expired);
    out.histogram(
        "etcd_debugging_lease_ttl_total",
        "The times in seconds for which leases were granted.",
        &TTL_BOUNDS_S.map(|bound| bound as f64),
        &counters.ttls.counts,
        counters.ttls.sum as f64,
    );
    out.gauge("tenure_lease_live", "Leases that live.", status.stats.leases as f64);
    out.counter("tenure_lease_grants_total", "Leases granted.", counters.leases_granted);
    out.counter("tenure_lease_renewals_total", "Renewals of leases.", counters.leases_renewed);
    out.counter("tenure_lease_revocations_total", "Leases that were revoked.", counters.leases_revoked);
    out.counter("tenure_lease_expiries_total", "Leases that expired.", counters.leases_expired);
    out.counter(
        "tenure_lease_steps_total",
        "Log entries that carried renewals and expiries.",
        counters.lease_steps,
    );
    out.counter(
        "tenure_lease_take_overs_total",
        "Times that a new leader gave all leases time to renew.",
        counters.take_overs,
    );
    out.histogram(
        "tenure_lease_lateness_seconds",
        "How long after their time leases ended, on the lease clock.",
        &LATENESS_BOUNDS_MS.map(|bound| bound as f64 / 1000.0),
        &counters.lateness.counts,
        counters.lateness.sum as f64 / 1000.0,
    );
    out.gauge(
        "tenure_lease_oldest_overdue_seconds",
        "For how long the oldest lease that is due has waited for its end.",
        status.overdue_oldest.0 as f64 / 1e9,
    );
    out.gauge(
        "tenure_lease_clock_seconds",
        "The lease clock: it stands while no leader is active.",
        status.clock.0 as f64 / 1e9,
    );
}
