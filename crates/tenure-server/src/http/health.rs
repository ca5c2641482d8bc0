//! etcd's health endpoints: `/health` for people and load balancers, `/livez` and `/readyz` for Kubernetes.

use std::fmt::Write;

use hyper::{Response, StatusCode};
use tenure_replica::effect::Failure;
use tenure_replica::input::Consistency;
use tenure_state::command::Alarm;

use super::{FrontBody, Http, JSON, TEXT, plain};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
        }
    }
}

const LIVEZ: &[Check] = &[Check::SerializableRead];
const READYZ: &[Check] =
    &[Check::DataCorruption, Check::SerializableRead, Check::LinearizableRead, Check::NonLearner];

/// The checks behind a path, and the kind under which they are counted.
fn checks(path: &str) -> Option<(&'static str, &'static [Check])> {
    let (kind, all, rest) = if let Some(rest) = path.strip_prefix("/livez") {
        ("livez", LIVEZ, rest)
    } else {
        ("readyz", READYZ, path.strip_prefix("/readyz")?)
    };
    if rest.is_empty() || rest == "/" {
        return Some((kind, all));
    }
    let one = all.iter().position(|check| rest.strip_prefix('/') == Some(check.name()))?;
    Some((kind, &all[one..=one]))
}

pub(super) fn is_probe(path: &str) -> bool {
    checks(path).is_some()
}

impl Http {
    /// `/health`: one word and one reason. Alarms can be left out with `exclude=NOSPACE`; with `serializable=true`
    /// it is only asked whether this member answers, not whether the cluster does.
    pub(super) async fn health(&self, query: &str) -> Response<FrontBody> {
        match self.unhealthy(query).await {
            None => {
                self.metrics.health_success.inc();
                plain(StatusCode::OK, JSON, r#"{"health":"true","reason":""}"#)
            }
            Some(reason) => {
                self.metrics.health_failures.inc();
                tracing::warn!(reason, "/health answers that this member is not healthy");
                // Reasons are our own words: nothing in them needs escaping. The newline is etcd's.
                let body = format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n");
                plain(StatusCode::SERVICE_UNAVAILABLE, JSON, body)
            }
        }
    }

    async fn unhealthy(&self, query: &str) -> Option<String> {
        let status = match self.status(self.request_timeout).await {
            Ok(status) => status,
            Err(failure) => return Some(format!("RANGE ERROR:{}", words(failure))),
        };
        let excluded = |name: &str| parameters(query, "exclude").any(|exclude| exclude == name);
        for (_, alarm) in &status.alarms {
            let name = match alarm {
                Alarm::NoSpace => "NOSPACE",
                Alarm::Corrupt => "CORRUPT",
            };
            if !excluded(name) {
                return Some(format!("ALARM {name}"));
            }
        }
        let serializable = parameters(query, "serializable").next() == Some("true");
        if !serializable && status.leader == 0 {
            return Some("RAFT NO LEADER".to_owned());
        }
        let consistency = if serializable { Consistency::Serializable } else { Consistency::Linearizable };
        self.readable(consistency).await.err().map(|failure| format!("RANGE ERROR:{}", words(failure)))
    }

    /// `/livez`, `/readyz` and one path below for each of their checks.
    pub(super) async fn probe(&self, path: &str, query: &str) -> Response<FrontBody> {
        let (kind, checks) = checks(path).expect("only paths of checks come here");
        let verbose = query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"));
        let mut lines = String::new();
        let mut failed = false;
        for check in checks {
            let name = check.name();
            if parameters(query, "exclude").any(|exclude| exclude == name) {
                continue;
            }
            let outcome = self.check(*check).await;
            self.metrics
                .healthcheck
                .with_label_values(&[kind, name])
                .set(f64::from(u8::from(outcome.is_ok())));
            let status = if outcome.is_ok() { "success" } else { "error" };
            self.metrics.healthchecks.with_label_values(&[kind, name, status]).inc();
            let _ = match outcome {
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(why) => {
                    failed = true;
                    tracing::warn!(check = name, why, "/{kind} fails");
                    writeln!(lines, "[-]{name} failed: {why}")
                }
            };
        }
        match (failed, verbose) {
            (true, _) => plain(StatusCode::SERVICE_UNAVAILABLE, TEXT, lines),
            (false, true) => plain(StatusCode::OK, TEXT, lines + "ok\n"),
            (false, false) => plain(StatusCode::OK, TEXT, "ok\n"),
        }
    }

    async fn check(&self, check: Check) -> Result<(), String> {
        match check {
            Check::DataCorruption => {
                let status = self.status(self.request_timeout).await.map_err(words)?;
                let corrupt = status.alarms.iter().any(|(_, alarm)| *alarm == Alarm::Corrupt);
                if corrupt { Err("alarm activated: CORRUPT".to_owned()) } else { Ok(()) }
            }
            Check::SerializableRead => self.readable(Consistency::Serializable).await.map_err(words),
            Check::LinearizableRead => self.readable(Consistency::Linearizable).await.map_err(words),
            Check::NonLearner => {
                let status = self.status(self.request_timeout).await.map_err(words)?;
                if status.is_learner { Err("member is a learner".to_owned()) } else { Ok(()) }
            }
        }
    }
}

fn words(failure: Failure) -> String {
    format!("etcdserver: {failure}")
}

fn parameters<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(move |parameter| parameter.split_once('=').filter(|(key, _)| *key == name))
        .map(|p| p.1)
}
