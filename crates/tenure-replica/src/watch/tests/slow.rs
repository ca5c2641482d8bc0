//! Readers that do not read: what they cost, and how they come back.

use tenure_state::ids::Revision;

use super::validate;
use super::world::{Change, World, one, range};
use crate::effect::WatchOutput;
use crate::input::{WatchCreate, WatchInput};
use crate::watch::WatchConfig;

/// One event of one byte on a key of one byte weighs 66.
const EVENT_BYTES: usize = 66;

fn config() -> WatchConfig {
    WatchConfig {
        credit_bytes: 3 * EVENT_BYTES as u64,
        credit_total: 1 << 20,
        credit_floor: 2 * EVENT_BYTES as u64,
        ..WatchConfig::default()
    }
}

fn event_count(outputs: &[WatchOutput]) -> usize {
    let count = |output: &WatchOutput| match output {
        WatchOutput::Events { batch, .. } => batch.events.len(),
        _ => 0,
    };
    outputs.iter().map(count).sum()
}

fn check(world: &World, stream: u64) {
    let client = &world.clients[&crate::input::StreamId(stream)];
    for watch in client.running.values().chain(&client.over) {
        assert_eq!(validate::all(watch, &world.log, Some(world.state.revision())), Ok(()));
    }
}

#[test]
fn who_does_not_read_is_left_behind_and_the_others_go_on() {
    let mut world = World::new(config());
    world.create(1, one("a"));
    world.create(2, one("a"));
    let mut read = 0;
    for _ in 0..10 {
        world.put("a");
        world.turns();
        read += event_count(&world.take_all(2));
    }
    assert_eq!(read, 10);
    assert_eq!(world.hub.stats().slow_watchers, 1);
    assert_eq!(world.waiting(1), [(0, (3 * EVENT_BYTES, false))].into());
    assert_eq!(world.hub.stats().pending_events, 3);

    world.settle();
    assert_eq!(world.hub.stats().slow_watchers, 0);
    assert_eq!(world.hub.stats().pending_events, 0);
    check(&world, 1);
    check(&world, 2);
    // It is live again.
    world.put("a");
    assert_eq!(event_count(&world.take_all(1)), 1);
}

#[test]
fn a_slow_reader_goes_on_when_half_of_its_credit_is_back() {
    let mut world = World::new(config());
    world.create(1, one("a"));
    for _ in 0..6 {
        world.put("a");
    }
    assert!(!world.turn());
    world.take(1, 2);
    assert!(!world.turn(), "two of three are on their way still");
    world.take(1, 1);
    world.turn();
    assert_eq!(world.waiting(1), [(0, (3 * EVENT_BYTES, false))].into());
    world.settle();
    check(&world, 1);
}

#[test]
fn credit_counts_from_where_each_watch_stands() {
    let mut world = World::new(config());
    for _ in 0..9 {
        world.put("a");
    }
    for start in [1, 4] {
        world.create(1, WatchCreate { start, ..one("a") });
    }
    // One scan of history for both.
    world.turn();
    assert_eq!(world.waiting(1), [0, 1].map(|id| (id, (3 * EVENT_BYTES, false))).into());
    world.settle();
    check(&world, 1);
}

#[test]
fn a_slow_reader_whose_history_is_compacted_is_told_so() {
    let mut world = World::new(config());
    world.create(1, one("a"));
    for _ in 0..6 {
        world.put("a");
    }
    world.turns();
    world.compact(5);
    world.settle();
    check(&world, 1);

    world.create(2, one("a"));
    for _ in 0..6 {
        world.put("a");
    }
    world.turns();
    world.compact(12);
    world.turns();
    let told = world.take_all(2);
    assert_eq!(event_count(&told), 3, "what was sent is still true");
    world.turns();
    let told = world.take_all(2);
    assert!(matches!(told[..], [WatchOutput::Compacted { id: 0, compacted: Revision(12) }]), "{told:?}");
    check(&world, 2);
}

#[test]
fn one_revision_that_is_over_the_credit_goes_through_alone() {
    let mut world = World::new(config());
    world.create(1, range("a", "z"));
    let large: &[Change] = &[("a", Some(500)), ("b", Some(500))];
    world.write(&[large, large]);
    world.turns();
    let waiting = world.waiting(1);
    assert!(waiting[&0].1, "one revision, and no more: {waiting:?}");
    world.settle();
    check(&world, 1);
    assert_eq!(world.hub.stats().slow_watchers, 0);
}

#[test]
fn watching_and_cancelling_in_turns_queues_no_more_than_one_watch() {
    let mut world = World::new(config());
    for _ in 0..20 {
        world.put("a");
    }
    for _ in 0..50 {
        world.create(1, WatchCreate { start: 1, id: 5, ..one("a") });
        world.turns();
        world.ask(1, WatchInput::Cancel { id: 5 });
    }
    let waiting: usize = world.waiting(1).values().map(|(bytes, _)| bytes).sum();
    assert_eq!(waiting, 3 * EVENT_BYTES);
    world.create(1, WatchCreate { start: 1, id: 6, ..one("a") });
    world.settle();
    check(&world, 1);
    assert_eq!(world.hub.sent_bytes, 0);
}

#[test]
fn those_who_do_not_read_cannot_use_up_what_all_share() {
    let credit_total = 10 * EVENT_BYTES as u64;
    let mut world = World::new(WatchConfig { credit_total, ..config() });
    for stream in 1..=100 {
        world.create(stream, one("a"));
    }
    let mut read = 0;
    for _ in 0..20 {
        world.put("a");
        world.turns();
        read += event_count(&world.take_all(100));
    }
    assert_eq!(read, 20, "one who reads loses nothing");
    // The rest has what all share, and beyond that no more than the floor each.
    let waiting: usize = (1..100).map(|stream| world.waiting(stream).get(&0).map_or(0, |it| it.0)).sum();
    assert!(waiting <= (10 + 99 * 2) * EVENT_BYTES, "{waiting} bytes are waiting");
    world.settle();
    for stream in 1..=100 {
        check(&world, stream);
    }
    assert_eq!(world.state.revision(), Revision(21));
}
