//! Puts bugs back that others had, and looks whether the simulator sees them: each within 300 seeds, while the same
//! seeds are good without it.
//!
//! Each has a seed that is known to show it, so that this test is quick; where that one does not show it any more,
//! because the workload changed, the search begins anew and the message says what to write here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_state::bugs::Bug;

const SEEDS_MAX: u64 = 300;

/// What a run breaks; a panic counts as an invariant.
fn broken(seed: u64, bug: Option<Bug>) -> Vec<String> {
    let run = catch_unwind(AssertUnwindSafe(|| tenure_sim::run(seed, bug, false)));
    match run {
        Ok(run) => run.violations.into_iter().map(|violation| violation.promise.to_owned()).collect(),
        Err(_) => vec!["an invariant".to_owned()],
    }
}

/// Finds the bug by breaking one of `promises`.
fn finds(bug: Bug, known: u64, promises: &[&str]) {
    // Panics are among what is looked for; nobody wants to read about hundreds of them.
    std::panic::set_hook(Box::new(|_| {}));
    let shows = |seed| broken(seed, Some(bug)).iter().any(|promise| promises.contains(&promise.as_str()));
    let found = if shows(known) { Some(known) } else { (1..=SEEDS_MAX).find(|seed| shows(*seed)) };
    let good = found.map(|seed| broken(seed, None));
    let _ = std::panic::take_hook();
    let found = found.unwrap_or_else(|| panic!("{bug:?} was not seen breaking {promises:?}"));
    assert_eq!(good, Some(Vec::new()), "seed {found} is not good without {bug:?} either");
    if found != known {
        eprintln!("{bug:?} is shown by seed {found} now: write it into this test");
    }
}

#[test]
fn what_is_answered_before_it_is_durable_is_seen() {
    finds(Bug::AnswerBeforeFsync, 3, &["K1", "K2", "K5"]);
}

#[test]
fn a_log_that_is_never_synced_is_seen() {
    finds(Bug::SkipFsync, 1, &["K1", "K2", "K5"]);
}

#[test]
fn damage_that_is_cut_like_a_torn_write_is_seen() {
    finds(Bug::CutSyncedTail, 3, &["K2"]);
}

#[test]
fn a_checkpoint_whose_rows_are_newer_than_its_applied_index_is_seen() {
    finds(Bug::CheckpointApart, 1, &["K1", "K2", "K3", "K5"]);
}

#[test]
fn a_renewal_that_is_answered_before_it_is_in_the_log_is_seen() {
    finds(Bug::AnswerRenewalEarly, 1, &["L1", "L4"]);
}

#[test]
fn expiry_by_id_without_a_look_at_the_deadline_is_seen() {
    finds(Bug::ExpireById, 4, &["L1", "L4"]);
}

#[test]
fn a_renewal_that_is_lost_at_a_restart_is_seen() {
    finds(Bug::RenewalLostAtRestart, 1, &["L1", "K7"]);
}

#[test]
fn a_lease_clock_that_runs_fast_is_seen() {
    finds(Bug::FastClock, 1, &["L1", "L17"]);
}

#[test]
fn a_lease_clock_that_runs_slow_when_idle_is_seen() {
    finds(Bug::SlowWhenIdle, 1, &["L2"]);
}

#[test]
fn take_overs_that_make_leases_immortal_is_seen() {
    finds(Bug::TakeOverWithoutBase, 4, &["L2"]);
}

#[test]
fn keys_of_a_lease_in_two_revisions_is_seen() {
    finds(Bug::KeysInTwoRevisions, 1, &["L3"]);
}

#[test]
fn a_child_that_outlives_its_parent_is_seen() {
    finds(Bug::ChildNotCapped, 1, &["L6", "K2", "an invariant"]);
}

#[test]
fn a_leader_that_does_not_wait_for_its_take_over_is_seen() {
    finds(Bug::ActiveBeforeTakeOver, 73, &["L1", "L2", "L8", "L17"]);
}

#[test]
fn a_lease_clock_that_counts_a_pause_is_seen() {
    finds(Bug::CountPause, 7, &["L18"]);
}

#[test]
fn a_note_of_progress_before_its_events_is_seen() {
    finds(Bug::NoteBeforeEvents, 3, &["W6", "W7"]);
}

#[test]
fn a_watch_event_that_is_lost_at_compaction_is_seen() {
    finds(Bug::EventLostAtCompaction, 6, &["W9"]);
}
