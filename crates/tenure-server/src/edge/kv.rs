//! etcd's kv service.

use tenure_proto::etcdserverpb::kv_server;

use super::Context;

pub(super) struct Kv {
    ctx: Context,
}

impl Kv {
    pub(super) fn new(ctx: Context) -> Kv {
        Kv { ctx }
    }
}

impl kv_server::Kv for Kv {}
