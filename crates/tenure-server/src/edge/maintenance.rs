//! etcd's Maintenance service. What belongs to a cluster of several members or to etcd's own file answers
//! UNIMPLEMENTED.

mod snapshot;

use std::sync::Arc;

use tenure_proto::etcdserverpb::{self as pb, maintenance_server};
use tenure_replica::effect::{Answer, Failure, Header, Status as MemberStatus};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::applied::Reply;
use tenure_state::command::{Alarm, AlarmAction};
use tenure_state::ids::{MemberId, Revision};
use tokio::sync::{Semaphore, oneshot};
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

use self::snapshot::Snapshot;
use super::{Context, from_proto, status, to_proto};
use crate::identity::{ETCD_CLUSTER_VERSION, ETCD_VERSION};

/// Each snapshot has a thread and keeps the checkpoint from freeing what it reads.
const SNAPSHOTS_MAX: usize = 4;

pub(super) struct Maintenance {
    ctx: Context,
    snapshots: Arc<Semaphore>,
}

impl Maintenance {
    pub(super) fn new(ctx: Context) -> Maintenance {
        Maintenance { ctx, snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)) }
    }

    /// The alarms of kind `wanted`, or all.
    async fn alarms(&self, wanted: Option<Alarm>) -> Result<(Header, Vec<pb::AlarmMember>), Status> {
        self.ctx.barrier().await?;
        let (header, status) = self.ctx.member_status().await?;
        let of_kind = status.alarms.iter().filter(|(_, alarm)| wanted.is_none_or(|wanted| wanted == *alarm));
        Ok((header, of_kind.map(|(member, alarm)| to_proto::alarm(*member, *alarm)).collect()))
    }

    /// Raises or clears an alarm; answers with it, unless there was nothing to clear.
    async fn change_alarm(
        &self,
        action: AlarmAction,
        member: MemberId,
        alarm: Alarm,
    ) -> Result<(Header, Vec<pb::AlarmMember>), Status> {
        let (_, before) = self.ctx.member_status().await?;
        let was_raised = before.alarms.contains(&(member, alarm));
        let answered = self.ctx.handle.write(Write::Alarm { action, member, alarm }).await;
        match answered.map_err(status::failure)? {
            (header, Reply::Alarms { alarms, revision }) => {
                let is_raised = alarms.contains(&(member, alarm));
                let changed = is_raised || was_raised;
                let shown = changed.then(|| to_proto::alarm(member, alarm));
                Ok((Header { revision, ..header }, shown.into_iter().collect()))
            }
            (_, other) => unreachable!("an alarm is answered by all alarms, not by {other:?}"),
        }
    }
}

/// What is wrong with a member, in etcd's words.
fn errors(status: &MemberStatus) -> Vec<String> {
    let no_leader = (status.leader == 0).then(|| status::no_leader().message().to_owned());
    let alarms = status.alarms.iter().map(|(member, alarm)| {
        let name = match alarm {
            Alarm::NoSpace => "NOSPACE",
            Alarm::Corrupt => "CORRUPT",
        };
        format!("memberID:{} alarm:{name}", member.0)
    });
    no_leader.into_iter().chain(alarms).collect()
}

/// Bytes as etcd counts them.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl maintenance_server::Maintenance for Maintenance {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        use pb::alarm_request::AlarmAction as Action;
        let request = request.into_inner();
        let member = MemberId(request.member_id);
        let alarm = from_proto::alarm(request.alarm);
        let (header, alarms) = match (Action::try_from(request.action), alarm) {
            (Ok(Action::Get), wanted) => self.alarms(wanted).await?,
            (Ok(Action::Activate), Some(alarm)) => {
                self.change_alarm(AlarmAction::Activate, member, alarm).await?
            }
            (Ok(Action::Deactivate), Some(alarm)) => {
                self.change_alarm(AlarmAction::Deactivate, member, alarm).await?
            }
            // No alarm and no action that anybody knows: nothing to do.
            (Ok(Action::Activate | Action::Deactivate), None) | (Err(_), _) => {
                (self.ctx.barrier().await?, Vec::new())
            }
        };
        let header = Some(self.ctx.header_at(header, header.revision));
        Ok(Response::new(pb::AlarmResponse { header, alarms }))
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let (header, status) = self.ctx.member_status().await?;
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.ctx.header_at(header, header.revision)),
            version: ETCD_VERSION.to_owned(),
            db_size: signed(self.ctx.storage.sizes().db_bytes()),
            leader: status.leader,
            raft_index: status.committed,
            raft_term: status.term,
            raft_applied_index: status.applied,
            errors: errors(&status),
            db_size_in_use: signed(status.stats.logical_bytes),
            is_learner: status.is_learner,
            storage_version: ETCD_CLUSTER_VERSION.to_owned(),
            db_size_quota: signed(self.ctx.limits.quota_bytes),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    async fn hash(&self, _: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let answered = self.ctx.handle.read(Read::Digest, Consistency::Serializable).await;
        match answered.map_err(status::failure)? {
            (header, Answer::Digest(digest)) => Ok(Response::new(pb::HashResponse {
                header: Some(self.ctx.header_at(header, header.revision)),
                // Both halves count: a difference in either shows.
                hash: (digest ^ (digest >> 32)) as u32,
            })),
            (_, other) => unreachable!("a digest is answered by one, not by {other:?}"),
        }
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        let read = Read::HashKv { revision: Revision(request.into_inner().revision) };
        let answered = self.ctx.handle.read(read, Consistency::Serializable).await;
        match answered.map_err(status::failure)? {
            (header, Answer::HashKv { hash, compacted, at }) => Ok(Response::new(pb::HashKvResponse {
                header: Some(self.ctx.header_at(header, header.revision)),
                hash,
                compact_revision: compacted.0,
                hash_revision: at.0,
            })),
            (_, other) => unreachable!("a hash is answered by one, not by {other:?}"),
        }
    }

    async fn defragment(
        &self,
        _: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let (done, finished) = oneshot::channel();
        self.ctx.storage.defragment(Box::new(move |result| drop(done.send(result))));
        match finished.await {
            // etcd answers without a header here.
            Ok(Ok(())) => Ok(Response::new(pb::DefragmentResponse { header: None })),
            Ok(Err(error)) => Err(Status::new(Code::Unknown, error.to_string())),
            Err(_) => Err(status::stopped()),
        }
    }

    async fn snapshot(
        &self,
        _: Request<pb::SnapshotRequest>,
    ) -> Result<Response<BoxStream<pb::SnapshotResponse>>, Status> {
        let permit = Arc::clone(&self.snapshots).try_acquire_owned();
        let permit = permit.map_err(|_| status::failure(Failure::TooManyRequests))?;
        // What was acknowledged before it was asked for is handed over to the storage by now.
        self.ctx.barrier().await?;
        Ok(Response::new(Box::pin(Snapshot::start(&self.ctx, &self.ctx.storage, permit))))
    }
}
