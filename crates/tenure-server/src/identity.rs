//! Who this server is: what every edge needs to fill headers and member lists.

use tenure_state::ids::MemberId;

/// Fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cluster: u64,
    pub member: MemberId,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
}

/// The version of etcd whose API is served; clients parse it.
pub const ETCD_VERSION: &str = "3.7.3";
/// etcd's cluster and storage version that go with it.
pub const ETCD_CLUSTER_VERSION: &str = "3.7.0";
