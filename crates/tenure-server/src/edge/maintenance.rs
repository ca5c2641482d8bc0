//! etcd's maintenance service.

use tenure_proto::etcdserverpb::maintenance_server;

use super::Context;

pub(super) struct Maintenance {
    ctx: Context,
}

impl Maintenance {
    pub(super) fn new(ctx: Context) -> Maintenance {
        Maintenance { ctx }
    }
}

impl maintenance_server::Maintenance for Maintenance {}
