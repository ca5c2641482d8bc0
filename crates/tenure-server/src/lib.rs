//! Clocks, disks and sockets around a replica. No decision about leases, revisions or consensus is made here.

// Until the server that serves them is there, nothing reads the edges.
#[allow(dead_code)]
mod edge;
pub mod handle;
pub mod identity;

pub use handle::Handle;
pub use identity::Identity;
