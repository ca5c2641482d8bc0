//! Compaction that nobody has to ask for, by etcd's two rules: a number of revisions, or a span of time.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_replica::effect::Failure;
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::ids::Revision;
use tenure_state::refusal::Refusal;
use tokio::time::{Instant, sleep};

use crate::config::AutoCompaction;
use crate::handle::Handle;

/// How often the revision rule looks.
const REVISIONS_EVERY: Duration = Duration::from_secs(5 * 60);
/// A span is sampled so often, a long one at least so often.
const SAMPLES_PER_SPAN: u32 = 10;
const SAMPLE_EVERY_MAX: Duration = Duration::from_secs(6 * 60);

/// Compacts until the loop is gone.
pub(crate) async fn run(handle: Handle, rule: AutoCompaction) {
    match rule {
        AutoCompaction::Revisions(keep) => by_revisions(handle, keep).await,
        AutoCompaction::Periodic(span) => by_span(handle, span).await,
    }
}

async fn by_revisions(handle: Handle, keep: i64) {
    loop {
        sleep(REVISIONS_EVERY).await;
        let Some(current) = current(&handle).await else { return };
        if current.0 > keep && !compact(&handle, Revision(current.0 - keep)).await {
            return;
        }
    }
}

async fn by_span(handle: Handle, span: Duration) {
    let every = (span / SAMPLES_PER_SPAN).min(SAMPLE_EVERY_MAX).max(Duration::from_millis(10));
    let mut samples: VecDeque<(Instant, Revision)> = VecDeque::new();
    loop {
        let Some(current) = current(&handle).await else { return };
        samples.push_back((Instant::now(), current));
        let mut old = None;
        while let Some((taken, revision)) = samples.front().copied() {
            if taken.elapsed() < span {
                break;
            }
            old = Some(revision);
            samples.pop_front();
        }
        if let Some(revision) = old
            && !compact(&handle, revision).await
        {
            return;
        }
        sleep(every).await;
    }
}

/// `None` when the loop is gone.
async fn current(handle: &Handle) -> Option<Revision> {
    handle.read(Read::Status, Consistency::Serializable).await.ok().map(|(header, _)| header.revision)
}

/// False when the loop is gone.
async fn compact(handle: &Handle, revision: Revision) -> bool {
    match handle.write(Write::Compact { revision, physical: false }).await {
        Ok(_) => tracing::info!(revision = revision.0, "compacted by the auto-compaction rule"),
        // Nothing was written since the last time, or somebody compacted further by hand.
        Err(Failure::Refused(Refusal::Compacted)) => {}
        Err(Failure::Stopped) => return false,
        Err(failure) => {
            tracing::warn!(revision = revision.0, %failure, "auto-compaction will be tried again")
        }
    }
    true
}
