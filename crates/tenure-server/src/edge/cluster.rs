//! etcd's Cluster service. There is one member, this one; what would change that answers UNIMPLEMENTED.

use tenure_proto::etcdserverpb::{self as pb, cluster_server};
use tonic::{Request, Response, Status};

use super::Context;

pub(super) struct Cluster {
    ctx: Context,
}

impl Cluster {
    pub(super) fn new(ctx: Context) -> Cluster {
        Cluster { ctx }
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Cluster {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        if request.get_ref().linearizable {
            self.ctx.barrier().await?;
        }
        let (header, status) = self.ctx.member_status().await?;
        let identity = &self.ctx.identity;
        let member = pb::Member {
            id: identity.member.0,
            name: identity.name.clone(),
            peer_ur_ls: identity.peer_urls.clone(),
            client_ur_ls: identity.client_urls.clone(),
            is_learner: status.is_learner,
        };
        Ok(Response::new(pb::MemberListResponse {
            header: Some(self.ctx.header_unrevised(header)),
            members: vec![member],
        }))
    }
}
