//! etcd's lock service. Not served yet: every method answers UNIMPLEMENTED.

use tenure_proto::v3lockpb::lock_server;

pub(super) struct Lock;

impl lock_server::Lock for Lock {}
