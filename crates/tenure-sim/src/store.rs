//! The checkpoint of a member: folds what changed and commits it now and then, in one step, as the server's does.

use std::collections::BTreeMap;

use tenure_replica::effect::{Checkpoint, Membership};
use tenure_replica::row::{self, Head, RowKey};
use tenure_replica::wal::Origin;
use tenure_state::applied::{Change, Meta};

/// Rows that changed since the last commit; of one row the last change counts.
#[derive(Default)]
pub struct Folded {
    head: Option<(Meta, u64, Membership)>,
    changes: BTreeMap<RowKey, Change>,
}

impl Folded {
    pub fn add(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { meta, term, membership, changes } = checkpoint;
        self.head = Some((meta, term, membership));
        self.changes.extend(changes.into_iter().map(|change| (RowKey::of(&change), change)));
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The applied index as of which the rows are.
    pub fn applied(&self) -> u64 {
        self.head.as_ref().map_or(0, |(meta, ..)| meta.applied)
    }

    pub fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// Puts everything into the rows of a store, at once.
    pub fn commit(&self, origin: Origin, rows: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        let Some((meta, term, membership)) = &self.head else { return };
        for (key, change) in &self.changes {
            let key = key.encode().to_vec();
            match row::encode_change(change) {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        rows.insert(RowKey::Format.encode().to_vec(), row::encode_format(origin));
        rows.insert(RowKey::Membership.encode().to_vec(), row::encode_membership(membership));
        let head_key = RowKey::Head.encode().to_vec();
        let row_count = rows.len() as u64 + u64::from(!rows.contains_key(&head_key));
        rows.insert(head_key, row::encode_head(&Head { meta: meta.clone(), term: *term, row_count }));
    }
}
