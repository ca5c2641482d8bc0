//! Clocks, disks and sockets around a replica. No decision about leases, revisions or consensus is made here.

pub mod handle;
pub mod identity;

pub use handle::Handle;
pub use identity::Identity;
