//! The options of a read that need no store: filters, sorting, limit.
//!
//! Apart from the store, because a long range is collected page by page inside the loop and finished outside.
//! The rules are etcd's, quirks included: clients see them.

use alloc::sync::Arc;
use alloc::vec::Vec;

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

/// Makes the answer to `range` out of the living records in key order, of which [`needed`] suffice. Returns
/// what is left of them, and whether the limit cut some off.
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

fn has_bounds(range: &Range) -> bool {
    [range.mod_min, range.mod_max, range.create_min, range.create_max].iter().any(|bound| *bound != 0)
}

fn is_within_bounds(record: &Record, range: &Range) -> bool {
    let within =
        |revision: i64, min: i64, max: i64| (min == 0 || revision >= min) && (max == 0 || revision <= max);
    within(record.at.main.0, range.mod_min, range.mod_max)
        && within(record.create.0, range.create_min, range.create_max)
}

/// What etcd takes for the order in which its store answers anyway.
fn is_key_order(sort: Sort) -> bool {
    sort.order == SortOrder::None || (sort.target == SortTarget::Key && sort.order == SortOrder::Ascend)
}

/// Stable, so that equal ones stay in key order on every member; etcd leaves that open.
fn sort(records: &mut [Arc<Record>], sort: Sort) {
    let ascending = |a: &Record, b: &Record| match sort.target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create.cmp(&b.create),
        SortTarget::Mod => a.at.main.cmp(&b.at.main),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match (sort.target, sort.order) {
        (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => {}
        (SortTarget::Key, SortOrder::Descend) => records.reverse(),
        (_, SortOrder::None | SortOrder::Ascend) => records.sort_by(|a, b| ascending(a, b)),
        (_, SortOrder::Descend) => records.sort_by(|a, b| ascending(a, b).reverse()),
    }
}
