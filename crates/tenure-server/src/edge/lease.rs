//! etcd's lease service.

use tenure_proto::etcdserverpb::lease_server;

use super::Context;

pub(super) struct Lease {
    ctx: Context,
}

impl Lease {
    pub(super) fn new(ctx: Context) -> Lease {
        Lease { ctx }
    }
}

impl lease_server::Lease for Lease {}
