//! Rebuilding a state from the rows of a checkpoint or a snapshot.
//!
//! The rows come from a disk or from another member, so they are checked as far as they can contradict each
//! other: a damaged checkpoint must be refused and never be served.

use alloc::format;
use alloc::string::{String, ToString};

use crate::applied::{LeaseRow, Meta};
use crate::apply::SLICE_MAX;
use crate::bugs::Bugs;
use crate::ids::{LeaseId, Revision, RevisionAt};
use crate::lease::LeaseTable;
use crate::mvcc::Mvcc;
use crate::record::Record;
use crate::{LoadError, State};

/// Rebuilds a [`State`] from rows: records in ascending order of revision, leases in any order, in between as
/// they come. It remembers the first contradiction and tells it at the end.
pub struct Loader {
    meta: Meta,
    mvcc: Mvcc,
    leases: LeaseTable,
    error: Option<LoadError>,
}

impl Loader {
    pub(crate) fn new(meta: Meta) -> Loader {
        let mvcc = Mvcc::new(meta.revision, meta.compacted, meta.scrubbed);
        let leases = LeaseTable::new(meta.clock);
        let error = check_meta(&meta).err().map(LoadError);
        Loader { meta, mvcc, leases, error }
    }

    pub fn record(&mut self, record: Record) {
        if self.error.is_none() {
            self.error = self.mvcc.load(record).err();
        }
    }

    pub fn lease(&mut self, row: LeaseRow) {
        self.leases.load(row);
    }

    /// Fails with a description if the rows contradict each other: then the checkpoint is damaged.
    pub fn finish(self) -> Result<State, LoadError> {
        let Loader { meta, mut mvcc, mut leases, error, .. } = self;
        if let Some(error) = error {
            return Err(error);
        }
        leases.finish_load().map_err(|what| LoadError(what.to_string()))?;
        for record in mvcc.latest_of_all().filter(|record| !record.lease.is_none()) {
            if !leases.contains(record.lease) {
                let (at, lease) = (record.at, record.lease);
                return Err(LoadError(format!("record {at} is on lease {lease}, which does not live")));
            }
            leases.attach(record.key.clone(), LeaseId::NONE, record.lease);
        }
        mvcc.finish_load()?;
        let alarms = meta.alarms.into_iter().collect();
        Ok(State {
            applied: meta.applied,
            mvcc,
            leases,
            alarms,
            job: None,
            slice_max: SLICE_MAX,
            bugs: Bugs::default(),
        })
    }
}

fn check_meta(meta: &Meta) -> Result<(), String> {
    let (revision, compacted) = (meta.revision, meta.compacted);
    if revision < Revision::FRESH {
        return Err(format!("revision {revision} cannot be"));
    }
    if compacted < Revision::NEVER_COMPACTED || compacted > revision {
        return Err(format!("compact revision {compacted} at revision {revision} cannot be"));
    }
    if meta.scrubbed > (RevisionAt { main: compacted.next(), sub: 0 }) {
        return Err(format!("scrubbed up to {} at compact revision {compacted} cannot be", meta.scrubbed));
    }
    if !meta.alarms.is_sorted_by(|a, b| a < b) {
        return Err("alarms are out of order".to_string());
    }
    Ok(())
}
