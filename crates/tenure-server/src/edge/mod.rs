//! etcd's API as gRPC services: one file per service, [`from_proto`] and [`to_proto`] on the way in and out,
//! [`status`] for every "no", [`gate`] in front of all of them.
//!
//! An edge decides nothing: it reads the request, asks the replica through [`Handle`], and writes down what it
//! is told. No task is spawned for a request or a stream; what an open stream needs is a few fields that are
//! polled by whoever sends its answers.

mod auth;
mod cluster;
mod election;
#[cfg(test)]
mod fake;
mod from_proto;
mod gate;
mod health;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod slow;
mod status;
mod to_proto;
mod watch;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_proto::etcdserverpb as pb;
use tenure_replica::effect::{Answer, Header, Status as MemberStatus};
use tenure_replica::input::{Consistency, Read};
use tenure_state::ids::Revision;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::{Response, Status};

use crate::handle::Handle;
use crate::identity::Identity;
use crate::storage::Storage;
use gate::Gate;

/// What the largest message may have beyond the largest request.
const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;

/// The largest message that etcd sends (Go's `math.MaxInt32`).
pub(crate) const REPLY_BYTES_MAX: usize = i32::MAX as usize;

/// What every service holds. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) identity: Arc<Identity>,
    pub(crate) limits: Limits,
    /// Turns true when the server stops: then every open stream ends.
    pub(crate) stopping: tokio::sync::watch::Receiver<bool>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) slow: Arc<slow::Slow>,
}

/// Bounds and thresholds, nearly all of them settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_request_bytes: usize,
    pub(crate) max_txn_ops: usize,
    /// How much memory the keys and values of one answer may take. No setting: etcd has none.
    pub(crate) reply_bytes_max: usize,
    /// A unary request that takes longer is logged.
    pub(crate) warning_unary: Duration,
    /// Only shown here, in Status: the replica checks it.
    pub(crate) quota_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_request_bytes: 1_572_864,
            max_txn_ops: 128,
            reply_bytes_max: REPLY_BYTES_MAX,
            warning_unary: Duration::from_millis(300),
            quota_bytes: 2 << 30,
        }
    }
}

impl Context {
    pub(crate) fn header(&self, revision: Revision, term: u64) -> pb::ResponseHeader {
        to_proto::header(&self.identity, Header { revision, term })
    }

    /// The header of an answer that says by itself at which revision it stands.
    fn header_at(&self, answered: Header, revision: Revision) -> pb::ResponseHeader {
        self.header(revision, answered.term)
    }

    /// etcd's header of everything about members: without a revision.
    fn header_unrevised(&self, answered: Header) -> pb::ResponseHeader {
        self.header(Revision::ZERO, answered.term)
    }

    /// Resolves when the server stops, also when whoever would say so is gone.
    pub(crate) fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        let mut stopping = self.stopping.clone();
        Box::pin(async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        })
    }

    /// What this member knows of itself.
    async fn member_status(&self) -> Result<(Header, Box<MemberStatus>), Status> {
        let answered = self.handle.read(Read::Status, Consistency::Serializable).await;
        match answered.map_err(status::failure)? {
            (header, Answer::Status(status)) => Ok((header, status)),
            (_, other) => unreachable!("a status is answered by a status, not by {other:?}"),
        }
    }

    /// Returns once this member has confirmed that it can serve.
    async fn barrier(&self) -> Result<Header, Status> {
        let answered = self.handle.read(Read::Barrier, Consistency::Linearizable).await;
        answered.map(|(header, _)| header).map_err(status::failure)
    }

    /// Does the work of a unary request, and logs it if that took long: its size, but nothing of what is in it. Not each one, if
    /// there are many.
    async fn timed<M: prost::Message>(
        &self,
        request: &'static str,
        request_bytes: usize,
        work: impl Future<Output = Result<M, Status>>,
    ) -> Result<Response<M>, Status> {
        let started = Instant::now();
        let result = work.await;
        let ended = Instant::now();
        let took = ended - started;
        if took > self.limits.warning_unary
            && let Some(left_out) = self.slow.worth_a_line(request, ended)
        {
            let took_ms = took.as_millis() as u64;
            match &result {
                Ok(response) => {
                    let response_bytes = response.encoded_len();
                    tracing::warn!(
                        request,
                        took_ms,
                        request_bytes,
                        response_bytes,
                        left_out,
                        "a request took long"
                    );
                }
                Err(status) => {
                    let error = status.message();
                    tracing::warn!(
                        request,
                        took_ms,
                        request_bytes,
                        error,
                        left_out,
                        "a request took long and failed"
                    );
                }
            }
        }
        result.map(Response::new)
    }
}

/// All services.
pub(crate) fn routes(ctx: Context) -> Routes {
    let message_bytes_max = ctx.limits.max_request_bytes + MESSAGE_OVERHEAD_BYTES;
    let shared = Arc::new(ctx.clone());
    let mut routes = Routes::builder();
    macro_rules! add {
        ($server:ty, $service:expr) => {{
            let server = <$server>::new($service)
                .max_decoding_message_size(message_bytes_max)
                .max_encoding_message_size(usize::MAX);
            routes.add_service(Gate::new(server, shared.clone()));
        }};
    }
    add!(pb::kv_server::KvServer<_>, kv::Kv::new(ctx.clone()));
    routes.add_service(Gate::new(watch::WatchServer::new(ctx.clone()), shared.clone()));
    add!(pb::lease_server::LeaseServer<_>, lease::Lease::new(ctx.clone()));
    add!(pb::cluster_server::ClusterServer<_>, cluster::Cluster::new(ctx.clone()));
    add!(
        pb::maintenance_server::MaintenanceServer<maintenance::Maintenance>,
        maintenance::Maintenance::new(ctx.clone())
    );
    add!(pb::auth_server::AuthServer<_>, auth::Auth::new(ctx.clone()));
    add!(tenure_proto::v3lockpb::lock_server::LockServer<_>, lock::Lock);
    add!(tenure_proto::v3electionpb::election_server::ElectionServer<_>, election::Election);
    add!(tenure_proto::health::health_server::HealthServer<_>, health::Health::new(ctx.clone()));
    routes.routes().prepare()
}

#[cfg(test)]
mod tests;
