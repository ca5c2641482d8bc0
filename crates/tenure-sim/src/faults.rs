//! What goes wrong in a run, and when. Each run has faults of its own choice: some bugs hide behind too many of them.

use crate::clock::{MS, SEC};
use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed; what it wrote stays.
    Kill,
    /// The process is killed again and again, soon after each start.
    CrashLoop,
    /// The machine loses power: what was not synced may be lost.
    PowerLoss,
    /// A sync fails, and the process ends itself.
    SyncError,
    /// The process does not run for a while.
    Pause,
    /// No operation of the disk ends for a while.
    DiskStall,
    /// Each operation takes longer for a while.
    SlowDisk,
    FullDisk,
    /// The connection of one client breaks.
    Disconnect,
    /// All of them do.
    DisconnectAll,
}

const ALL: [Fault; 10] = [
    Fault::Kill,
    Fault::CrashLoop,
    Fault::PowerLoss,
    Fault::SyncError,
    Fault::Pause,
    Fault::DiskStall,
    Fault::SlowDisk,
    Fault::FullDisk,
    Fault::Disconnect,
    Fault::DisconnectAll,
];

#[derive(Clone, Debug)]
pub struct Faults {
    /// Each kind with the mean time between two of it.
    pub kinds: Vec<(Fault, u64)>,
}

impl Faults {
    /// Of one run in eight none at all, of the others some.
    pub fn choose(rng: &mut Rng) -> Faults {
        if rng.chance(125) {
            return Faults { kinds: Vec::new() };
        }
        let kinds = ALL
            .into_iter()
            .filter_map(|fault| {
                let chosen = rng.chance(450);
                let mean = rng.between(1500 * MS, 20 * SEC);
                chosen.then_some((fault, mean))
            })
            .collect();
        Faults { kinds }
    }
}

impl Fault {
    /// How long it lasts, where it lasts.
    pub fn duration(self, rng: &mut Rng) -> u64 {
        match self {
            Fault::Kill | Fault::CrashLoop | Fault::SyncError => rng.between(5 * MS, 800 * MS),
            Fault::PowerLoss => rng.between(50 * MS, 3 * SEC),
            Fault::Pause => match rng.below(3) {
                0 => rng.between(MS, 100 * MS),
                1 => rng.between(100 * MS, 2 * SEC),
                _ => rng.between(2 * SEC, 12 * SEC),
            },
            Fault::DiskStall => match rng.below(3) {
                0 => rng.between(20 * MS, 400 * MS),
                1 => rng.between(400 * MS, 3 * SEC),
                _ => rng.between(3 * SEC, 9 * SEC),
            },
            Fault::SlowDisk => rng.between(SEC, 10 * SEC),
            Fault::FullDisk => rng.between(SEC, 15 * SEC),
            Fault::Disconnect | Fault::DisconnectAll => 0,
        }
    }
}
