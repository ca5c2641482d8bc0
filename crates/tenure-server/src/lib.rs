//! Clocks, disks and sockets around a replica. No decision about leases, revisions or consensus is made here.

#![allow(dead_code, reason = "the parts are written beside each other, and not everything is used yet")]

mod checkpoint;
mod clock;
mod compactor;
pub mod config;
pub mod datadir;
mod disk;
mod driver;
mod edge;
pub mod handle;
mod http;
pub mod identity;
pub mod inspect;
mod listen;
pub mod logging;
mod meter;
pub mod metrics;
mod server;
pub mod storage;
mod store;

pub use config::Config;
pub use handle::Handle;
pub use identity::Identity;
pub use metrics::Metrics;
pub use server::Server;
