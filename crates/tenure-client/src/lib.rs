//! The Rust client of Tenure. It speaks etcd's v3 API, so it works against etcd, too, and needs none of the server's crates.
//!
//! What a thin layer over the generated stubs would leave to every user is done here, once:
//!
//! * several endpoints: the next one is tried when one is gone, reads are repeated, and a write never is once it may have been sent;
//! * watches that go on where they stopped, or say that the revisions in between have been compacted ([`Watcher`]);
//! * leases that renew, with a deadline that the holder may trust without asking anybody ([`KeepAlive`], [`Deadline`]).
//!
//! ```no_run
//! # async fn demo() -> Result<(), tenure_client::ClientError> {
//! use tenure_client::{Client, Options, Put};
//! use std::time::Duration;
//!
//! let client = Client::new(["127.0.0.1:2379"], Options::default())?;
//! let grant = client.grant(Duration::from_secs(10)).await?;
//! let alive = client.keep_alive(&grant);
//! client.put(Put::new("services/web/1", "10.0.0.7:8080").lease(grant.id)).await?;
//! let loss = alive.lost().await;
//! println!("stop working: {loss}");
//! # Ok(()) }
//! ```

pub mod channel;
mod clock;
mod cluster;
pub mod error;
mod keep_alive;
pub mod kv;
pub mod lease;
pub mod watch;

pub use channel::{Client, Options};
pub use clock::Deadline;
pub use error::{ClientError, Outcome};
pub use keep_alive::{Hold, KeepAlive, Loss};
pub use kv::{Compare, Delete, Get, KeyRange, Put, Txn};
pub use lease::{Grant, LeaseId, whole_seconds};
pub use tenure_proto::{etcdserverpb, mvccpb};
pub use watch::{Filter, Notice, Watch, Watcher};
