//! etcd's ways, one by one, as clients rely on them.

use std::sync::Arc;

use tenure_state::ids::Nanos;

use super::random::assert_empty;
use super::world::{World, one, range};
use crate::effect::WatchOutput;
use crate::input::{StreamId, WatchCreate, WatchInput};
use crate::watch::WatchConfig;

fn world() -> World {
    World::new(WatchConfig::default())
}

/// What stream 1 is told now, in short.
fn told(world: &mut World) -> Vec<String> {
    world.turns();
    world.take_all(1).iter().map(short).collect()
}

fn short(output: &WatchOutput) -> String {
    match output {
        WatchOutput::Created { id, revision } => format!("{id} created at {revision}"),
        WatchOutput::Refused { why, revision } => format!("refused at {revision}: {why}"),
        WatchOutput::Cancelled { id, revision } => format!("{id} cancelled at {revision}"),
        WatchOutput::Compacted { id, compacted } => format!("{id} compacted {compacted}"),
        WatchOutput::Progress { id, revision } => format!("{id} noted {revision}"),
        WatchOutput::Events { id, revision, batch, .. } => {
            let events = batch.events.iter().map(|event| {
                let kind = if event.record.is_tombstone() { "-" } else { "+" };
                let key = std::str::from_utf8(&event.record.key).expect("keys of tests are text");
                format!("{kind}{key}@{}", event.record.at.main)
            });
            format!("{id} at {revision}: {}", events.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Stream 1 is told exactly this.
#[track_caller]
fn check(world: &mut World, wanted: &[&str]) {
    assert_eq!(told(world), wanted);
}

#[test]
fn an_empty_range_a_negative_start_and_a_name_in_use_are_refused() {
    let mut world = world();
    world.put("x");
    world.create(1, range("b", "a"));
    world.create(1, range("b", "b"));
    world.create(1, range("b", "\0"));
    world.create(1, WatchCreate { start: -1, ..one("a") });
    world.create(1, WatchCreate { id: 7, ..one("a") });
    world.create(1, WatchCreate { id: 7, ..one("b") });
    check(
        &mut world,
        &[
            "refused at 2: mvcc: watcher range is empty",
            "refused at 2: mvcc: watcher range is empty",
            "0 created at 2",
            "refused at 2: etcdserver: mvcc: required revision has been compacted",
            "7 created at 2",
            "refused at 2: mvcc: duplicate watch ID provided on the WatchStream",
        ],
    );
    // Names belong to a stream.
    world.create(2, WatchCreate { id: 7, ..one("a") });
    assert_eq!(world.take_all(2).iter().map(short).collect::<Vec<_>>(), ["7 created at 2"]);
}

#[test]
fn names_are_drawn_from_zero_past_those_in_use_and_never_again() {
    let mut world = world();
    for id in [0, 1, 0, 3, 0] {
        world.create(1, WatchCreate { id, ..one("a") });
    }
    world.ask(1, WatchInput::Cancel { id: 4 });
    world.create(1, one("a"));
    world.create(1, WatchCreate { id: 4, ..one("a") });
    check(
        &mut world,
        &[
            "0 created at 1",
            "1 created at 1",
            "2 created at 1",
            "3 created at 1",
            "4 created at 1",
            "4 cancelled at 1",
            "5 created at 1",
            "4 created at 1",
        ],
    );
}

#[test]
fn a_watch_from_now_on_gets_what_comes_later() {
    let mut world = world();
    world.put("a");
    world.create(1, one("a"));
    world.put("a");
    world.put("b");
    world.write(&[&[("a", None)]]);
    check(&mut world, &["0 created at 2", "0 at 3: +a@3", "0 at 5: -a@5"]);
}

#[test]
fn history_is_replayed_from_the_start_on_and_shows_the_present_in_its_header() {
    let mut world = world();
    for _ in 0..3 {
        world.put("a");
    }
    world.put("b");
    world.create(1, WatchCreate { start: 3, ..one("a") });
    // Comes while the watch is behind, and must not overtake.
    world.put("a");
    check(&mut world, &["0 created at 5", "0 at 6: +a@3 +a@4 +a@6"]);
    world.put("a");
    check(&mut world, &["0 at 7: +a@7"]);
}

#[test]
fn the_present_revision_is_history_and_the_next_one_is_not() {
    let mut world = world();
    world.put("a");
    world.create(1, WatchCreate { start: 2, ..one("a") });
    world.create(1, WatchCreate { start: 3, ..one("a") });
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["0 created at 2", "1 created at 2", "0 at 2: +a@2"]);
    world.put("a");
    // In no order among watches: the first one came to the present later.
    check(&mut world, &["1 at 3: +a@3", "0 at 3: +a@3"]);
}

#[test]
fn a_watch_of_the_future_is_silent_until_the_store_gets_there() {
    let mut world = world();
    world.create(1, WatchCreate { start: 4, progress: true, ..one("a") });
    world.write(&[&[("a", Some(1))], &[("a", Some(1))]]);
    world.advance(Nanos::from_secs(700));
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["0 created at 1"]);
    // One batch over the start.
    world.write(&[&[("a", Some(1))], &[("a", Some(1))]]);
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["0 at 5: +a@4 +a@5", "-1 noted 5"]);
}

#[test]
fn a_start_at_the_compact_revision_is_served_and_one_below_is_cancelled() {
    let mut world = world();
    world.put("a");
    world.put("a");
    world.write(&[&[("a", None)]]);
    world.put("b");
    world.compact(4);
    world.create(1, WatchCreate { start: 4, prev: true, ..range("\0", "\0") });
    world.create(1, WatchCreate { start: 3, ..one("a") });
    world.put("b");
    // Who waited for 4 is owed the deletion that happened there.
    let told = told(&mut world);
    assert_eq!(told, ["0 created at 5", "1 created at 5", "1 compacted 4", "0 at 6: -a@4 +b@5 +b@6"]);
    world.ask(1, WatchInput::Cancel { id: 1 });
    check(&mut world, &[]);
}

#[test]
fn a_cancelled_watch_says_so_and_an_unknown_one_says_nothing() {
    let mut world = world();
    world.create(1, one("a"));
    world.put("a");
    world.ask(1, WatchInput::Cancel { id: 0 });
    world.ask(1, WatchInput::Cancel { id: 0 });
    world.ask(1, WatchInput::Cancel { id: 5 });
    world.ask(2, WatchInput::Cancel { id: 0 });
    world.put("a");
    check(&mut world, &["0 created at 1", "0 at 2: +a@2", "0 cancelled at 2"]);
}

#[test]
fn a_turn_of_writes_is_one_response_and_a_revision_is_never_split() {
    let mut world = World::new(WatchConfig { replay_limit: 1, ..WatchConfig::default() });
    world.create(1, range("a", "b"));
    let revisions: [&[_]; 2] =
        [&[("a1", Some(1)), ("b", Some(1)), ("a2", Some(1))], &[("a1", None), ("a2", None)]];
    world.write(&revisions);
    check(&mut world, &["0 created at 1", "0 at 3: +a1@2 +a2@2 -a1@3 -a2@3"]);
    world.create(1, WatchCreate { start: 1, ..range("a", "b") });
    check(&mut world, &["1 created at 3", "1 at 3: +a1@2 +a2@2", "1 at 3: -a1@3 -a2@3"]);
}

#[test]
fn a_batch_that_is_filtered_out_sends_nothing() {
    let mut world = world();
    world.create(1, WatchCreate { puts: false, ..one("a") });
    world.create(1, WatchCreate { deletes: false, ..one("a") });
    world.create(1, WatchCreate { puts: false, deletes: false, ..one("a") });
    world.put("a");
    world.write(&[&[("a", None)]]);
    world.ask(1, WatchInput::Progress);
    check(
        &mut world,
        &["0 created at 1", "1 created at 1", "2 created at 1", "1 at 2: +a@2", "0 at 3: -a@3", "-1 noted 3"],
    );
}

#[test]
fn progress_is_noted_after_a_quiet_interval_only() {
    let interval = Nanos::from_secs(600);
    // The tenth that tells streams apart.
    let longest = Nanos::from_secs(660);
    let mut world = world();
    assert_eq!(world.hub.next_deadline(), None);
    world.create(1, WatchCreate { progress: true, ..one("a") });
    world.create(1, one("b"));
    let due = world.hub.next_deadline().expect("a note is due");
    assert!(due >= world.now + interval && due <= world.now + longest);
    check(&mut world, &["0 created at 1", "1 created at 1"]);

    world.advance(due - world.now);
    world.put("b");
    check(&mut world, &["1 at 2: +b@2", "0 noted 2"]);
    assert!(world.hub.next_deadline().expect("the next one") >= world.now + interval);

    // An interval with an event, then one without.
    world.put("a");
    world.advance(longest);
    check(&mut world, &["0 at 3: +a@3"]);
    world.advance(longest);
    check(&mut world, &["0 noted 3"]);
    world.ask(1, WatchInput::Cancel { id: 0 });
    assert_eq!(world.hub.next_deadline(), None);
}

#[test]
fn streams_that_come_together_are_not_noted_together() {
    let mut world = world();
    for stream in 0..100 {
        world.create(stream, WatchCreate { progress: true, ..one("a") });
    }
    let mut dues: Vec<Nanos> = world.hub.notes.iter().map(|(due, _)| *due).collect();
    dues.dedup();
    assert!(dues.len() > 80);
}

#[test]
fn a_stream_is_told_how_far_it_is_when_all_its_watches_are_there() {
    let mut world = world();
    world.ask(1, WatchInput::Progress);
    world.put("a");
    world.create(1, one("a"));
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["0 created at 2", "-1 noted 2"]);

    // One is behind: the answer waits for it, and is one for two questions.
    world.create(1, WatchCreate { start: 1, ..one("a") });
    world.ask(1, WatchInput::Progress);
    world.put("b");
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["1 created at 2", "1 at 3: +a@2", "-1 noted 3"]);

    // One is of the future: no answer, neither now nor later.
    world.create(1, WatchCreate { start: 5, ..one("a") });
    world.ask(1, WatchInput::Progress);
    world.put("b");
    world.put("b");
    check(&mut world, &["2 created at 3"]);
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["-1 noted 5"]);

    // A watch of the future that is cancelled is in nobody's way.
    world.create(1, WatchCreate { start: 50, ..one("a") });
    world.ask(1, WatchInput::Cancel { id: 3 });
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["3 created at 5", "3 cancelled at 5", "-1 noted 5"]);

    // Of a stream that watches nothing there is nothing to say.
    for id in 0..3 {
        world.ask(1, WatchInput::Cancel { id });
    }
    told(&mut world);
    world.ask(1, WatchInput::Progress);
    check(&mut world, &[]);
}

#[test]
fn progress_is_answered_also_after_a_compaction_cancelled_a_watch() {
    let mut world = world();
    world.put("a");
    world.put("a");
    world.compact(3);
    world.create(1, one("a"));
    world.create(1, WatchCreate { start: 1, ..one("a") });
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["0 created at 3", "1 created at 3", "1 compacted 3", "-1 noted 3"]);
    world.ask(1, WatchInput::Progress);
    check(&mut world, &["-1 noted 3"]);
}

#[test]
fn a_cancel_frees_the_answer_that_waited_for_the_watch() {
    let mut world = world();
    world.put("a");
    world.create(1, one("a"));
    world.create(1, WatchCreate { start: 1, ..one("a") });
    world.ask(1, WatchInput::Progress);
    world.ask(1, WatchInput::Cancel { id: 1 });
    let told: Vec<_> = world.take_all(1).iter().map(short).collect();
    assert_eq!(told, ["0 created at 2", "1 created at 2", "1 cancelled at 2", "-1 noted 2"]);
}

#[test]
fn watches_that_want_the_same_share_what_they_are_sent() {
    let mut world = world();
    for stream in 1..=1000 {
        world.create(stream, range("a", "b"));
    }
    world.create(1001, WatchCreate { prev: true, ..range("a", "b") });
    world.create(1001, WatchCreate { start: 1, ..range("a", "b") });
    world.create(1001, WatchCreate { start: 1, ..range("a", "b") });
    assert_eq!(world.hub.groups.len(), 2);
    world.write(&[&[("a", Some(1))], &[("a", Some(1))]]);
    world.turns();

    let mut batches = Vec::new();
    for stream in 1..=1001 {
        for output in world.take_all(stream) {
            if let WatchOutput::Events { batch, .. } = output {
                assert_eq!(batch.events.len(), 2);
                batches.push(batch);
            }
        }
    }
    assert_eq!(batches.len(), 1003);
    assert!(batches[..1000].iter().all(|batch| Arc::ptr_eq(batch, &batches[0])));
    // Another group packs the version before as well, and history is read another time; once for two.
    assert!(!Arc::ptr_eq(&batches[1000], &batches[0]) && Arc::ptr_eq(&batches[1001], &batches[1002]));
}

#[test]
fn one_who_is_far_behind_does_not_hold_up_one_who_is_nearly_there() {
    let mut world = World::new(WatchConfig { replay_limit: 1, ..WatchConfig::default() });
    for _ in 0..50 {
        world.put("a");
    }
    world.create(1, WatchCreate { start: 1, ..one("b") });
    world.create(2, WatchCreate { start: 50, ..one("a") });
    // They take turns, one revision at a time.
    for _ in 0..4 {
        world.turn();
    }
    let told: Vec<_> = world.take_all(2).iter().map(short).collect();
    assert_eq!(told, ["0 created at 51", "0 at 51: +a@50", "0 at 51: +a@51"]);
    assert_eq!(world.hub.stats().slow_watchers, 1);
    world.turns();
    assert_eq!(world.hub.stats().slow_watchers, 0);
}

#[test]
fn a_snapshot_is_read_from_history_or_its_loss_is_told() {
    let mut world = world();
    world.put("a");
    world.create(1, one("a"));
    world.create(1, WatchCreate { start: 6, ..one("a") });
    check(&mut world, &["0 created at 2", "1 created at 2"]);
    world.jump(&[&[("b", Some(1))], &[("a", Some(1))]], 3);
    world.put("a");
    check(&mut world, &["0 at 5: +a@4 +a@5"]);
    world.jump(&[&[("a", Some(1))], &[("a", Some(1))]], 7);
    check(&mut world, &["0 compacted 7", "1 compacted 7"]);
}

#[test]
fn a_stream_that_closes_takes_all_with_it() {
    let mut world = world();
    world.put("a");
    for key in ["a", "b", "c", "d", "e"] {
        world.create(1, WatchCreate { start: 1, progress: true, ..one(key) });
        world.create(1, WatchCreate { start: 9, ..one(key) });
        world.create(1, one(key));
    }
    world.turns();
    world.put("a");
    assert_eq!(world.hub.stats().watchers, 15);
    assert!(world.hub.stats().pending_events > 0);
    world.ask(1, WatchInput::Close);
    world.turns();
    assert_empty(&world);
    // What is said to it later is of no stream.
    world.ask(1, WatchInput::Credit { id: 0, bytes: 5 });
    world.ask(1, WatchInput::Cancel { id: 0 });
    world.ask(1, WatchInput::Progress);
    world.put("a");
    assert_empty(&world);
    assert!(!world.clients.contains_key(&StreamId(1)));
}

#[test]
fn a_response_holds_no_more_revisions_than_one_of_etcd() {
    // Each revision has an event at least.
    assert!(WatchConfig::default().replay_limit <= 1000);
}

#[test]
#[should_panic(expected = "published before anything else")]
fn what_was_applied_and_not_published_is_our_mistake() {
    let mut world = world();
    world.create(1, one("a"));
    let mut other = self::world();
    other.put("a");
    world.hub.turn(&other.state, world.now, &mut Vec::new());
}
