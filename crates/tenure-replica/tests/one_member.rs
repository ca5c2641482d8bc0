//! One member, driven by hand: time is a number, the disk says when it is done.

use bytes::Bytes;
use tenure_replica::effect::{Answer, Append, Effect, Failure, WatchOutput};
use tenure_replica::input::{Consistency, Input, Read, StreamId, Ticket, WatchCreate, WatchInput, Write};
use tenure_replica::watch::WatchConfig;
use tenure_replica::{Config, Replica, Start};
use tenure_state::applied::Reply;
use tenure_state::command::{
    Compare, CompareResult, CompareTarget, DeleteRange, Op, Put, PutLease, Range, Sort, SortOrder,
    SortTarget, Txn,
};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision};
use tenure_state::key::KeyRange;

const MEMBER: MemberId = MemberId(0x8e9e_05c5_2164_694d);

fn config(incarnation: u64) -> Config {
    Config {
        member: MEMBER,
        incarnation,
        seed: 7,
        election_timeout: Nanos::from_secs(1),
        request_timeout: Nanos::from_secs(7),
        grace: Nanos::from_millis(750),
        quota_bytes: 0,
        watch: WatchConfig::default(),
    }
}

/// A replica with a disk that keeps what is appended and syncs when it is told.
struct Member {
    replica: Replica,
    now: Nanos,
    disk: Vec<Append>,
    synced: usize,
    answers: Vec<(Ticket, Result<Answer, Failure>)>,
    watched: Vec<(StreamId, WatchOutput)>,
    next_ticket: u64,
    disk_works: bool,
    /// Applied index of the rows that were handed over for the checkpoint.
    handed: u64,
    /// The same when it was last asked to be written at once.
    flushed: Option<u64>,
}

impl Member {
    fn start() -> Member {
        let now = Nanos::from_secs(100);
        Member::with(Replica::new(config(1), Start::fresh(MEMBER), now), now)
    }

    fn unstarted() -> Member {
        let now = Nanos::from_secs(100);
        Member::around(Replica::new(config(1), Start::fresh(MEMBER), now), now)
    }

    fn with(replica: Replica, now: Nanos) -> Member {
        let mut member = Member::around(replica, now);
        member.run(Nanos::from_millis(50));
        member
    }

    fn around(replica: Replica, now: Nanos) -> Member {
        Member {
            replica,
            now,
            disk: Vec::new(),
            synced: 0,
            answers: Vec::new(),
            watched: Vec::new(),
            next_ticket: 1,
            disk_works: true,
            handed: 0,
            flushed: None,
        }
    }

    /// What a crash leaves: only what was synced.
    fn crash(self) -> Member {
        Member::with(Replica::new(config(2), self.on_disk(), self.now), self.now)
    }

    fn on_disk(&self) -> Start {
        let mut start = Start::fresh(MEMBER);
        for append in &self.disk[..self.synced] {
            for entry in &append.entries {
                start.entries.truncate(entry.index as usize - 1);
                start.entries.push(entry.clone());
            }
            start.hard_state = append.hard_state.unwrap_or(start.hard_state);
        }
        start
    }

    fn turn(&mut self, inputs: Vec<Input>) {
        for effect in self.replica.step(self.now, inputs) {
            match effect {
                Effect::Append(append) => self.disk.push(append),
                Effect::Answer { ticket, answer, .. } => self.answers.push((ticket, answer)),
                Effect::Watch { stream, output } => self.watched.push((stream, output)),
                Effect::Checkpoint(checkpoint) => self.handed = checkpoint.meta.applied,
                Effect::FlushCheckpoint => self.flushed = Some(self.handed),
                Effect::CutLog { .. } => {}
            }
        }
    }

    fn sync(&mut self) {
        if self.synced < self.disk.len() {
            self.synced = self.disk.len();
            let batch = self.disk[self.synced - 1].batch;
            self.turn(vec![Input::Appended { batch }]);
        }
    }

    /// Lets time pass, taking turns when the replica wants them.
    fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            self.turn(Vec::new());
            while self.disk_works && self.synced < self.disk.len() {
                self.sync();
            }
            let next = self.replica.next_deadline(self.now);
            if next > end {
                self.now = end;
                return;
            }
            // A turn takes a little time even when there is nothing to wait for.
            self.now = next.max(self.now + Nanos(20_000));
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn ask(&mut self, write: Write) -> Ticket {
        let ticket = self.ticket();
        self.turn(vec![Input::Write { ticket, write }]);
        ticket
    }

    fn answer(&mut self, ticket: Ticket) -> Option<Result<Answer, Failure>> {
        let at = self.answers.iter().position(|(answered, _)| *answered == ticket)?;
        Some(self.answers.remove(at).1)
    }

    fn write(&mut self, write: Write) -> Result<Reply, Failure> {
        let ticket = self.ask(write);
        self.run(Nanos::from_millis(5));
        match self.answer(ticket).expect("the disk works, so it is answered")? {
            Answer::Applied(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, key: &str, lease: i64) -> Result<Reply, Failure> {
        self.write(put(key, lease))
    }

    fn grant(&mut self, id: i64, ttl: Nanos) {
        self.write(Write::Grant { id: LeaseId(id), ttl, parent: LeaseId::NONE }).expect("a new lease");
    }

    fn renew(&mut self, ids: &[i64]) -> Vec<Option<Nanos>> {
        let ticket = self.ticket();
        self.turn(vec![Input::Renew { ticket, ids: ids.iter().copied().map(LeaseId).collect() }]);
        self.run(Nanos::from_millis(5));
        match self.answer(ticket).expect("renewals are answered").expect("the leader is active") {
            Answer::Renewed(renewed) => renewed.into_iter().map(|renewed| renewed.remaining).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, consistency: Consistency) -> Ticket {
        let ticket = self.ticket();
        self.turn(vec![Input::Read { ticket, read: Read::Range(all()), consistency }]);
        ticket
    }

    fn keys(&mut self) -> Vec<Bytes> {
        let ticket = self.read(Consistency::Linearizable);
        self.run(Nanos::from_millis(5));
        match self.answer(ticket).expect("reads are answered").expect("the leader is active") {
            Answer::Page(page) => page.records.iter().map(|record| record.key.clone()).collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn put(key: &str, lease: i64) -> Write {
    Write::Put(Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::from_static(b"v")),
        lease: PutLease::Set(LeaseId(lease)),
        prev: false,
    })
}

fn all() -> Range {
    Range {
        range: KeyRange::From(Bytes::from_static(&[0])),
        revision: 0,
        limit: 0,
        sort: Sort::default(),
        keys_only: false,
        count_only: false,
        mod_min: 0,
        mod_max: 0,
        create_min: 0,
        create_max: 0,
    }
}

#[test]
fn a_put_is_answered_only_when_it_is_durable() {
    let mut member = Member::start();
    member.disk_works = false;
    let ticket = member.ask(put("a", 0));
    member.run(Nanos::from_millis(20));
    assert!(member.answer(ticket).is_none(), "answered before the disk was done");
    member.disk_works = true;
    member.run(Nanos::from_millis(1));
    assert!(matches!(member.answer(ticket), Some(Ok(Answer::Applied(Reply::Put(_))))));
}

#[test]
fn what_was_answered_survives_a_crash() {
    let mut member = Member::start();
    member.put("a", 0).expect("a put");
    member.disk_works = false;
    let lost = member.ask(put("b", 0));
    member.run(Nanos::from_millis(20));
    assert!(member.answer(lost).is_none());
    let mut member = member.crash();
    assert_eq!(member.keys(), ["a"]);
}

#[test]
fn a_lease_ends_on_time_with_its_key_and_never_early() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_millis(1500));
    let granted = member.now;
    member.put("a", 1).expect("a put on a living lease");
    member.run(Nanos::from_millis(1480));
    assert_eq!(member.keys(), ["a"], "ended early");
    member.run(Nanos::from_millis(30));
    assert!(member.now < granted + Nanos::from_millis(1550));
    assert_eq!(member.keys(), [""; 0], "ended late");
}

#[test]
fn a_renewal_rolls_the_end_forward_and_a_late_one_is_told_so() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(1));
    for _ in 0..5 {
        member.run(Nanos::from_millis(700));
        let remaining = member.renew(&[1])[0].expect("it was renewed in time");
        assert!(remaining > Nanos::from_millis(990) && remaining <= Nanos::from_secs(1), "{remaining}");
    }
    member.run(Nanos::from_millis(1100));
    assert_eq!(member.renew(&[1, 2]), [None, None]);
}

#[test]
fn a_pause_of_the_process_costs_no_lease_that_renews() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(1));
    // Nobody took a turn for three times the TTL; the renewal waits in the socket.
    member.now = member.now + Nanos::from_secs(3);
    assert!(member.renew(&[1])[0].is_some());
}

#[test]
fn a_pause_of_the_process_fails_no_write_that_its_disk_has() {
    let mut member = Member::start();
    member.disk_works = false;
    let ticket = member.ask(put("a", 0));
    member.now = member.now + Nanos::from_secs(20);
    member.turn(Vec::new());
    member.disk_works = true;
    member.run(Nanos::from_millis(5));
    assert!(matches!(member.answer(ticket), Some(Ok(_))));
}

#[test]
fn a_disk_that_stalls_stops_the_lease_clock() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(2));
    member.disk_works = false;
    member.run(Nanos::from_secs(10));
    member.disk_works = true;
    assert!(member.renew(&[1])[0].is_some(), "the outage was counted against the lease");
}

#[test]
fn a_restart_gives_a_lease_the_grace_of_a_take_over_and_not_its_ttl_again() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(3));
    member.put("a", 1).expect("a put");
    member.run(Nanos::from_secs(2));
    let mut member = member.crash();
    member.run(Nanos::from_millis(700));
    assert_eq!(member.keys(), ["a"]);
    // A second was left at most, the stamp may be a second old.
    member.run(Nanos::from_millis(1500));
    assert_eq!(member.keys(), [""; 0]);
}

#[test]
fn a_read_asked_after_the_deadline_does_not_see_the_key() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_millis(500));
    member.put("a", 1).expect("a put");
    let deadline = member.now + Nanos::from_millis(520);
    // Turns come often, so that the clock is up to date, but the disk holds every step back.
    while member.now < deadline {
        member.run(Nanos::from_millis(10));
    }
    member.disk_works = false;
    let ticket = member.read(Consistency::Linearizable);
    member.run(Nanos::from_millis(10));
    member.disk_works = true;
    member.run(Nanos::from_millis(10));
    let Some(Ok(Answer::Page(page))) = member.answer(ticket) else { panic!("the read was answered") };
    assert_eq!(page.records.len(), 0);
}

#[test]
fn leases_due_together_end_in_revisions_of_their_own_in_the_order_of_their_deadlines() {
    let mut member = Member::start();
    for id in [3, 1, 2] {
        member.grant(id, Nanos::from_millis(400));
        member.put(&format!("k{id}"), id).expect("a put");
    }
    let stream = StreamId(1);
    let create = WatchCreate {
        id: 0,
        range: KeyRange::From(Bytes::from_static(&[0])),
        start: 0,
        puts: true,
        deletes: true,
        prev: false,
        progress: false,
    };
    member.turn(vec![Input::Watch { stream, request: WatchInput::Create(create) }]);
    // As if the process had slept over all three deadlines.
    member.now = member.now + Nanos::from_secs(1);
    member.run(Nanos::from_secs(1));
    let events: Vec<(Bytes, i64)> = member
        .watched
        .iter()
        .filter_map(|(_, output)| match output {
            WatchOutput::Events { batch, .. } => Some(&batch.events),
            _ => None,
        })
        .flat_map(|events| events.iter().map(|event| (event.record.key.clone(), event.record.at.main.0)))
        .collect();
    assert_eq!(events, [("k3".into(), 5), ("k1".into(), 6), ("k2".into(), 7)]);
}

#[test]
fn long_ranges_come_in_pages_and_bounded_turns() {
    let count = 25_000;
    let mut member = full(count);
    let ticket = member.read(Consistency::Linearizable);
    let mut records = 0;
    loop {
        member.run(Nanos::from_millis(5));
        let Some(Ok(Answer::Page(page))) = member.answer(ticket) else {
            panic!("a page is answered by a page")
        };
        assert!(page.records.len() <= 1000);
        records += page.records.len();
        if let Some(total) = page.count {
            assert_eq!(total, count as i64);
            break;
        }
        member.turn(vec![Input::NextPage { ticket }]);
    }
    assert_eq!(records, count as usize);
}

/// A member with `count` keys of the form `k%08d`.
fn full(count: u64) -> Member {
    let mut member = Member::start();
    let keys: Vec<u64> = (0..count).collect();
    for keys in keys.chunks(4000) {
        let put =
            |n: &u64| Input::Write { ticket: Ticket(1_000_000 + n), write: put(&format!("k{n:08}"), 0) };
        member.turn(keys.iter().map(put).collect());
        member.run(Nanos::from_millis(50));
    }
    member
}

/// A transaction of sorted ranges over everything, behind a comparison that looks at everything.
fn long_txn(ranges: usize) -> Read {
    let sort = Sort { target: SortTarget::Value, order: SortOrder::Descend };
    let range = Range { sort, limit: 1, ..all() };
    let compare =
        Compare { range: all().range, result: CompareResult::Equal, target: CompareTarget::Version(1) };
    Read::Txn(Txn {
        compare: vec![compare],
        success: vec![Op::Range(range); ranges],
        failure: vec![Op::Range(all())],
    })
}

#[test]
fn long_transactions_come_in_pages_and_bounded_turns() {
    let mut member = full(25_000);
    let ticket = member.ticket();
    let consistency = Consistency::Serializable;
    member.turn(vec![Input::Read { ticket, read: long_txn(3), consistency }]);
    let mut counts = Vec::new();
    let mut turns = 1;
    loop {
        let Some(answer) = member.answer(ticket) else {
            assert!(member.replica.next_deadline(member.now) <= member.now, "it goes on at once");
            member.turn(Vec::new());
            turns += 1;
            continue;
        };
        let Ok(Answer::Txn(page)) = answer else { panic!("a transaction is answered by a page") };
        assert!(page.succeeded);
        assert!(page.ranges.iter().map(|range| range.records.len()).sum::<usize>() < 2000);
        counts.extend(page.ranges.iter().filter_map(|range| range.count));
        if page.done {
            break;
        }
        member.turn(vec![Input::NextPage { ticket }]);
        turns += 1;
    }
    assert_eq!(counts, [25_000; 3]);
    assert!(turns > 25_000 * 4 / 8000, "{turns} turns for what is too much for that");
}

#[test]
fn a_read_that_is_forgotten_costs_nothing_any_more() {
    let mut member = full(25_000);
    for consistency in [Consistency::Serializable, Consistency::Linearizable] {
        for read in [long_txn(100), Read::Range(all()), Read::HashKv { revision: Revision(0) }] {
            // Before it was confirmed, and while it is read.
            for inputs in [1, 2] {
                let ticket = member.ticket();
                let asked = Input::Read { ticket, read: read.clone(), consistency };
                let forgotten = Input::Forget { ticket };
                match inputs {
                    1 => member.turn(vec![asked, forgotten]),
                    _ => {
                        member.turn(vec![asked]);
                        member.turn(Vec::new());
                        member.turn(vec![forgotten]);
                    }
                }
                // The page that was on its way.
                drop(member.answer(ticket));
                for _ in 0..3 {
                    member.turn(Vec::new());
                    assert!(member.answer(ticket).is_none());
                }
                assert!(member.replica.next_deadline(member.now) > member.now, "{read:?} goes on");
                member.turn(vec![Input::NextPage { ticket }]);
                let refused = member.answer(ticket);
                assert!(matches!(refused, Some(Err(Failure::Refused(_)))), "{read:?} is kept: {refused:?}");
            }
        }
    }
}

#[test]
fn a_physical_compaction_is_answered_when_the_checkpoint_knows() {
    let mut member = Member::start();
    for _ in 0..10 {
        member.put("a", 0).expect("a put");
    }
    let ticket = member.ask(Write::Compact { revision: Revision(8), physical: true });
    member.run(Nanos::from_millis(50));
    assert!(member.answer(ticket).is_none(), "answered before the checkpoint");
    // What it asks to be written at once is all that it waits for.
    let applied = member.flushed.expect("the checkpoint is asked for");
    member.turn(vec![Input::Checkpointed { applied }]);
    assert!(matches!(member.answer(ticket), Some(Ok(Answer::Applied(Reply::Compact { .. })))));
    assert_eq!(member.replica.state().stats().records, 4);
}

#[test]
fn too_many_writes_are_refused_and_renewals_are_not() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(10));
    member.disk_works = false;
    let inputs = (0..6000).map(|n| Input::Write { ticket: Ticket(10_000 + n), write: put("a", 0) }).collect();
    member.turn(inputs);
    let refused =
        member.answers.iter().filter(|(_, answer)| matches!(answer, Err(Failure::TooManyRequests))).count();
    assert_eq!(refused, 1000);
    member.disk_works = true;
    assert!(member.renew(&[1])[0].is_some());
}

#[test]
fn nothing_is_left_waiting_when_the_disk_never_comes_back() {
    let mut member = Member::start();
    member.disk_works = false;
    let put = member.ask(put("a", 0));
    let ticket = member.ticket();
    member.turn(vec![Input::Renew { ticket, ids: vec![LeaseId(1)] }]);
    member.run(Nanos::from_secs(8));
    assert!(matches!(member.answer(put), Some(Err(Failure::TimedOut))));
    assert!(matches!(member.answer(ticket), Some(Err(Failure::TimedOut))));
}

#[test]
fn deleting_nothing_is_no_revision() {
    let mut member = Member::start();
    let range = KeyRange::One(Bytes::from_static(b"nothing"));
    let reply = member.write(Write::DeleteRange(DeleteRange { range, prev: false })).expect("a delete");
    assert!(
        matches!(reply, Reply::DeleteRange(reply) if reply.revision == Revision(1) && reply.deleted == 0)
    );
}

#[test]
fn a_read_that_came_before_the_first_leader_is_answered_as_soon_as_there_is_one() {
    let mut member = Member::unstarted();
    let ticket = member.read(Consistency::Linearizable);
    member.run(Nanos::from_millis(5));
    assert!(member.answer(ticket).is_some());
}

#[test]
fn a_write_refused_just_before_the_disk_has_space_again_leaves_no_alarm_behind() {
    let mut member = Member::start();
    member.turn(vec![Input::DiskSpace { full: true }]);
    member.run(Nanos::from_millis(5));
    assert!(member.put("a", 0).is_err(), "the alarm is up");
    // Both are applied in one turn: what was refused before the alarm went must not raise it again.
    let refused = member.ticket();
    let write = put("a", 0);
    member.turn(vec![Input::Write { ticket: refused, write }, Input::DiskSpace { full: false }]);
    member.run(Nanos::from_millis(5));
    assert!(matches!(member.answer(refused), Some(Err(_))));
    assert!(member.put("a", 0).is_ok(), "the alarm came back by itself");
}

#[test]
fn what_is_left_of_a_lease_is_not_overstated_to_who_asked_before_there_was_a_leader() {
    let mut member = Member::start();
    member.grant(1, Nanos::from_secs(9));
    member.run(Nanos::from_secs(8));
    let start = member.on_disk();
    let mut member = Member::around(Replica::new(config(2), start, member.now), member.now);
    let ticket = member.ticket();
    let read = Read::TimeToLive { id: LeaseId(1), keys: false };
    member.turn(vec![Input::Read { ticket, read, consistency: Consistency::Linearizable }]);
    member.run(Nanos::from_millis(50));
    let Some(Ok(Answer::TimeToLive(Some(left)))) = member.answer(ticket) else { panic!("it lives") };
    // The stamp may be a second old, and the take-over gives 750 ms at least.
    assert!(left.remaining <= Nanos::from_millis(2100), "{:?}", left.remaining);
}

#[test]
fn what_takes_long_to_apply_is_not_taken_for_a_disk_that_stalls() {
    let now = Nanos::from_secs(100);
    let impatient = Config { election_timeout: Nanos::from_millis(100), ..config(1) };
    let mut member = Member::with(Replica::new(impatient, Start::fresh(MEMBER), now), now);
    for from in (0..25_000).step_by(2500) {
        let puts = (from..from + 2500)
            .map(|n| Input::Write { ticket: Ticket(1_000_000 + n), write: put(&format!("k{n:08}"), 0) });
        member.turn(puts.collect());
        member.run(Nanos::from_millis(10));
    }
    let range = KeyRange::From(Bytes::from_static(b"k"));
    let delete = member.ask(Write::DeleteRange(DeleteRange { range, prev: false }));
    let other = member.ask(put("z", 0));
    // It is applied in slices, a turn each, and each turn takes its time.
    for _ in 0..20 {
        member.sync();
        member.now = member.now + Nanos::from_millis(25);
        member.turn(Vec::new());
    }
    assert!(matches!(member.answer(delete), Some(Ok(_))), "it was applied and not answered");
    assert!(matches!(member.answer(other), Some(Ok(_))), "a write behind it was given up");
}
