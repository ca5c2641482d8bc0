//! etcd's cluster service.

use tenure_proto::etcdserverpb::cluster_server;

use super::Context;

pub(super) struct Cluster {
    ctx: Context,
}

impl Cluster {
    pub(super) fn new(ctx: Context) -> Cluster {
        Cluster { ctx }
    }
}

impl cluster_server::Cluster for Cluster {}
