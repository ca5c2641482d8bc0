//! The options of a read that need no store: filters, sorting, limit.
//!
//! Apart from the store, because a long range is collected page by page inside the loop and finished outside.
//! The rules are etcd's, quirks included: clients see them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::applied::Shown;
use crate::command::{Range, Sort, SortOrder, SortTarget};
use crate::record::Record;

/// How many living records in key order [`finish`] needs at most; all of them where it filters or sorts.
pub fn needed(range: &Range) -> usize {
    // As on etcd, a sort target without an order still sorts, but only what the limit let through.
    let all = range.limit <= 0 || has_bounds(range) || !is_key_order(range.sort);
    if range.count_only {
        0
    } else if all {
        usize::MAX
    } else {
        // One more than the limit, which tells whether there is more.
        usize::try_from(range.limit).unwrap_or(usize::MAX).saturating_add(1)
    }
}

/// Makes the answer to `range` out of the living records in key order, of which [`needed`] suffice, or of what
/// [`trim`] left of them. Returns what is left, and whether the limit cut some off.
pub fn finish(mut records: Vec<Arc<Record>>, range: &Range) -> (Vec<Arc<Record>>, bool) {
    records.truncate(needed(range));
    if has_bounds(range) {
        records.retain(|record| is_within_bounds(record, range));
    }
    sort(&mut records, range.sort);
    let limit = usize::try_from(range.limit).unwrap_or(0);
    let more = limit > 0 && records.len() > limit;
    if more {
        records.truncate(limit);
    }
    (records, more)
}

/// How much of each record the answer shows. etcd serves `keys_only` from its index, which knows no leases,
/// unless it needs the values to sort by.
pub fn shown(range: &Range) -> Shown {
    match (range.keys_only, range.sort.target) {
        (false, _) => Shown::All,
        (true, SortTarget::Value) => Shown::NoValue,
        (true, _) => Shown::KeyOnly,
    }
}

/// Drops of the records collected so far what [`finish`] surely would, once there is enough of it to be worth the
/// while. They may be in another order afterwards, which [`finish`] does not mind.
pub fn trim(records: &mut Vec<Arc<Record>>, range: &Range) {
    if records.len() < TRIM_MIN || !is_cut_after_sort(range) {
        return;
    }
    // One more than the limit, which tells whether there is more.
    let keep = usize::try_from(range.limit).unwrap_or(usize::MAX).saturating_add(1);
    if records.len() < keep.saturating_mul(2) {
        return;
    }
    if has_bounds(range) {
        records.retain(|record| is_within_bounds(record, range));
    }
    if records.len() > keep {
        if !is_sorted_as_stored(range.sort) {
            records.select_nth_unstable_by(keep - 1, |a, b| compare(a, b, range.sort));
        }
        records.truncate(keep);
    }
}

/// Fewer records than this are not trimmed.
const TRIM_MIN: usize = 1024;

/// Whether the limit of `range` only cuts once all records were seen.
pub fn is_cut_after_sort(range: &Range) -> bool {
    range.limit > 0 && needed(range) == usize::MAX
}

pub fn has_bounds(range: &Range) -> bool {
    [range.mod_min, range.mod_max, range.create_min, range.create_max].iter().any(|bound| *bound != 0)
}

pub fn is_within_bounds(record: &Record, range: &Range) -> bool {
    let within =
        |revision: i64, min: i64, max: i64| (min == 0 || revision >= min) && (max == 0 || revision <= max);
    within(record.at.main.0, range.mod_min, range.mod_max)
        && within(record.create.0, range.create_min, range.create_max)
}

/// What etcd takes for the order in which its store answers anyway.
fn is_key_order(sort: Sort) -> bool {
    sort.order == SortOrder::None || (sort.target == SortTarget::Key && sort.order == SortOrder::Ascend)
}

fn sort(records: &mut [Arc<Record>], sort: Sort) {
    if !is_sorted_as_stored(sort) {
        records.sort_unstable_by(|a, b| compare(a, b, sort));
    }
}

fn is_sorted_as_stored(sort: Sort) -> bool {
    sort.target == SortTarget::Key && sort.order != SortOrder::Descend
}

/// Equal ones stay in key order on every member; etcd leaves that open.
fn compare(a: &Record, b: &Record, sort: Sort) -> Ordering {
    let ascending = match sort.target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create.cmp(&b.create),
        SortTarget::Mod => a.at.main.cmp(&b.at.main),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    let wanted = if sort.order == SortOrder::Descend { ascending.reverse() } else { ascending };
    wanted.then_with(|| a.key.cmp(&b.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LeaseId, Revision, RevisionAt};
    use crate::key::KeyRange;

    fn record(number: i64) -> Arc<Record> {
        // Of each number that is sorted by, several have the same.
        let mixed = number * 7919 % 5003;
        Arc::new(Record {
            key: alloc::format!("k{number:08}").into(),
            value: alloc::format!("{}", mixed % 300).into(),
            create: Revision(mixed % 400),
            at: RevisionAt { main: Revision(mixed % 500), sub: 0 },
            version: mixed % 200,
            lease: LeaseId::NONE,
        })
    }

    #[test]
    fn trimming_changes_no_answer() {
        use {SortOrder as Order, SortTarget as Target};
        let all: Vec<_> = (0..5000).map(record).collect();
        for target in [Target::Key, Target::Version, Target::Create, Target::Mod, Target::Value] {
            for order in [Order::None, Order::Ascend, Order::Descend] {
                for (limit, mod_min, longest) in [
                    (0, 0, 5000),
                    (0, 499, 5000),
                    (1, 0, 1024),
                    (5, 490, 1024),
                    (700, 0, 1402),
                    (700, 490, 1402),
                ] {
                    let range = Range {
                        range: KeyRange::From("k".into()),
                        revision: 0,
                        limit,
                        sort: Sort { target, order },
                        keys_only: false,
                        count_only: false,
                        mod_min,
                        mod_max: 0,
                        create_min: 0,
                        create_max: 0,
                    };
                    let mut trimmed = Vec::new();
                    for record in &all[..needed(&range).min(all.len())] {
                        trimmed.push(Arc::clone(record));
                        trim(&mut trimmed, &range);
                        assert!(trimmed.len() <= longest, "{range:?} keeps {}", trimmed.len());
                    }
                    assert_eq!(finish(trimmed, &range), finish(all.clone(), &range), "{range:?}");
                }
            }
        }
    }
}
