//! etcd's authentication service. Authentication is always off: what asks about it is told so, what would
//! change it answers UNIMPLEMENTED.

use tenure_proto::etcdserverpb::{self as pb, auth_server};
use tonic::{Code, Request, Response, Status};

use super::Context;

pub(super) struct Auth {
    ctx: Context,
}

impl Auth {
    pub(super) fn new(ctx: Context) -> Auth {
        Auth { ctx }
    }
}

#[tonic::async_trait]
impl auth_server::Auth for Auth {
    async fn auth_status(
        &self,
        _: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let (header, _) = self.ctx.member_status().await?;
        let header = self.ctx.header(header.revision, header.term);
        // The store of users is at its first revision, as on an etcd that was never asked to change it.
        Ok(Response::new(pb::AuthStatusResponse { header: Some(header), enabled: false, auth_revision: 1 }))
    }

    async fn authenticate(
        &self,
        _: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        Err(Status::new(Code::FailedPrecondition, "etcdserver: authentication is not enabled"))
    }
}
