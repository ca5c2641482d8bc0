//! etcd's election service. Not served yet: every method answers UNIMPLEMENTED.

use tenure_proto::v3electionpb::election_server;

pub(super) struct Election;

impl election_server::Election for Election {}
