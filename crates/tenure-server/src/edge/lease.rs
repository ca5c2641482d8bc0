//! etcd's Lease service.

mod keep_alive;

use std::num::NonZeroU64;

use tenure_proto::etcdserverpb::{self as pb, lease_server};
use tenure_replica::effect::{Answer, Failure};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::applied::Reply;
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::refusal::Refusal;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use self::keep_alive::KeepAlive;
use super::{Context, from_proto, status, to_proto};

pub(super) struct Lease {
    ctx: Context,
}

impl Lease {
    pub(super) fn new(ctx: Context) -> Lease {
        Lease { ctx }
    }

    /// Grants a lease with the id that was asked for; one that was left open is drawn until it is free.
    async fn grant(&self, asked: LeaseId, ttl: Nanos) -> Result<pb::LeaseGrantResponse, Status> {
        loop {
            let id = if asked.is_none() { draw_id() } else { asked };
            let parent = LeaseId::NONE;
            match self.ctx.handle.write(Write::Grant { id, ttl, parent }).await {
                Ok((header, Reply::Grant { id, ttl, revision })) => {
                    return Ok(pb::LeaseGrantResponse {
                        header: Some(self.ctx.header_at(header, revision)),
                        id: id.0,
                        ttl: to_proto::seconds_granted(ttl),
                        error: String::new(),
                    });
                }
                Ok((_, other)) => unreachable!("a grant is answered by its own reply, not by {other:?}"),
                Err(Failure::Refused(Refusal::LeaseExists)) if asked.is_none() => {}
                Err(failure) => return Err(status::failure(failure)),
            }
        }
    }
}

/// 63 random bits, but never 0: that is no lease.
fn draw_id() -> LeaseId {
    loop {
        if let Some(bits) = NonZeroU64::new(rand::random::<u64>() >> 1) {
            return LeaseId(bits.get().cast_signed());
        }
    }
}

#[tonic::async_trait]
impl lease_server::Lease for Lease {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
        let ttl = from_proto::ttl(ttl)?;
        self.ctx.timed("LeaseGrant", 0, self.grant(LeaseId(id), ttl)).await
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let id = LeaseId(request.into_inner().id);
        let work = async {
            let answered = self.ctx.handle.write(Write::Revoke { id }).await;
            match answered.map_err(status::failure)? {
                (header, Reply::Revoke { revision }) => {
                    Ok(pb::LeaseRevokeResponse { header: Some(self.ctx.header_at(header, revision)) })
                }
                (_, other) => unreachable!("a revocation is answered by its own reply, not by {other:?}"),
            }
        };
        self.ctx.timed("LeaseRevoke", 0, work).await
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<BoxStream<pb::LeaseKeepAliveResponse>>, Status> {
        Ok(Response::new(Box::pin(KeepAlive::new(self.ctx.clone(), request.into_inner()))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let work = async {
            let read = Read::TimeToLive { id: LeaseId(id), keys };
            let answered = self.ctx.handle.read(read, Consistency::Linearizable).await;
            let (header, lease) = match answered.map_err(status::failure)? {
                (header, Answer::TimeToLive(lease)) => (header, lease),
                (_, other) => unreachable!("a time to live is answered by one, not by {other:?}"),
            };
            let header = Some(self.ctx.header_at(header, header.revision));
            Ok(match lease {
                Some(lease) => pb::LeaseTimeToLiveResponse {
                    header,
                    id,
                    ttl: to_proto::seconds_left(lease.remaining),
                    granted_ttl: to_proto::seconds_granted(lease.granted),
                    keys: lease.keys,
                },
                // To ask after a lease that does not live is no error.
                None => pb::LeaseTimeToLiveResponse { header, id, ttl: -1, granted_ttl: 0, keys: Vec::new() },
            })
        };
        self.ctx.timed("LeaseTimeToLive", 0, work).await
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let work = async {
            let answered = self.ctx.handle.read(Read::Leases, Consistency::Linearizable).await;
            match answered.map_err(status::failure)? {
                (header, Answer::Leases(ids)) => Ok(pb::LeaseLeasesResponse {
                    header: Some(self.ctx.header_at(header, header.revision)),
                    leases: ids.into_iter().map(|id| pb::LeaseStatus { id: id.0 }).collect(),
                }),
                (_, other) => unreachable!("the leases are answered by their ids, not by {other:?}"),
            }
        };
        self.ctx.timed("LeaseLeases", 0, work).await
    }
}
