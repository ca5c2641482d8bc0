//! Known bugs that the simulator puts back, to prove that it sees them.
//!
//! Without the feature `planted-bugs` there is no way to plant one: [`Bugs`] is empty and every question is answered
//! at compile time. Each bug is asked for in one place, where the right code stands beside it.

/// A bug, and the promise (of `guarantees.md`) that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// K2: entries count as durable when they are handed to the disk.
    AnswerBeforeFsync,
    /// K2: the log is written and never synced.
    SkipFsync,
    /// K2: damage within what was synced is cut off like a torn write.
    CutSyncedTail,
    /// K2, K3: the checkpoint's rows are newer than the applied index that it names.
    CheckpointApart,
    /// L1, L4: a renewal is answered when its step is proposed.
    AnswerRenewalEarly,
    /// L1, L4: what is due is found before the renewals of the same entry.
    ExpireById,
    /// L1: a renewal changes no row of the checkpoint.
    RenewalLostAtRestart,
    /// L1, L17: the lease clock runs 5 % fast.
    FastClock,
    /// L2: while nothing happens nobody reads the lease clock, so its cap bites.
    SlowWhenIdle,
    /// L2: a take-over counts from the deadline, not from the last renewal.
    TakeOverWithoutBase,
    /// L3: the keys of a lease go in two revisions.
    KeysInTwoRevisions,
    /// L6: a child may outlive its parent.
    ChildNotCapped,
    /// L1, L8, L17: the leader goes by the lease clock that it knows before it has applied its own take-over.
    ActiveBeforeTakeOver,
    /// L18: the lease clock counts a pause of the process, and expiry does not wait after it.
    CountPause,
    /// W6, W7: a watch that is behind is told of progress.
    NoteBeforeEvents,
    /// W9: a watch that needs what was compacted goes on behind it, without a word.
    EventLostAtCompaction,
}

impl Bug {
    pub const ALL: [Bug; 16] = [
        Bug::AnswerBeforeFsync,
        Bug::SkipFsync,
        Bug::CutSyncedTail,
        Bug::CheckpointApart,
        Bug::AnswerRenewalEarly,
        Bug::ExpireById,
        Bug::RenewalLostAtRestart,
        Bug::FastClock,
        Bug::SlowWhenIdle,
        Bug::TakeOverWithoutBase,
        Bug::KeysInTwoRevisions,
        Bug::ChildNotCapped,
        Bug::ActiveBeforeTakeOver,
        Bug::CountPause,
        Bug::NoteBeforeEvents,
        Bug::EventLostAtCompaction,
    ];
}

/// The bug that is planted, if one is and can be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    #[cfg(feature = "planted-bugs")]
    planted: Option<Bug>,
}

impl Bugs {
    #[cfg(feature = "planted-bugs")]
    pub fn plant(bug: Option<Bug>) -> Bugs {
        Bugs { planted: bug }
    }

    #[cfg(feature = "planted-bugs")]
    pub fn has(self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub fn has(self, _: Bug) -> bool {
        false
    }
}
