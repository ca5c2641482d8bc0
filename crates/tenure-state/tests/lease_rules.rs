//! The rules of the lease table, one by one, with numbers that can be checked in the head.

use bytes::Bytes;
use tenure_state::applied::LeaseRow;
use tenure_state::ids::{LeaseId, Nanos};
use tenure_state::lease::{DEPTH_MAX, LeaseTable};
use tenure_state::refusal::Refusal;

const NONE: LeaseId = LeaseId::NONE;
const GRACE: Nanos = Nanos::from_millis(750);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn id(id: i64) -> LeaseId {
    LeaseId(id)
}

fn key(key: &'static str) -> Bytes {
    Bytes::from_static(key.as_bytes())
}

/// At time zero.
fn table() -> LeaseTable {
    LeaseTable::new(Nanos::ZERO)
}

fn grant(table: &mut LeaseTable, lease: i64, ttl_ms: u64, parent: LeaseId) -> LeaseRow {
    let at = table.clock();
    table.grant(id(lease), ms(ttl_ms), parent, at).expect("the test grants what can be granted")
}

fn renew(table: &mut LeaseTable, leases: &[i64]) -> Vec<Option<Nanos>> {
    let ids: Vec<_> = leases.iter().map(|&lease| id(lease)).collect();
    let at = table.clock();
    table.renew(&ids, at, &mut Vec::new()).into_iter().map(|renewed| renewed.remaining).collect()
}

fn take_over(table: &mut LeaseTable) {
    table.take_over(GRACE, &mut Vec::new());
    table.assert_invariants();
}

fn deadline(table: &LeaseTable, lease: i64) -> Nanos {
    table.get(id(lease)).expect("the lease lives").deadline
}

/// Ends what is due now; the roots in order.
fn expire(table: &mut LeaseTable) -> Vec<i64> {
    let mut roots = Vec::new();
    while let Some((lease, _)) = table.next_due(table.clock()) {
        assert_eq!(table.end(lease)[0].id, lease);
        roots.push(lease.0);
    }
    table.assert_invariants();
    roots
}

#[test]
fn a_grant_is_refused_by_the_first_rule_that_it_breaks() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    assert_eq!(table.grant(id(1), ms(1), id(99), Nanos::ZERO), Err(Refusal::LeaseExists));
    assert_eq!(table.grant(id(2), ms(1), id(99), Nanos::ZERO), Err(Refusal::ParentNotFound));
    assert_eq!(table.grant(id(2), ms(1), id(2), Nanos::ZERO), Err(Refusal::ParentNotFound));
    for depth in 1..=i64::from(DEPTH_MAX) {
        grant(&mut table, depth + 1, 1000, id(depth));
    }
    let deepest = i64::from(DEPTH_MAX) + 1;
    assert_eq!(table.get(id(deepest)).map(|row| row.depth), Some(DEPTH_MAX));
    assert_eq!(table.grant(id(deepest + 1), ms(1), id(deepest), Nanos::ZERO), Err(Refusal::TreeTooDeep));
    table.assert_invariants();
    assert_eq!(table.end(id(1)).len(), deepest as usize);
}

#[test]
fn a_lease_ends_at_its_deadline_and_not_a_nanosecond_before() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    assert_eq!(table.next_due(ms(1000) - Nanos(1)), None);
    assert_eq!(table.next_due(ms(1000)), Some((id(1), ms(1000))));
    assert_eq!(table.next_due(ms(1000) - Nanos(1)), None, "looking ahead left something behind");
    assert_eq!(table.next_due(ms(1000)), Some((id(1), ms(1000))), "looking removed it");
}

#[test]
fn a_renewal_answers_what_is_left_on_the_later_of_two_clocks() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    table.advance(ms(400));
    // Stamped before C moved on: the lease gets less than its TTL, and is told so.
    assert_eq!(table.renew(&[id(1)], ms(300), &mut Vec::new())[0].remaining, Some(ms(900)));
    assert_eq!(table.renew(&[id(1)], ms(500), &mut Vec::new())[0].remaining, Some(ms(1000)));
    // An older stamp lowers nothing.
    assert_eq!(table.renew(&[id(1)], ms(100), &mut Vec::new())[0].remaining, Some(ms(1000)));
    assert_eq!(deadline(&table, 1), ms(1500));
    table.advance(ms(1600));
    // Due, but not ended yet: the renewal is earlier in the log and wins.
    assert_eq!(renew(&mut table, &[1]), [Some(ms(1000))]);
    table.advance(ms(2600));
    assert_eq!(expire(&mut table), [1]);
    assert_eq!(renew(&mut table, &[1]), [None]);
}

#[test]
fn a_child_is_renewed_after_its_parent_whatever_their_ids() {
    let mut table = table();
    grant(&mut table, 9, 1000, NONE);
    grant(&mut table, 5, 2000, id(9));
    grant(&mut table, 1, 3000, id(5));
    assert_eq!([deadline(&table, 5), deadline(&table, 1)], [ms(1000), ms(1000)]);
    table.advance(ms(500));
    assert_eq!(renew(&mut table, &[1, 5, 7, 9]), [Some(ms(1000)), Some(ms(1000)), None, Some(ms(1000))]);
    table.advance(ms(600));
    // Without its parent a child gains nothing.
    assert_eq!(renew(&mut table, &[1, 5]), [Some(ms(900)), Some(ms(900))]);
    table.assert_invariants();
}

#[test]
fn only_rows_that_a_renewal_changed_are_told() {
    let mut table = table();
    let row = grant(&mut table, 1, 1000, NONE);
    let mut changed = Vec::new();
    table.renew(&[id(1)], Nanos::ZERO, &mut changed);
    assert_eq!(changed, []);
    table.renew(&[id(1)], ms(1), &mut changed);
    assert_eq!(changed, [LeaseRow { deadline: ms(1001), base: ms(1001), ..row }]);
}

#[test]
fn ties_end_by_deadline_then_depth_then_id() {
    let mut table = table();
    grant(&mut table, 8, 1000, NONE);
    grant(&mut table, 2, 1000, id(8));
    grant(&mut table, 7, 1000, NONE);
    grant(&mut table, -3, 1000, NONE);
    grant(&mut table, 1, 900, id(8));
    grant(&mut table, 3, 1001, NONE);
    table.advance(ms(2000));
    // 2 ends with its parent 8, though its id is lower; 1 ended before on its own.
    assert_eq!(expire(&mut table), [1, -3, 7, 8, 3]);
}

#[test]
fn a_tree_ends_level_by_level_with_its_keys_in_order() {
    let mut table = table();
    grant(&mut table, 50, 1000, NONE);
    for (lease, parent) in [(40, 50), (30, 50), (10, 40), (20, 30), (15, 40)] {
        grant(&mut table, lease, 1000, id(parent));
    }
    for name in ["c", "a", "b"] {
        table.attach(key(name), NONE, id(20));
    }
    assert_eq!(table.weight(id(50)), 9);
    assert_eq!(table.weight(id(30)), 5);
    assert_eq!(table.weight(id(1)), 0);
    let ended = table.end(id(50));
    let ids: Vec<_> = ended.iter().map(|ended| ended.id.0).collect();
    assert_eq!(ids, [50, 30, 40, 10, 15, 20]);
    assert_eq!(ended[5].keys, [key("a"), key("b"), key("c")]);
    assert!(table.is_empty() && table.end(id(50)).is_empty());
    table.assert_invariants();
}

#[test]
fn a_key_is_on_one_lease_at_a_time() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    grant(&mut table, 2, 1000, NONE);
    table.attach(key("a"), NONE, id(1));
    table.attach(key("b"), NONE, id(1));
    table.attach(key("a"), id(1), id(1));
    table.attach(key("a"), id(1), id(2));
    assert_eq!((table.keys(id(1)), table.keys(id(2))), (vec![key("b")], vec![key("a")]));
    table.detach(&key("b"), id(1));
    assert_eq!(table.keys(id(1)), [] as [Bytes; 0]);
    table.end(id(2));
    // Its keys are deleted after it: nothing to take them off any more.
    table.detach(&key("a"), id(2));
    table.attach(key("a"), id(2), id(1));
    assert_eq!(table.keys(id(1)), [key("a")]);
}

#[test]
#[should_panic(expected = "does not have the key")]
fn a_key_taken_off_the_wrong_lease_is_our_mistake() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    table.detach(&key("a"), id(1));
}

#[test]
fn a_take_over_gives_grace_to_what_would_end_within_it() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    grant(&mut table, 2, 1700, NONE);
    grant(&mut table, 3, 2000, NONE);
    table.advance(ms(960));
    let mut changed = Vec::new();
    table.take_over(GRACE, &mut changed);
    assert_eq!(deadline(&table, 1), ms(1710));
    assert_eq!(deadline(&table, 2), ms(1710));
    assert_eq!(deadline(&table, 3), ms(2000));
    assert_eq!(table.get(id(1)).map(|row| row.base), Some(ms(1000)), "only a renewal moves the base");
    assert_eq!(changed.iter().map(|row| row.id.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_lease_shorter_than_the_grace_gets_its_ttl() {
    let mut table = table();
    grant(&mut table, 1, 100, NONE);
    table.advance(ms(90));
    take_over(&mut table);
    assert_eq!(deadline(&table, 1), ms(190));
}

#[test]
fn take_overs_do_not_make_a_lease_immortal() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    grant(&mut table, 2, 100, NONE);
    for take_overs in 1..=10 {
        // Each comes at the very last moment.
        table.advance(deadline(&table, 1));
        take_over(&mut table);
        assert_eq!(deadline(&table, 1), ms((1000 + take_overs * 750).min(1000 + 3 * 750)));
        assert!(deadline(&table, 2) <= ms(100 + 3 * 100));
    }
    assert_eq!(table.clock(), ms(3250));
    assert_eq!(expire(&mut table), [2, 1]);
}

#[test]
fn a_take_over_long_after_the_deadline_is_bounded_by_the_base() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    table.advance(ms(3000));
    take_over(&mut table);
    assert_eq!(deadline(&table, 1), ms(3250), "base + 3 graces is before C + grace");
    table.advance(ms(4000));
    take_over(&mut table);
    assert_eq!(deadline(&table, 1), ms(3250));
    assert_eq!(expire(&mut table), [1]);
}

#[test]
fn a_renewal_lets_the_count_of_graces_start_anew() {
    let mut table = table();
    grant(&mut table, 1, 1000, NONE);
    table.advance(ms(990));
    take_over(&mut table);
    table.advance(ms(1500));
    assert_eq!(renew(&mut table, &[1]), [Some(ms(1000))]);
    table.advance(ms(4600));
    take_over(&mut table);
    assert_eq!(deadline(&table, 1), ms(2500 + 3 * 750));
}

#[test]
fn a_take_over_lifts_children_as_far_as_their_parents() {
    let mut table = table();
    // Ids against depth, so that order by id would be wrong.
    grant(&mut table, 9, 1000, NONE);
    grant(&mut table, 5, 5000, id(9));
    grant(&mut table, 1, 300, id(5));
    table.advance(ms(900));
    take_over(&mut table);
    assert_eq!(deadline(&table, 9), ms(1650));
    assert_eq!(deadline(&table, 5), ms(1650));
    assert_eq!(deadline(&table, 1), ms(1200), "its own TTL is shorter than the grace");
    // The parent's bound of three graces is below what the child would get.
    table.advance(ms(3200));
    take_over(&mut table);
    assert_eq!(deadline(&table, 9), ms(3250));
    assert_eq!(deadline(&table, 5), ms(3250));
    assert_eq!(deadline(&table, 1), ms(1200));
}

#[test]
fn the_longest_ttl_and_the_end_of_time_are_times_like_others() {
    let mut table = table();
    let longest = Nanos::from_secs(9_000_000_000);
    table.grant(id(1), longest, NONE, Nanos::ZERO).expect("nothing is in the way");
    table.grant(id(2), Nanos::MAX, NONE, ms(5)).expect("nothing is in the way");
    assert_eq!(table.next_due(longest - Nanos(1)), None);
    assert!(table.next_due_bound().is_some_and(|bound| bound <= longest));
    table.assert_invariants();
    table.advance(longest);
    table.take_over(Nanos::MAX, &mut Vec::new());
    table.assert_invariants();
    assert_eq!(deadline(&table, 1), longest + longest);
    table.advance(Nanos::MAX);
    assert_eq!(expire(&mut table), [1, 2]);
}

#[test]
fn damaged_rows_are_refused_by_name() {
    let row = |lease: i64, parent: i64, depth: u32, deadline: u64| LeaseRow {
        id: id(lease),
        ttl: ms(1000),
        deadline: ms(deadline),
        base: ms(500),
        granted: Nanos::ZERO,
        parent: id(parent),
        depth,
    };
    let load = |rows: &[LeaseRow]| {
        let mut table = table();
        rows.iter().for_each(|row| table.load(*row));
        table.finish_load()
    };
    assert_eq!(load(&[row(2, 1, 1, 900), row(1, 0, 0, 1000)]), Ok(()));
    for (rows, text) in [
        (vec![row(0, 0, 0, 900)], "no id"),
        (vec![row(1, 0, 0, 900), row(1, 0, 0, 900)], "same id"),
        (vec![row(2, 1, 1, 900)], "missing"),
        (vec![row(1, 1, 1, 900)], "another depth"),
        (vec![row(1, 0, 1, 900)], "not at depth 0"),
        (vec![row(1, 0, 0, 1000), row(2, 1, 2, 900)], "another depth"),
        (vec![row(1, 0, 0, 1000), row(2, 1, 1, 1001)], "after its parent"),
        (vec![row(1, 0, 0, 400)], "before its last renewal"),
        (vec![row(1, 2, DEPTH_MAX + 1, 900)], "deeper"),
    ] {
        let error = load(&rows).expect_err(text);
        assert!(error.contains(text), "{error:?} does not say {text:?}");
    }
}
