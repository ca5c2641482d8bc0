//! The wire of Tenure: etcd's v3 messages and services, and gRPC's health check. All of it is generated from `proto/`; there
//! is no logic here, so that every crate can agree on the bytes without agreeing on anything else.
//!
//! * Messages need only `prost`. The feature `grpc` (default) adds clients and servers.
//! * `bytes` fields are [`bytes::Bytes`]: a value is shared with the buffer that it was read from.
//! * A generated server trait has a default for each method that answers `UNIMPLEMENTED`; streams are
//!   `tonic::codegen::BoxStream`.
//! * Rust names are snake case by rote: `TTL` is `ttl`, `grantedTTL` is `granted_ttl`, `peerURLs` is `peer_ur_ls`.

#[cfg(feature = "grpc")]
pub mod codec;

#[allow(clippy::all, missing_docs, reason = "it is generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/modules.rs"));
}

pub use generated::{
    authpb, etcdserverpb, grpc::health::v1 as health, mvccpb, tenure::log, v3electionpb, v3lockpb,
};

/// The whole schema as an encoded `google.protobuf.FileDescriptorSet`, without comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
