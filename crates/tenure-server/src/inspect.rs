//! Looking at the directory of a member that does not run: `tenure check` and `tenure export`.
//!
//! Both change nothing and read everything through the same code as a start, so a directory is sound here exactly
//! when a member starts on it. Export takes what is readable from a directory that is refused.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use serde::Serialize;
use tenure_replica::effect::{EntryKind, LogEntry};
use tenure_replica::entry::Proposal;
use tenure_replica::recover::{self, CHECKPOINT_FILE, LogReader, Place, RecoverError, RowReader, read_row};
use tenure_replica::row::Row;
use tenure_replica::wal::{self, HEADER_BYTES, Header, Origin};
use tenure_state::State;
use tenure_state::applied::{LeaseRow, Progress};
use tenure_state::command::{Command, Entry};
use tenure_state::key::KeyRange;
use tenure_state::record::Record;
use thiserror::Error;

use crate::datadir::{DataDir, DirError};
use crate::disk;
use crate::storage::{load_rows, segment_files};
use crate::store;
use crate::store::pages::{Met, walk};

/// What a process that found damage exits with.
pub const EXIT_DAMAGED: i32 = 65;
/// More findings than anybody reads.
const FINDINGS_MAX: usize = 1_000;
const PAGE_KEYS: usize = 1_000;

/// Why a directory could not be looked at.
#[derive(Debug, Error)]
pub enum InspectError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl InspectError {
    pub fn exit_code(&self) -> i32 {
        match self {
            InspectError::Dir(error) if error.is_damage() => EXIT_DAMAGED,
            InspectError::Dir(_) | InspectError::Io(_) => 1,
        }
    }
}

/// What a look at a directory found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub cluster: String,
    pub member: String,
    /// How often the member was started on it; 0 if that is not known.
    pub boot: u64,
    pub checkpoint: CheckpointReport,
    pub log: LogReport,
    /// In the order in which they were met; empty if a member would start.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckpointReport {
    pub rows: u64,
    pub applied: u64,
    pub revision: i64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct LogReport {
    pub segments: u64,
    /// Behind the checkpoint.
    pub entries: u64,
    pub last_index: u64,
    /// Where the last segment ends.
    pub end: u64,
    /// Records of a torn write that were cut: never acknowledged, unless the disk is damaged there.
    pub torn: u64,
    /// What they take, about.
    pub torn_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub file: String,
    pub offset: u64,
    pub what: String,
}

impl Report {
    pub fn exit_code(&self) -> i32 {
        if self.findings.is_empty() { 0 } else { EXIT_DAMAGED }
    }

    fn find(&mut self, error: RecoverError) {
        let finding = match error {
            RecoverError::Damaged { file, offset, what } => Finding { file, offset, what },
            RecoverError::Missing { file, what } => {
                Finding { file, offset: 0, what: format!("the file is missing: {what}") }
            }
            RecoverError::NewerFormat { ref file, .. } | RecoverError::Foreign { ref file, .. } => {
                Finding { file: file.clone(), offset: 0, what: error.to_string() }
            }
        };
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Verifies everything in a directory.
pub fn check(root: &Path) -> Result<Report, InspectError> {
    let (dir, damage) = DataDir::open_read_only(root, guess_origin)?;
    let origin = dir.identity.origin;
    let mut report = Report {
        cluster: format!("{:x}", origin.cluster),
        member: format!("{:x}", origin.member),
        boot: dir.identity.boot,
        ..Report::default()
    };
    if let Some(damage) = damage {
        let what = match damage {
            DirError::MissingIdentity { .. } => "the file is missing",
            DirError::DamagedIdentity { what, .. } => what,
            other => return Err(other.into()),
        };
        report.findings.push(Finding { file: "identity".to_owned(), offset: 0, what: what.to_owned() });
    }
    let behind = check_rows(&dir, &mut report)?;
    check_log(&dir, behind, &mut report)?;
    Ok(report)
}

/// Whose files are in a directory that does not say it: its log does, or else its checkpoint.
fn guess_origin(root: &Path) -> Option<Origin> {
    let mut segments = disk::list_segments(&root.join("log")).unwrap_or_default();
    segments.sort();
    let of_segment = |path: &Path| {
        let mut head = Vec::new();
        std::fs::File::open(path).ok()?.take(HEADER_BYTES).read_to_end(&mut head).ok()?;
        Some(Header::decode(&head).ok()?.origin)
    };
    if let Some(origin) = segments.iter().rev().find_map(|(_, path)| of_segment(path)) {
        return Some(origin);
    }
    let mut found = None;
    let walked = walk::<io::Error>(&root.join(CHECKPOINT_FILE), |met| {
        if let Met::Row { offset, key, value } = met
            && let Ok(Row::Format { origin, .. }) =
                read_row(Place { file: CHECKPOINT_FILE, offset }, key, value)
        {
            found = Some(origin);
        }
        Ok(())
    });
    found.filter(|_| walked.is_ok())
}

/// Returns index and term that the log goes on from; `None` where the checkpoint does not say it any more.
fn check_rows(dir: &DataDir, report: &mut Report) -> io::Result<Option<(u64, u64)>> {
    let path = dir.checkpoint().join(store::FILE);
    let findings = report.findings.len();
    let mut behind = None;
    let mut rows = RowReader::new(dir.identity.origin);
    if path.try_exists()? {
        walk::<io::Error>(&path, |met| {
            match met {
                Met::Damage { offset, what } => {
                    report.find(RecoverError::Damaged { file: CHECKPOINT_FILE.to_owned(), offset, what });
                }
                Met::Row { offset, key, value } => {
                    report.checkpoint.rows += 1;
                    let place = Place { file: CHECKPOINT_FILE, offset };
                    if let Err(error) = rows.row(place, key, value) {
                        report.find(error);
                    } else if let Ok(Row::Head(head)) = read_row(place, key, value) {
                        behind = Some((head.meta.applied, head.term));
                        report.checkpoint.applied = head.meta.applied;
                        report.checkpoint.revision = head.meta.revision.0;
                    }
                }
            }
            Ok(())
        })?;
    }
    // What rows say together means something only if each of them is sound.
    if report.findings.len() == findings
        && let Err(error) = rows.finish(CHECKPOINT_FILE)
    {
        report.find(error);
    }
    // Without a head and without damage there was no checkpoint yet.
    Ok(behind.or((report.findings.len() == findings).then_some((0, 0))))
}

fn check_log(dir: &DataDir, behind: Option<(u64, u64)>, report: &mut Report) -> io::Result<()> {
    let segments = match recover::plan(dir.identity.origin, dir.identity.segment, segment_files(dir)?) {
        Ok(segments) => segments,
        Err(error) => {
            report.find(error);
            return Ok(());
        }
    };
    let mut sound = behind.is_some();
    let behind = behind.unwrap_or_default();
    let mut log = LogReader::new(behind.0, behind.1);
    for segment in &segments {
        let bytes = std::fs::read(disk::segment_path(&dir.log(), segment.header.number))?;
        report.log.segments += 1;
        if sound {
            if let Err(error) = log.segment(segment, &bytes) {
                report.find(error);
                sound = false;
            }
            continue;
        }
        // Entries do not follow from here on, but more damage can be found.
        let scanned = match segment.end {
            Some(end) => wal::scan_closed(&segment.header, &bytes, end).err(),
            None => wal::scan_last(&segment.header, &bytes).err(),
        };
        if let Some(wal::Damage { offset, what, .. }) = scanned {
            report.find(RecoverError::Damaged { file: segment.file.clone(), offset, what });
        }
    }
    if !sound {
        report.log.entries = log.readable().len() as u64;
        return Ok(());
    }
    let last = segments.last().map_or("log", |segment| segment.file.as_str());
    match log.finish(last) {
        Ok(log) => {
            report.log.entries = log.entries.len() as u64;
            report.log.last_index = log.entries.last().map_or(behind.0, |entry| entry.index);
            report.log.end = log.tail.end;
            report.log.torn = log.tail.cut as u64 + u64::from(log.tail.torn_bytes > 0);
            report.log.torn_bytes = log.tail.torn_bytes;
        }
        Err(error) => report.find(error),
    }
    Ok(())
}

/// What could be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    pub keys: u64,
    pub leases: u64,
    /// Whether nothing had to be left out.
    pub is_complete: bool,
}

/// Writes the living keys and leases as JSON, one object a line, bytes in base64. What cannot be read is left out:
/// of a damaged checkpoint those rows and the log behind it, of a damaged log what follows the damage.
pub fn export(root: &Path, out: &mut dyn Write) -> Result<Exported, InspectError> {
    let (dir, damage) = DataDir::open_read_only(root, guess_origin)?;
    let (contents, is_complete) = match load_rows(&dir, &mut |_| {}) {
        Ok(loaded) => {
            let mut log = LogReader::new(loaded.state.meta().applied, loaded.applied_term);
            let is_complete = read_log(&dir, &mut log)?;
            let mut state = loaded.state;
            let is_complete = apply(&mut state, log.readable()) && is_complete && damage.is_none();
            (of_state(&state), is_complete)
        }
        Err(_) => (of_rows(&dir)?, false),
    };
    let Contents { keys, leases, clock_ns } = contents;
    for record in keys.values() {
        let line = KeyLine {
            kind: "key",
            key: base64(&record.key),
            value: base64(&record.value),
            create_revision: record.create.0,
            mod_revision: record.at.main.0,
            version: record.version,
            lease: (!record.lease.is_none()).then(|| record.lease.to_string()),
        };
        write_line(out, &line)?;
    }
    for row in leases.values() {
        let line = LeaseLine {
            kind: "lease",
            id: row.id.to_string(),
            ttl_ms: row.ttl.as_millis(),
            remaining_ms: row.deadline.0.saturating_sub(clock_ns) / 1_000_000,
            parent: (!row.parent.is_none()).then(|| row.parent.to_string()),
        };
        write_line(out, &line)?;
    }
    out.flush()?;
    Ok(Exported { keys: keys.len() as u64, leases: leases.len() as u64, is_complete })
}

#[derive(Default)]
struct Contents {
    keys: BTreeMap<Bytes, Record>,
    leases: BTreeMap<i64, LeaseRow>,
    clock_ns: u64,
}

#[derive(Serialize)]
struct KeyLine {
    kind: &'static str,
    key: String,
    value: String,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
}

#[derive(Serialize)]
struct LeaseLine {
    kind: &'static str,
    id: String,
    ttl_ms: u64,
    remaining_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Reads as much of the log as there is; returns whether that was all.
fn read_log(dir: &DataDir, log: &mut LogReader) -> io::Result<bool> {
    let Ok(segments) = recover::plan(dir.identity.origin, dir.identity.segment, segment_files(dir)?) else {
        return Ok(false);
    };
    for segment in &segments {
        let bytes = std::fs::read(disk::segment_path(&dir.log(), segment.header.number))?;
        if log.segment(segment, &bytes).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies entries until one does not decode; returns whether all did. Those that were never committed are applied
/// too: for whoever saves data, too much is better than too little.
fn apply(state: &mut State, entries: Vec<LogEntry>) -> bool {
    for LogEntry { term, index, kind, data } in entries {
        let (quota_bytes, command) = match kind {
            EntryKind::Members => (0, Command::Nothing),
            EntryKind::Command => match Proposal::decode(data) {
                Ok(proposal) => (proposal.quota_bytes, proposal.command),
                Err(_) => return false,
            },
        };
        let mut progress = state.apply(&Entry { index, term, quota_bytes, command });
        while let Progress::Unfinished = progress {
            progress = state.resume();
        }
    }
    true
}

fn of_state(state: &State) -> Contents {
    let mut contents = Contents { clock_ns: state.clock().0, ..Contents::default() };
    let all = KeyRange::From(Bytes::new());
    let mut from = None;
    loop {
        let page = state
            .range_page(&all, from.as_ref(), state.revision(), PAGE_KEYS)
            .expect("the current revision is never compacted");
        contents.keys.extend(page.records.into_iter().map(|record| (record.key.clone(), (*record).clone())));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let leases = state.leases().into_iter().filter_map(|id| state.lease(id));
    contents.leases = leases.map(|row| (row.id.0, row)).collect();
    contents
}

/// The newest readable version of each key.
fn of_rows(dir: &DataDir) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let path = dir.checkpoint().join(store::FILE);
    if !path.try_exists()? {
        return Ok(contents);
    }
    walk::<io::Error>(&path, |met| {
        let Met::Row { offset, key, value } = met else { return Ok(()) };
        match read_row(Place { file: CHECKPOINT_FILE, offset }, key, value) {
            // In ascending order of revision, so the last one is the newest.
            Ok(Row::Record(record)) if record.is_tombstone() => {
                contents.keys.remove(&record.key);
            }
            Ok(Row::Record(record)) => {
                contents.keys.insert(record.key.clone(), record);
            }
            Ok(Row::Lease(row)) => {
                contents.leases.insert(row.id.0, row);
            }
            Ok(Row::Head(head)) => contents.clock_ns = head.meta.clock.0,
            Ok(Row::Format { .. } | Row::Membership(_)) | Err(_) => {}
        }
        Ok(())
    })?;
    Ok(contents)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests;
