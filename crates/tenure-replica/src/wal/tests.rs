//! The log on a simulated disk: what a crash leaves, what damage does, and what a recovery makes of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::effect::{Append, EntryKind, HardState, LogEntry};
use crate::recover::{Log, LogReader, RecoverError, SegmentFile, plan};

const ORIGIN: Origin = Origin { cluster: 0xc1, member: 0xa1 };
const SECTOR: usize = 512;
const SEGMENT_BYTES: u64 = 2048;

fn settings(salt: u32) -> Settings {
    Settings { origin: ORIGIN, segment_bytes: SEGMENT_BYTES, salt }
}

/// Files as the disk has them, and the writes that no sync made durable yet.
#[derive(Clone, Default)]
struct Disk {
    durable: BTreeMap<u64, Vec<u8>>,
    unsynced: Vec<(u64, usize, Vec<u8>)>,
    /// Recycled files, with all that they held.
    spares: Vec<Vec<u8>>,
}

impl Disk {
    fn execute(&mut self, op: &WalOp) {
        match op {
            WalOp::Write { segment, offset, bytes } => {
                assert!(self.durable.contains_key(segment), "written to a segment that is not there");
                self.unsynced.push((*segment, *offset as usize, bytes.clone()));
            }
            WalOp::Sync { segment } => {
                assert!(self.unsynced.iter().all(|write| write.0 == *segment), "left a segment unsynced");
                for (segment, offset, bytes) in std::mem::take(&mut self.unsynced) {
                    self.write(segment, offset, &bytes);
                }
            }
            WalOp::NewSegment { segment, capacity, head } => self.make(*segment, *capacity, head),
        }
    }

    fn make(&mut self, segment: u64, capacity: u64, head: &[u8]) {
        let mut file = self.spares.pop().unwrap_or_default();
        file.resize(file.len().max(capacity as usize), 0);
        file[..head.len()].copy_from_slice(head);
        assert!(self.durable.insert(segment, file).is_none(), "a number was used twice");
    }

    fn write(&mut self, segment: u64, offset: usize, bytes: &[u8]) {
        let file = self.durable.get_mut(&segment).expect("checked when it was written");
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Power goes: of what was not synced, `keep` says of each sector whether it got to the disk.
    fn lose_power(&mut self, mut keep: impl FnMut() -> bool) {
        for (segment, offset, bytes) in std::mem::take(&mut self.unsynced) {
            let mut at = 0;
            while at < bytes.len() {
                let end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                let end = end.min(bytes.len());
                if keep() {
                    self.write(segment, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
    }

    /// What is read while the power is on.
    fn cached(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut all = self.clone();
        all.lose_power(|| true);
        all.durable
    }

    fn recycle(&mut self, segments: Vec<u64>) {
        for segment in segments {
            self.spares.push(self.durable.remove(&segment).expect("cut once"));
        }
    }
}

fn recover(files: &BTreeMap<u64, Vec<u8>>, applied: (u64, u64)) -> Result<Log, RecoverError> {
    let heads = files.iter().map(|(number, bytes)| SegmentFile {
        file: format!("{number}.wal"),
        number: *number,
        head: bytes[..bytes.len().min(HEADER_BYTES as usize)].to_vec(),
    });
    let segments = plan(ORIGIN, 1, heads.collect())?;
    let mut log = LogReader::new(applied.0, applied.1);
    for segment in &segments {
        log.segment(segment, &files[&segment.header.number])?;
    }
    log.finish("log")
}

fn begin(disk: &mut Disk, number: u64, base: u64, state: HardState, entries: &[LogEntry]) -> Writer {
    // Salted by the number, which is as good as drawn: no two starts share one.
    let restart = Restart::new(settings(number as u32), number, base, state, entries);
    disk.make(restart.segment, restart.capacity, &restart.image);
    restart.writer
}

fn entry(term: u64, index: u64, len: usize) -> LogEntry {
    let kind = if index % 7 == 3 { EntryKind::Members } else { EntryKind::Command };
    LogEntry { term, index, kind, data: Bytes::from(vec![(index * 31 + term) as u8; len]) }
}

fn append(entries: Vec<LogEntry>, hard_state: Option<HardState>) -> Append {
    Append { batch: 0, entries, hard_state }
}

/// What a log should say, told as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    entries: Vec<LogEntry>,
    state: HardState,
    applied: (u64, u64),
}

impl Model {
    fn push(&mut self, entry: &LogEntry) {
        self.entries.retain(|kept| kept.index < entry.index);
        self.entries.push(entry.clone());
    }

    fn last(&self) -> u64 {
        self.entries.last().map_or(self.applied.0, |entry| entry.index)
    }

    /// The states that a write of these batches goes through, the first one before it.
    fn steps(&self, batches: &[Append]) -> Vec<Model> {
        let mut steps = vec![self.clone()];
        let mut now = self.clone();
        for batch in batches {
            for entry in &batch.entries {
                now.push(entry);
                steps.push(now.clone());
            }
            if let Some(state) = batch.hard_state {
                now.state = state;
                steps.push(now.clone());
            }
        }
        steps
    }

    fn matches(&self, log: &Log) -> bool {
        let mut state = self.state;
        state.commit = state.commit.max(self.applied.0);
        // A torn batch may lose the hard state of a term whose first entry it kept.
        let term = self.entries.last().map_or(self.applied.1, |entry| entry.term);
        if state.term < term {
            (state.term, state.vote) = (term, 0);
        }
        let vote_survived = log.tail.vote.is_some_and(|vote| {
            (vote.term, vote.vote) == (log.hard_state.term, log.hard_state.vote)
                && log.hard_state.commit == state.commit
        });
        log.entries == self.entries && (log.hard_state == state || vote_survived)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Batches that wait together: each with entries of these lengths, after taking `back` entries back.
    Append(Vec<(u8, Vec<u16>, bool)>),
    Idle,
    /// Takes a checkpoint at this part of what is committed, and cuts the log behind it.
    Checkpoint(u8),
    /// The process dies after so many operations of an append, and starts again.
    Kill(u8),
    /// The power goes then, and takes some sectors with it.
    PowerLoss(u8, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let batch = (0_u8..4, prop::collection::vec(0_u16..400, 0..4), any::<bool>());
    prop_oneof![
        8 => prop::collection::vec(batch, 1..4).prop_map(Step::Append),
        2 => Just(Step::Idle),
        2 => any::<u8>().prop_map(Step::Checkpoint),
        1 => any::<u8>().prop_map(Step::Kill),
        3 => (any::<u8>(), any::<u64>()).prop_map(|(ops, sectors)| Step::PowerLoss(ops, sectors)),
    ]
}

/// Makes batches that a Raft library could have made on top of `model`.
fn batches(model: &Model, made: &[(u8, Vec<u16>, bool)]) -> Vec<Append> {
    let mut now = model.clone();
    let mut batches = Vec::new();
    for (back, lens, vote) in made {
        let mut term = now.state.term;
        let floor = now.state.commit.max(now.applied.0);
        let from = (now.last() - (u64::from(*back)).min(now.last() - floor)) + 1;
        if from <= now.last() || *vote {
            term += 1;
        }
        let entries: Vec<_> =
            (from..).zip(lens).map(|(index, len)| entry(term, index, usize::from(*len))).collect();
        let last = entries.last().map_or(now.last(), |entry| entry.index);
        let changed = term != now.state.term || last % 3 == 0;
        let commit = if entries.is_empty() { now.state.commit } else { floor.max(last - 1) };
        let state = HardState { term, vote: if *vote { 0xa1 } else { 0 }, commit };
        let batch = append(entries, changed.then_some(state));
        now = now.steps(std::slice::from_ref(&batch)).pop().expect("the first step is always there");
        batches.push(batch);
    }
    batches
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens, a recovery brings back all that was acknowledged, and behind it only the beginning of
    /// what was being written.
    #[test]
    fn a_recovered_log_is_what_was_acknowledged_and_a_beginning_of_what_was_not(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut disk = Disk::default();
        let mut model = Model { entries: Vec::new(), state: HardState::default(), applied: (0, 0) };
        let mut writer = begin(&mut disk, 1, 0, model.state, &[]);
        let mut unfinished: Vec<Append> = Vec::new();
        for step in steps {
            let (crash_after, mut sectors) = match step {
                Step::Append(made) => {
                    unfinished = batches(&model, &made);
                    for op in writer.append(&unfinished) {
                        disk.execute(&op);
                    }
                    model = model.steps(&unfinished).pop().expect("the first step is always there");
                    continue;
                }
                Step::Idle => {
                    if let Some(op) = writer.idle() {
                        disk.execute(&op);
                    }
                    continue;
                }
                Step::Checkpoint(part) => {
                    let committed = model.state.commit.max(model.applied.0);
                    let through = model.applied.0 + (committed - model.applied.0) * u64::from(part) / 255;
                    let term = model.entries.iter().find(|entry| entry.index == through);
                    model.applied = (through, term.map_or(model.applied.1, |entry| entry.term));
                    model.entries.retain(|entry| entry.index > through);
                    disk.recycle(writer.cut(through));
                    continue;
                }
                Step::Kill(ops) => (ops, None),
                Step::PowerLoss(ops, sectors) => (ops, Some(sectors)),
            };
            // Dies while it writes something like what it wrote before.
            let lens: Vec<_> = unfinished.iter().map(|batch| (1, vec![300; batch.entries.len()], true)).collect();
            unfinished = batches(&model, &lens);
            let ops = writer.append(&unfinished);
            let executed = usize::from(crash_after).min(ops.len());
            for op in &ops[..executed] {
                disk.execute(op);
            }
            match &mut sectors {
                None => disk.lose_power(|| true),
                Some(bits) => disk.lose_power(|| {
                    *bits = bits.rotate_left(1);
                    *bits & 1 == 1
                }),
            }
            let log = recover(&disk.durable, model.applied);
            let log = log.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let possible = model.steps(&unfinished);
            let step = possible.iter().find(|step| step.matches(&log));
            prop_assert!(step.is_some(), "recovered {log:?}, expected one of {possible:?}");
            if executed == ops.len() {
                prop_assert!(possible.last().expect("not empty").matches(&log), "lost what was acknowledged");
            }
            model.entries = log.entries.clone();
            model.state = log.hard_state;
            let old = disk.durable.keys().copied().collect();
            let number = log.last_segment + 1;
            writer = begin(&mut disk, number, model.applied.0, log.hard_state, &log.entries);
            // Dead between the new segment and the end of the old ones: the new one counts alone.
            let again = recover(&disk.durable, model.applied).expect("all of it is durable");
            prop_assert_eq!((&again.entries, again.hard_state), (&model.entries, model.state));
            disk.recycle(old);
        }
        let log = recover(&disk.cached(), model.applied).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(model.matches(&log), "recovered {log:?}, expected {model:?}");
    }
}

/// A log over three segments, with a superseded tail, a vote, and an empty record at its end.
fn small_log() -> (Disk, Writer) {
    let mut disk = Disk::default();
    let mut writer = begin(&mut disk, 1, 0, HardState { term: 1, vote: 0xa1, commit: 0 }, &[]);
    let vote = HardState { term: 2, vote: 0xa2, commit: 4 };
    let appends = [
        append((1..=6).map(|index| entry(1, index, 200)).collect(), None),
        append((5..=9).map(|index| entry(2, index, 120)).collect(), Some(vote)),
        append(vec![entry(2, 10, 700)], Some(HardState { commit: 9, ..vote })),
        append(vec![entry(2, 11, 3)], None),
    ];
    for append in &appends {
        for op in writer.append([append]) {
            disk.execute(&op);
        }
    }
    let op = writer.idle().expect("there is room for it");
    disk.execute(&op);
    disk.lose_power(|| true);
    assert_eq!(disk.durable.len(), 3, "the log is meant to roll twice");
    (disk, writer)
}

#[test]
fn no_flipped_bit_changes_what_is_recovered() {
    let (disk, writer) = small_log();
    let sound = recover(&disk.durable, (0, 0)).expect("it is sound");
    assert_eq!(
        sound.entries.iter().map(|entry| entry.index).collect::<Vec<_>>(),
        (1..=11).collect::<Vec<_>>()
    );
    let mut files = disk.durable.clone();
    let mut refused = 0;
    for segment in 1..=writer.segment() {
        for byte in 0..files[&segment].len() {
            for bit in 0..8 {
                let flip = |files: &mut BTreeMap<u64, Vec<u8>>| {
                    files.get_mut(&segment).expect("it is there")[byte] ^= 1 << bit;
                };
                flip(&mut files);
                match recover(&files, (0, 0)) {
                    Ok(log) => assert_eq!(
                        (&log.entries, log.hard_state),
                        (&sound.entries, sound.hard_state),
                        "bit {bit} of byte {byte} of segment {segment}"
                    ),
                    Err(RecoverError::Damaged { file, .. }) => {
                        assert_eq!(file, format!("{segment}.wal"));
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
                flip(&mut files);
            }
        }
    }
    // Everything but paddings and what is behind the end of a segment.
    assert!(refused > 8 * 3_000, "only {refused} flips were refused");
}

#[test]
fn a_broken_record_at_the_end_is_told_of() {
    let mut disk = Disk::default();
    let mut writer = begin(&mut disk, 1, 0, HardState { term: 1, vote: 1, commit: 0 }, &[]);
    for index in 1..=2 {
        for op in writer.append([&append(vec![entry(1, index, 200)], None)]) {
            disk.execute(&op);
        }
    }
    let sound = recover(&disk.durable, (0, 0)).expect("it is sound");
    assert_eq!((sound.entries.len(), sound.tail.torn_bytes), (2, 0));
    let end = sound.tail.end as usize;
    // Frame and payload of the last record: nothing behind it vouches for it, so it is cut, but not in silence.
    for byte in end - 240..end {
        for bit in 0..8 {
            let mut files = disk.durable.clone();
            files.get_mut(&1).expect("it is there")[byte] ^= 1 << bit;
            let log = recover(&files, (0, 0)).expect("it looks like a torn write");
            assert_eq!((log.entries.len(), log.tail.end), (1, end as u64 - 240), "bit {bit} of byte {byte}");
            // With a wrong length it is not known how long it was.
            let (bytes, is_len) = (log.tail.torn_bytes, byte < end - 236);
            assert!(bytes == 240 || is_len && bytes > 0, "bit {bit} of byte {byte}: {bytes}");
        }
    }
}

#[test]
fn a_log_that_loses_its_end_is_cut_only_where_nothing_was_durable() {
    let (disk, writer) = small_log();
    let sound = recover(&disk.durable, (0, 0)).expect("it is sound").entries;
    let last = writer.segment();
    for cut in 0..disk.durable[&last].len() {
        let mut files = disk.durable.clone();
        files.get_mut(&last).expect("it is there")[cut..].fill(0);
        if let Ok(log) = recover(&files, (0, 0)) {
            // Zeros are what an unsynced write leaves, so only what no later record vouches for may go.
            assert!(sound.starts_with(&log.entries), "cut at {cut}");
        }
        let mut files = disk.durable.clone();
        files.get_mut(&last).expect("it is there").truncate(cut);
        recover(&files, (0, 0)).expect_err("a file that is too short was not written by us");
    }
    for segment in 1..last {
        let mut files = disk.durable.clone();
        files.remove(&segment);
        recover(&files, (0, 0)).expect_err("a segment is missing");
    }
}

#[test]
fn a_vote_survives_damage_to_the_last_batch() {
    let mut disk = Disk::default();
    let mut writer = begin(&mut disk, 1, 0, HardState { term: 1, vote: 0, commit: 0 }, &[]);
    let before = disk.durable[&1].clone();
    let vote = HardState { term: 2, vote: 0xa2, commit: 0 };
    for op in writer.append([&append(vec![entry(1, 1, 30)], Some(vote))]) {
        disk.execute(&op);
    }
    let written: Vec<usize> = (0..before.len()).filter(|at| before[*at] != disk.durable[&1][*at]).collect();
    for byte in written {
        for bit in 0..8 {
            let mut files = disk.durable.clone();
            files.get_mut(&1).expect("it is there")[byte] ^= 1 << bit;
            if let Ok(log) = recover(&files, (0, 0)) {
                assert_eq!((log.hard_state.term, log.hard_state.vote), (2, 0xa2), "bit {bit} of byte {byte}");
            }
        }
    }
}

#[test]
fn what_a_recycled_file_held_does_not_come_back() {
    let mut disk = Disk::default();
    let mut writer = begin(&mut disk, 1, 0, HardState { term: 1, vote: 1, commit: 0 }, &[]);
    // Equal lengths everywhere, so that old records stand exactly where new ones would.
    for index in 1..=200 {
        for op in writer.append([&append(vec![entry(1, index, 100)], None)]) {
            disk.execute(&op);
        }
        disk.recycle(writer.cut(index.saturating_sub(30)));
        let log =
            recover(&disk.durable, (index.saturating_sub(30), u64::from(index > 30))).expect("it is sound");
        assert_eq!(log.entries.last(), Some(&entry(1, index, 100)));
        assert_eq!((log.tail.cut, log.tail.torn_bytes), (0, 0));
    }
    assert!(writer.segment() > 10 && disk.spares.len() < 3, "files are meant to be used again");
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_larger_segment() {
    let mut disk = Disk::default();
    let mut writer = begin(&mut disk, 1, 0, HardState::default(), &[]);
    let entries = vec![entry(1, 1, 10), entry(1, 2, 5_000), entry(1, 3, 10)];
    for op in writer.append([&append(entries.clone(), None)]) {
        disk.execute(&op);
    }
    assert_eq!(recover(&disk.durable, (0, 0)).expect("it is sound").entries, entries);
}

#[test]
fn a_newer_format_and_a_strange_file_are_refused_by_name() {
    let (disk, writer) = small_log();
    let last = writer.segment();
    let mut newer = disk.durable.clone();
    let head = newer.get_mut(&last).expect("it is there");
    head[8] = FORMAT as u8 + 1;
    let crc = crate::checksum::crc32c(&[&head[..80]]);
    head[80..84].copy_from_slice(&crc.to_le_bytes());
    let expected =
        RecoverError::NewerFormat { file: format!("{last}.wal"), found: FORMAT + 1, known: FORMAT };
    assert_eq!(recover(&newer, (0, 0)), Err(expected));
    let heads = |origin: Origin| {
        let header = Header { origin, ..Header::decode(&disk.durable[&1]).expect("it is sound") };
        vec![SegmentFile { file: "1.wal".into(), number: 1, head: header.encode() }]
    };
    let found = Origin { member: 0xa2, ..ORIGIN };
    let expected = RecoverError::Foreign { file: "1.wal".into(), found, expected: ORIGIN };
    assert_eq!(plan(ORIGIN, 1, heads(found)), Err(expected));
    assert!(plan(ORIGIN, 1, heads(ORIGIN)).is_ok());
    // The directory was further once.
    assert!(
        matches!(plan(ORIGIN, 2, heads(ORIGIN)), Err(RecoverError::Missing { file, .. }) if file.ends_with("2.wal"))
    );
}
