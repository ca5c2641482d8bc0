//! The names are a contract: dashboards and alerts are written against them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tenure_replica::effect::{LATENESS_BOUNDS_MS, Status};
use tenure_state::ids::MemberId;

use super::grpc::METHODS;
use super::*;

/// Every family of a running etcd 3.7.3 but the Go runtime's: name, type, and "-" with the reason if Tenure has none.
const ETCD_FAMILIES: &str = include_str!("etcd_families.txt");

fn scrape(metrics: &Metrics) -> String {
    let mut status = Status { leader: 1, is_leader: true, ..Status::default() };
    status.counters.lateness.observe(&LATENESS_BOUNDS_MS, 3);
    metrics.render(Some(&status))
}

/// One child of each family that has none before something happens.
fn touched() -> Metrics {
    let metrics = Metrics::new(MemberId(0xabc), 1 << 31, false);
    metrics.apply.observe(0.1);
    metrics.healthcheck.with_label_values(&["livez", "serializable_read"]).set(1.0);
    metrics.healthchecks.with_label_values(&["livez", "serializable_read", "success"]).inc();
    metrics.grpc.started(0, Some(b"3.7.3"));
    metrics
}

fn types(scraped: &str) -> BTreeMap<&str, &str> {
    scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

#[test]
fn every_family_of_etcd_is_there_with_its_type_or_left_out_with_a_reason() {
    let metrics = touched();
    let scraped = scrape(&metrics);
    let present = types(&scraped);
    for line in ETCD_FAMILIES.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(4, ' ');
        let (name, kind) = (words.next().expect("a name"), words.next().expect("a type"));
        match words.next() {
            None => assert_eq!(present.get(name), Some(&kind), "{name}"),
            Some(mark) => {
                assert_eq!(mark, "-", "{line}");
                assert!(
                    words.next().is_some_and(|why| !why.is_empty()),
                    "{name} is left out without a reason"
                );
                assert!(
                    !present.contains_key(name),
                    "{name} is there, but the list says that it is left out"
                );
            }
        }
    }
}

/// The tables of docs/metrics.md are made from what a server says. `TENURE_WRITE_DOCS=1` writes them anew.
#[test]
fn every_family_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let metrics = Metrics::new(MemberId(1), 1, true);
    metrics.apply.observe(0.1);
    metrics.healthcheck.with_label_values(&["livez", "serializable_read"]).set(1.0);
    metrics.healthchecks.with_label_values(&["livez", "serializable_read", "success"]).inc();
    metrics.grpc.started(0, None);
    let scraped = scrape(&metrics);
    let help: BTreeMap<&str, &str> =
        scraped.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' ')).collect();
    let etcd: BTreeSet<&str> = ETCD_FAMILIES
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains(" - "))
        .map(|line| line.split(' ').next().expect("a name"))
        .collect();
    let table = |wanted: &dyn Fn(&str) -> bool| -> String {
        let rows = types(&scraped).into_iter().filter(|(name, _)| wanted(name));
        let rows = rows.map(|(name, kind)| format!("| `{name}` | {kind} | {} |\n", help[name]));
        format!("| family | type | meaning |\n|---|---|---|\n{}", rows.collect::<String>())
    };
    let left_out = ETCD_FAMILIES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (family, why) = line.split_once(" - ")?;
        let (name, kind) = family.split_once(' ')?;
        Some(format!("| `{name}` | {kind} | {why} |\n"))
    });
    let left_out = format!("| family | type | why |\n|---|---|---|\n{}", left_out.collect::<String>());
    let mut expected = page.clone();
    for (name, table) in [
        ("own", table(&|name| !etcd.contains(name))),
        ("etcd", table(&|name| etcd.contains(name))),
        ("left out", left_out),
    ] {
        let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->"));
        let from = expected.find(&begin).expect("the page marks where its tables begin") + begin.len();
        let to = expected.find(&end).expect("the page marks where its tables end");
        expected.replace_range(from..to, &table);
    }
    if std::env::var_os("TENURE_WRITE_DOCS").is_some() {
        std::fs::write(path, &expected).expect("the page can be written");
    } else {
        assert!(page == expected, "docs/metrics.md is out of date: run the tests with TENURE_WRITE_DOCS=1");
    }
}

#[test]
fn no_family_comes_twice_and_each_sample_belongs_to_one() {
    let scraped = scrape(&touched());
    let names: Vec<_> = scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "a family came twice");
    for line in scraped.lines().filter(|line| !line.starts_with('#')) {
        let (sample, value) = line.rsplit_once(' ').expect("a sample has a value");
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        assert!(sample.starts_with(|c: char| c.is_ascii_alphabetic()), "{line}");
    }
}

#[test]
fn a_replica_that_does_not_answer_leaves_the_rest() {
    let scraped = Metrics::new(MemberId(1), 1, false).render(None);
    assert!(scraped.contains("tenure_replica_answers 0\n"));
    assert!(scraped.contains("# TYPE etcd_disk_wal_fsync_duration_seconds histogram"));
    assert!(!scraped.contains("etcd_server_has_leader"));
}

#[test]
fn lateness_becomes_a_histogram_in_seconds() {
    let scraped = scrape(&touched());
    assert!(scraped.contains("tenure_lease_lateness_seconds_bucket{le=\"0.002\"} 0\n"), "{scraped}");
    assert!(scraped.contains("tenure_lease_lateness_seconds_bucket{le=\"0.005\"} 1\n"));
    assert!(scraped.contains("tenure_lease_lateness_seconds_bucket{le=\"+Inf\"} 1\n"));
    assert!(scraped.contains("tenure_lease_lateness_seconds_sum 0.003\n"));
}

#[test]
fn labels_of_etcd() {
    let scraped = scrape(&touched());
    for sample in [
        "etcd_server_version{server_version=\"3.7.3\"} 1",
        "etcd_cluster_version{cluster_version=\"3.7\"} 1",
        "etcd_server_id{server_id=\"abc\"} 1",
        "etcd_server_client_requests_total{client_api_version=\"3.7.3\",type=\"unary\"} 1",
        "grpc_server_started_total{grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1",
    ] {
        assert!(scraped.contains(&format!("{sample}\n")), "{sample}");
    }
}

#[test]
fn the_table_of_methods_is_the_schema() {
    let schema = include_str!("../../../tenure-proto/tests/schema.golden");
    let table: BTreeSet<(&str, &str)> = METHODS
        .iter()
        .map(|(path, kind)| {
            let kind = match kind {
                grpc::Kind::Unary => "unary",
                grpc::Kind::ServerStream => "server",
                grpc::Kind::BidiStream => "both",
            };
            (*path, kind)
        })
        .collect();
    let golden: BTreeSet<(&str, &str)> = schema
        .lines()
        .filter_map(|line| line.strip_prefix("rpc "))
        .filter_map(|line| line.split_once(' '))
        .filter(|(path, _)| !path.starts_with("/tenure."))
        .map(|(path, messages)| match messages.matches("stream ").count() {
            0 => (path, "unary"),
            1 => (path, "server"),
            _ => (path, "both"),
        })
        .collect();
    assert_eq!(table, golden);
}

#[test]
fn a_client_cannot_grow_the_metrics_by_inventing_versions() {
    let metrics = Metrics::new(MemberId(1), 1, false);
    metrics.grpc.started(0, Some(b"quote\" and {brace}"));
    metrics.grpc.started(0, Some(&[b'9'; 1000]));
    metrics.grpc.started(0, None);
    for version in 0..1000 {
        metrics.grpc.started(6, Some(format!("3.7.{version}").as_bytes()));
    }
    metrics.grpc.started(0, Some(b"3.7.0"));
    let scraped = scrape(&metrics);
    let samples: Vec<_> =
        scraped.lines().filter(|line| line.starts_with("etcd_server_client_requests_total{")).collect();
    assert!(samples.len() <= 20, "{samples:#?}");
    let unknown = "etcd_server_client_requests_total{client_api_version=\"unknown\",type=\"unary\"} 1";
    let other = "etcd_server_client_requests_total{client_api_version=\"other\",type=\"stream\"} 985";
    let known = "etcd_server_client_requests_total{client_api_version=\"3.7.0\",type=\"unary\"} 1";
    for sample in [unknown, other, known] {
        assert!(samples.contains(&sample), "{sample} not in {samples:#?}");
    }
}

#[test]
fn counting_a_call_is_cheap() {
    let metrics = Metrics::new(MemberId(1), 1, false);
    let calls = 100_000;
    let start = Instant::now();
    for _ in 0..calls {
        let method = metrics.grpc.find("/etcdserverpb.Lease/LeaseGrant").expect("a method");
        metrics.grpc.started(method, Some(b"3.7.3"));
        metrics.grpc.received(method, 1, 20);
        metrics.grpc.sent(method, 1, 20);
        metrics.grpc.handled(method, 0, Duration::from_micros(100));
    }
    let each = start.elapsed() / calls;
    // Far above what is measured without optimization on a busy machine; it catches a lock or an allocation.
    assert!(each < Duration::from_micros(20), "{each:?} a call");
}
