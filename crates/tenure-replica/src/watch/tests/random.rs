//! Random lives of a hub against all promises.

use proptest::prelude::*;
use tenure_state::ids::{Nanos, Revision};

use super::validate;
use super::world::{Change, World, range};
use crate::input::{StreamId, WatchCreate, WatchInput};
use crate::watch::WatchConfig;

const KEYS: [&str; 6] = ["a", "a/1", "a/2", "ab", "b", "c"];
const STREAMS: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Vec<Change>>),
    Jump(Vec<Vec<Change>>, Option<i64>),
    /// So many revisions before the present.
    Compact(i64),
    /// The start is relative to the present, or 0.
    Create(u64, WatchCreate, Option<i64>),
    Cancel(u64, i64),
    Progress(u64),
    Take(u64, usize),
    Turn,
    Advance(u64),
    Close(u64),
}

fn revision() -> impl Strategy<Value = Vec<Change>> {
    let size =
        prop_oneof![3 => (0usize..40).prop_map(Some), 1 => (300usize..400).prop_map(Some), 2 => Just(None)];
    prop::sample::subsequence(&KEYS, 1..4)
        .prop_flat_map(move |keys| {
            let count = keys.len();
            (Just(keys), prop::collection::vec(size.clone(), count))
        })
        .prop_map(|(keys, sizes)| keys.into_iter().zip(sizes).collect())
}

fn create() -> impl Strategy<Value = WatchCreate> {
    const RANGES: [(&str, &str); 9] = [
        ("a", ""),
        ("b", ""),
        ("a", "b"),
        ("a/", "a0"),
        ("a", "c"),
        ("a/1", "b"),
        ("b", "\0"),
        ("\0", "\0"),
        ("c", "b"),
    ];
    (
        prop::sample::select(&RANGES[..]),
        0i64..5,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
        any::<[bool; 2]>(),
    )
        .prop_map(|((key, end), id, puts, deletes, [prev, progress])| WatchCreate {
            id,
            puts,
            deletes,
            prev,
            progress,
            ..range(key, end)
        })
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let turn = prop::collection::vec(revision(), 1..4).boxed();
    prop_oneof![
        10 => turn.clone().prop_map(Step::Write),
        1 => (turn, prop::option::of(0i64..4)).prop_map(|(turn, back)| Step::Jump(turn, back)),
        1 => (0i64..12).prop_map(Step::Compact),
        5 => (stream.clone(), create(), prop::option::of(-12i64..4))
            .prop_map(|(stream, create, start)| Step::Create(stream, create, start)),
        2 => (stream.clone(), -1i64..6).prop_map(|(stream, id)| Step::Cancel(stream, id)),
        2 => stream.clone().prop_map(Step::Progress),
        6 => (stream.clone(), 1usize..8).prop_map(|(stream, count)| Step::Take(stream, count)),
        8 => Just(Step::Turn),
        2 => (0u64..150).prop_map(Step::Advance),
        1 => stream.prop_map(Step::Close),
    ]
}

/// Little of everything, so that every bound is met.
fn config() -> WatchConfig {
    WatchConfig {
        credit_bytes: 600,
        credit_total: 1500,
        credit_floor: 100,
        progress_interval: Nanos::from_millis(100),
        replay_limit: 4,
    }
}

fn slices(turn: &[Vec<Change>]) -> Vec<&[Change]> {
    turn.iter().map(Vec::as_slice).collect()
}

fn run(steps: Vec<Step>) -> World {
    let mut world = World::new(config());
    // Streams are never used again once they are closed.
    let mut streams: Vec<u64> = (0..STREAMS).collect();
    for step in steps {
        let present = world.state.revision().0;
        match step {
            Step::Write(turn) => world.write(&slices(&turn)),
            Step::Jump(turn, back) => {
                let compact = back.map_or(0, |back| present - back);
                world.jump(&slices(&turn), compact);
            }
            Step::Compact(back) => {
                if present - back > world.state.compacted().0.max(0) {
                    world.compact(present - back);
                }
            }
            Step::Create(stream, mut create, start) => {
                create.start = start.map_or(0, |start| present + start);
                world.create(streams[stream as usize], create);
            }
            Step::Cancel(stream, id) => world.ask(streams[stream as usize], WatchInput::Cancel { id }),
            Step::Progress(stream) => world.ask(streams[stream as usize], WatchInput::Progress),
            Step::Take(stream, count) => {
                world.take(streams[stream as usize], count);
            }
            Step::Turn => {
                world.turn();
            }
            Step::Advance(ms) => world.advance(Nanos::from_millis(ms)),
            Step::Close(stream) => {
                let place = &mut streams[stream as usize];
                world.ask(*place, WatchInput::Close);
                *place += STREAMS;
            }
        }
        bounded(&world);
    }
    world
}

/// No watch has more under way than its credit, unless one revision alone is more.
fn bounded(world: &World) {
    for stream in world.clients.keys() {
        for (id, (bytes, single)) in world.waiting(stream.0) {
            assert!(bytes <= 600 || single, "watch {id} of {stream:?} has {bytes} bytes waiting");
        }
    }
}

fn check_all(world: &World, complete: Option<Revision>) {
    for (stream, client) in &world.clients {
        for watch in client.running.values().chain(&client.over) {
            let verdict = validate::all(watch, &world.log, complete);
            assert_eq!(verdict, Ok(()), "on {stream:?}: {watch:#?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_watch_keeps_every_promise(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = run(steps);
        check_all(&world, None);

        world.settle();
        check_all(&world, Some(world.state.revision()));
        let stats = world.hub.stats();
        prop_assert_eq!((stats.slow_watchers, stats.pending_events), (0, 0));
        prop_assert_eq!(world.hub.sent_bytes, 0);
        let running: usize = world.clients.values().map(|client| client.running.len()).sum();
        prop_assert_eq!(stats.watchers, running as u64);

        // A stream that is settled answers at once, if it has watches and all of them have begun.
        for stream in world.clients.keys().copied().collect::<Vec<_>>() {
            let present = world.state.revision();
            let started = |client: &super::world::Client| {
                !client.running.is_empty() && client.running.values().all(|watch| watch.create.start <= present.0)
            };
            let due = started(&world.clients[&stream]);
            world.ask(stream.0, WatchInput::Progress);
            world.take_all(stream.0);
            let noted = world.clients[&stream].notes.last() == Some(&present);
            prop_assert!(noted || !due);
        }
        check_all(&world, Some(world.state.revision()));

        for stream in world.clients.keys().copied().collect::<Vec<StreamId>>() {
            world.ask(stream.0, WatchInput::Close);
        }
        world.turns();
        assert_empty(&world);
    }
}

pub(super) fn assert_empty(world: &World) {
    let stats = world.hub.stats();
    assert_eq!((stats.streams, stats.watchers, stats.slow_watchers, stats.pending_events), (0, 0, 0, 0));
    assert_eq!(world.hub.sent_bytes, 0);
    assert_eq!(world.hub.next_deadline(), None);
    assert!(world.hub.behind.is_empty() && world.hub.waiting.is_empty());
    assert!(world.hub.future.is_empty() && world.hub.by_id.is_empty());
    assert_eq!(world.hub.groups.len(), 0);
}
