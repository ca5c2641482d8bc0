//! What must always hold, and the hashes that show whether two members are equal.

use alloc::sync::Arc;

use crc::{CRC_32_ISCSI, CRC_64_XZ, Crc, Table};

use crate::command::Alarm;
use crate::ids::LeaseId;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::{HashKv, State};

static CRC_32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static CRC_64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

impl State {
    /// etcd's HashKV: CRC32C over the records up to `at` (0 or less: now) that a finished compaction keeps, in
    /// the order of history, in pages of about `limit` records. Pass the returned cursor on until it is done.
    /// Starts over by itself if the store is compacted meanwhile.
    pub fn hash_kv(&self, cursor: HashKv, limit: usize) -> Result<HashKv, Refusal> {
        let compacted = self.mvcc.compacted();
        let at = self.resolve(cursor.at.0)?;
        let mut hash = cursor;
        if hash.at != at || hash.compacted != compacted {
            hash = HashKv { at, compacted, ..HashKv::default() };
        }
        if hash.done {
            return Ok(hash);
        }
        // The CRC's register is its result without the final complement; this crate wants it unreflected.
        let mut digest = CRC_32.digest_with_initial((!hash.hash).reverse_bits());
        hash.done = true;
        for (looked_at, (record, kept)) in self.mvcc.kept_from(hash.cursor).enumerate() {
            if record.at.main > at {
                break;
            }
            if looked_at >= limit.max(1) {
                hash.cursor = record.at;
                hash.done = false;
                break;
            }
            if kept {
                feed_record(record, &mut |bytes| digest.update(bytes));
            }
        }
        hash.hash = digest.finalize();
        Ok(hash)
    }

    /// A hash of everything that is replicated, leases and clock included; equal on equal histories.
    pub fn digest(&self) -> u64 {
        assert!(self.job.is_none(), "there is no state to speak of in the middle of an entry");
        let mut digest = CRC_64.digest();
        let mut feed = |number: u64| digest.update(&number.to_le_bytes());
        let meta = self.meta();
        feed(meta.clock.0);
        feed(meta.revision.0 as u64);
        feed(meta.compacted.0 as u64);
        feed(meta.scrubbed.main.0 as u64);
        feed(u64::from(meta.scrubbed.sub));
        feed(meta.alarms.len() as u64);
        for (member, alarm) in &meta.alarms {
            feed(member.0);
            feed(match alarm {
                Alarm::NoSpace => 1,
                Alarm::Corrupt => 2,
            });
        }
        feed(self.leases.len() as u64);
        for row in self.leases.rows() {
            for number in [row.id.0 as u64, row.ttl.0, row.deadline.0, row.base.0, row.granted.0] {
                feed(number);
            }
            feed(row.parent.0 as u64);
            feed(u64::from(row.depth));
        }
        feed(self.mvcc.record_count() as u64);
        for record in self.mvcc.records() {
            feed_record(record, &mut |bytes| digest.update(bytes));
        }
        digest.finalize()
    }

    /// Panics if the state contradicts itself. For tests and the simulator; takes time in the size of the state.
    pub fn assert_invariants(&self) {
        self.leases.assert_invariants();
        self.mvcc.assert_invariants(self.job.is_some());
        if self.job.is_some() {
            return;
        }
        let mut attached = 0;
        for record in self.mvcc.latest_of_all().filter(|record| !record.lease.is_none()) {
            assert!(self.leases.contains(record.lease), "a key lives no longer than its lease");
            attached += 1;
        }
        let mut on_leases = 0;
        for row in self.leases.rows() {
            let keys = self.leases.keys(row.id);
            on_leases += keys.len();
            for key in &keys {
                let record = self.mvcc.get(key, self.mvcc.revision());
                let lease = record.map_or(LeaseId::NONE, |record| record.lease);
                assert_eq!(lease, row.id, "a lease holds the keys that name it");
            }
        }
        assert_eq!(attached, on_leases, "each key with a lease is on it");
    }
}

/// Lengths go first, so that no two different records feed the same bytes.
fn feed_record(record: &Arc<Record>, feed: &mut dyn FnMut(&[u8])) {
    let lease = record.lease.0;
    for number in [record.at.main.0, i64::from(record.at.sub), record.create.0, record.version, lease] {
        feed(&number.to_le_bytes());
    }
    for bytes in [&record.key, &record.value] {
        feed(&(bytes.len() as u64).to_le_bytes());
        feed(bytes);
    }
}
