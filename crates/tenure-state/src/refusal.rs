//! The deterministic "no": the only error that apply can return, the same on every member.

use thiserror::Error;

/// Why a valid command changed nothing. It is an answer, never a failure: a local failure during apply
/// (memory, disk, a checksum) stops the member instead. The edge turns each into etcd's exact code and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("key not found")]
    KeyNotFound,
    #[error("required revision has been compacted")]
    Compacted,
    #[error("required revision is a future revision")]
    FutureRevision,
    #[error("requested lease not found")]
    LeaseNotFound,
    #[error("lease already exists")]
    LeaseExists,
    /// The parent that a grant names does not live.
    #[error("parent lease not found")]
    ParentNotFound,
    /// A lease under this parent would be deeper than [`crate::lease::DEPTH_MAX`].
    #[error("lease tree is too deep")]
    TreeTooDeep,
    #[error("database space exceeded")]
    NoSpace,
    /// The member that would apply this is known to differ from the others.
    #[error("corrupt cluster")]
    Corrupt,
    /// A lease entry that the leader of another term stamped: a leftover, never to be obeyed.
    #[error("entry of a deposed leader")]
    StaleTerm,
}
