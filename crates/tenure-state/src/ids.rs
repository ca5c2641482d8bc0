//! The numbers that the whole system speaks in, each a type of its own so that they cannot be mixed up.

use core::fmt;
use core::ops::{Add, Sub};

/// A span or a reading of the lease clock, in nanoseconds.
///
/// The lease clock is replicated state, not anybody's own clock: it moves only by what the log says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }

    pub const fn saturating_mul(self, factor: u64) -> Nanos {
        Nanos(self.0.saturating_mul(factor))
    }
}

impl Add for Nanos {
    type Output = Nanos;

    /// Saturates: a deadline beyond the end of time is the end of time.
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    /// Panics below zero, which is always our mistake; use [`Nanos::saturating_sub`] where it may happen.
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.checked_sub(other.0).expect("a time span is never negative"))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The main revision of the store: one step for each write that changed at least one key.
///
/// Signed because it is signed on etcd's wire. A fresh store is at revision 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    pub const ZERO: Revision = Revision(0);
    /// The revision of a store that nobody has written to.
    pub const FRESH: Revision = Revision(1);
    /// The compact revision of a store that was never compacted, as on etcd.
    pub const NEVER_COMPACTED: Revision = Revision(-1);

    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    #[must_use]
    pub const fn before(self) -> Revision {
        Revision(self.0 - 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where one record stands in history: the revision and the place within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionAt {
    pub main: Revision,
    pub sub: u32,
}

impl fmt::Display for RevisionAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

/// The name of a lease. Any number but 0, negative ones included, as on etcd; 0 says "no lease".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// "No lease": what a key without a lease carries.
    pub const NONE: LeaseId = LeaseId(0);

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for LeaseId {
    /// Sixteen hex digits, as people know lease ids from etcdctl.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of a member of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}
