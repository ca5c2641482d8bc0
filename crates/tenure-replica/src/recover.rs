//! From rows and segments back to a member.
//!
//! The rows of the checkpoint make the state as of one applied index; the log says what came after it. Everything
//! is checked on the way, and what does not check out is refused: this member stops, and the others still have
//! what it had. Nothing that was durable once is ever left out to make a start possible.

use tenure_state::bugs::{Bug, Bugs};
use tenure_state::{Loader, State};
use thiserror::Error;

use crate::Start;
use crate::effect::{HardState, LogEntry, Membership};
use crate::row::{self, Head, Row, RowError, RowKey};
use crate::wal::{self, Body, Header, HeaderError, Origin, Restart, Settings, Tail};

/// What to do about a directory that no server starts on; ends an error's text.
pub const WAY_OUT: &str = "No server starts on this directory, because what was acknowledged may be missing from it. Keep it as it is: \
    `tenure check DIR` lists all damage, and `tenure export DIR --out FILE` saves what is readable, to be written by a client \
    to a server with a new directory. A copy of the directory from before the damage works too, but is as old as it is";

/// Why a directory is refused. Says where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecoverError {
    #[error("{file} is damaged at offset {offset}: {what}. {WAY_OUT}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("{file} is missing: {what}. {WAY_OUT}")]
    Missing { file: String, what: String },
    #[error(
        "{file} is in format {found}, but this build of Tenure reads formats up to {known}: start the newer build \
         that wrote it"
    )]
    NewerFormat { file: String, found: u32, known: u32 },
    #[error(
        "{file} belongs to member {:x} of cluster {:x}, but the directory to member {:x} of cluster {:x}: files of \
         two members were mixed. Put back those of this member",
        found.member, found.cluster, expected.member, expected.cluster
    )]
    Foreign { file: String, found: Origin, expected: Origin },
}

/// As damage reports name it.
pub const CHECKPOINT_FILE: &str = "checkpoint/data.mdb";

/// Where something was read.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub file: &'a str,
    pub offset: u64,
}

impl Place<'_> {
    fn damaged(self, what: impl Into<String>) -> RecoverError {
        RecoverError::Damaged { file: self.file.to_owned(), offset: self.offset, what: what.into() }
    }
}

/// All that a member needs to go on.
pub struct Recovered {
    pub state: State,
    /// The term of the entry at the applied index of `state`.
    pub applied_term: u64,
    /// Empty before the first checkpoint.
    pub membership: Membership,
    /// Its commit index is never below the applied index.
    pub hard_state: HardState,
    /// What is in the log behind the applied index, without a gap.
    pub entries: Vec<LogEntry>,
    /// How the log ended.
    pub tail: Tail,
    last_segment: u64,
}

impl Recovered {
    /// The segment to write before anything else.
    pub fn restart(&self, settings: Settings) -> Restart {
        let base = self.state.meta().applied;
        Restart::new(settings, self.last_segment + 1, base, self.hard_state, &self.entries)
    }

    /// `first` is the membership that the log began with: it counts until a checkpoint says more.
    pub fn into_start(self, first: Membership) -> Start {
        let Recovered { state, applied_term, membership, hard_state, entries, .. } = self;
        let membership = if membership == Membership::default() { first } else { membership };
        Start { state, applied_term, membership, hard_state, entries }
    }
}

/// Takes the rows of a checkpoint, in the order of their keys.
pub struct RowReader {
    origin: Origin,
    /// Where the row is that says how many there should be.
    head_at: u64,
    seen: u64,
    previous: Option<RowKey>,
    head: Option<Head>,
    membership: Option<Membership>,
    loader: Option<Loader>,
}

/// What the rows say.
pub struct Loaded {
    pub state: State,
    pub applied_term: u64,
    pub membership: Membership,
}

impl RowReader {
    pub fn new(origin: Origin) -> RowReader {
        RowReader { origin, head_at: 0, seen: 0, previous: None, head: None, membership: None, loader: None }
    }

    /// How many rows there should be, once the row that says so was read.
    pub fn expected(&self) -> Option<u64> {
        self.head.as_ref().map(|head| head.row_count)
    }

    pub fn row(&mut self, place: Place<'_>, key: &[u8], value: &[u8]) -> Result<(), RecoverError> {
        let row = read_row(place, key, value)?;
        let row_key = RowKey::decode(key).expect("the row was decoded by this key");
        if self.previous.is_some_and(|previous| previous >= row_key) {
            return Err(place.damaged("the row is not in the order of keys"));
        }
        self.previous = Some(row_key);
        self.seen += 1;
        match row {
            Row::Format { origin, .. } if origin != self.origin => {
                let file = place.file.to_owned();
                return Err(RecoverError::Foreign { file, found: origin, expected: self.origin });
            }
            Row::Format { .. } => {}
            Row::Head(head) => {
                self.loader = Some(State::load(head.meta.clone()));
                self.head_at = place.offset;
                self.head = Some(head);
            }
            Row::Membership(membership) => self.membership = Some(membership),
            Row::Record(record) => self.loader(place)?.record(record),
            Row::Lease(row) => self.loader(place)?.lease(row),
        }
        Ok(())
    }

    fn loader(&mut self, place: Place<'_>) -> Result<&mut Loader, RecoverError> {
        self.loader
            .as_mut()
            .ok_or_else(|| place.damaged("rows without the row that says as of when they are"))
    }

    /// No rows at all are the state before the first checkpoint.
    pub fn finish(self, file: &str) -> Result<Loaded, RecoverError> {
        let place = Place { file, offset: self.head_at };
        if self.seen == 0 {
            let membership = Membership::default();
            return Ok(Loaded { state: State::new(), applied_term: 0, membership });
        }
        let (Some(head), Some(membership), Some(loader)) = (self.head, self.membership, self.loader) else {
            return Err(
                place.damaged("the rows that say as of when and for whom the others are do not exist")
            );
        };
        if head.row_count != self.seen {
            let what = format!("{} rows were written, {} are there", head.row_count, self.seen);
            return Err(place.damaged(what));
        }
        let state = loader.finish().map_err(|error| place.damaged(format!("rows contradict: {error}")))?;
        Ok(Loaded { state, applied_term: head.term, membership })
    }
}

/// Reads one row, with the errors of a start.
pub fn read_row(place: Place<'_>, key: &[u8], value: &[u8]) -> Result<Row, RecoverError> {
    row::decode(key, value).map_err(|error| match error {
        RowError::NewerFormat { found } => {
            RecoverError::NewerFormat { file: place.file.to_owned(), found, known: row::FORMAT }
        }
        other => match RowKey::decode(key) {
            Ok(key) => place.damaged(format!("{other} ({key})")),
            Err(_) => place.damaged(other.to_string()),
        },
    })
}

/// A segment file by its name and its first [`wal::HEADER_BYTES`].
#[derive(Clone, Debug)]
pub struct SegmentFile {
    pub file: String,
    /// As its name says.
    pub number: u64,
    pub head: Vec<u8>,
}

/// A segment that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub file: String,
    pub header: Header,
    /// Where it ends, if another one follows.
    pub end: Option<u64>,
}

/// Picks the segments that count, oldest first: those from the last start of the process on. `floor` is the segment
/// that this directory is known to have reached, 0 if its log was never begun.
pub fn plan(origin: Origin, floor: u64, mut files: Vec<SegmentFile>) -> Result<Vec<Segment>, RecoverError> {
    files.sort_by_key(|file| file.number);
    let newest = files.last().map_or(0, |file| file.number);
    if newest < floor {
        let what = match newest {
            0 => "the last start began the log with it, and there is no segment at all".to_owned(),
            _ => format!(
                "the last start began the log with it, and the newest one there is {}",
                segment_file(newest)
            ),
        };
        return Err(RecoverError::Missing { file: segment_file(floor), what });
    }
    let mut planned: Vec<Segment> = Vec::new();
    for SegmentFile { file, number, head } in files.into_iter().rev() {
        let follower = planned.last().map(|segment| &segment.header);
        if follower.is_some_and(|follower| follower.number != number + 1) {
            // Whether what was there is needed shows when the entries are read.
            break;
        }
        let end = follower.map(|follower| follower.prev_end);
        let header = read_header(&file, &head)?;
        if header.origin != origin {
            return Err(RecoverError::Foreign { file, found: header.origin, expected: origin });
        }
        if header.number != number {
            let what = format!("it is segment {} by its header: files were renamed", header.number);
            return Err(Place { file: &file, offset: 0 }.damaged(what));
        }
        let restart = header.restart;
        planned.push(Segment { file, header, end });
        if restart {
            break;
        }
    }
    planned.reverse();
    Ok(planned)
}

/// The name of a segment, as damage reports name it.
pub fn segment_file(number: u64) -> String {
    format!("log/{number:016}.wal")
}

fn read_header(file: &str, head: &[u8]) -> Result<Header, RecoverError> {
    Header::decode(head).map_err(|error| match error {
        HeaderError::NewerFormat { found } => {
            RecoverError::NewerFormat { file: file.to_owned(), found, known: wal::FORMAT }
        }
        other => Place { file, offset: 0 }.damaged(other.to_string()),
    })
}

/// Takes the segments that [`plan`] picked, in their order.
pub struct LogReader {
    applied: u64,
    applied_term: u64,
    hard_state: Option<HardState>,
    entries: Vec<LogEntry>,
    /// The last index of the log so far, that of the checkpoint or before it included.
    last: Option<u64>,
    /// The term that the log has at the applied index, where it still has it.
    term_at_applied: Option<u64>,
    tail: Tail,
    last_segment: u64,
    bugs: Bugs,
}

/// What the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub hard_state: HardState,
    pub entries: Vec<LogEntry>,
    pub tail: Tail,
    pub last_segment: u64,
}

impl LogReader {
    /// For a log behind a checkpoint at this index and term.
    pub fn new(applied: u64, applied_term: u64) -> LogReader {
        LogReader {
            applied,
            applied_term,
            hard_state: None,
            entries: Vec::new(),
            last: None,
            term_at_applied: None,
            tail: Tail::default(),
            last_segment: 0,
            bugs: Bugs::default(),
        }
    }

    /// Puts a known bug back.
    #[cfg(feature = "planted-bugs")]
    pub fn set_bugs(&mut self, bugs: Bugs) {
        self.bugs = bugs;
    }

    /// `bytes` is the whole file.
    pub fn segment(&mut self, segment: &Segment, bytes: &[u8]) -> Result<(), RecoverError> {
        let Segment { file, header, end } = segment;
        let place = |offset| Place { file, offset };
        if read_header(file, bytes)? != *header {
            return Err(place(0).damaged("the header changed while it was read"));
        }
        if self.last.is_none() && header.first_index > self.applied + 1 {
            return Err(self.gap(segment));
        }
        self.last.get_or_insert(header.first_index.saturating_sub(1));
        let scanned = match end {
            Some(end) => wal::scan_closed(header, bytes, *end),
            None => {
                let mut scanned = wal::scan_last(header, bytes);
                if let Err(damage) = &scanned
                    && self.bugs.has(Bug::CutSyncedTail)
                {
                    let mut cut = bytes[..damage.offset as usize].to_vec();
                    cut.resize(bytes.len(), 0);
                    scanned = wal::scan_last(header, &cut);
                }
                scanned.map(|scanned| {
                    self.tail = scanned.tail;
                    scanned.bodies
                })
            }
        };
        let (bodies, damage) = match scanned {
            Ok(bodies) => (bodies, None),
            Err(damage) => (damage.before, Some(place(damage.offset).damaged(damage.what))),
        };
        for body in bodies {
            match body {
                Body::Entry(entry) => self.entry(place(0), entry)?,
                Body::HardState(state) => self.hard_state = Some(state),
                Body::Idle => {}
            }
        }
        if let Some(damage) = damage {
            return Err(damage);
        }
        self.last_segment = header.number;
        Ok(())
    }

    /// Why there is nothing between the checkpoint and the log.
    fn gap(&self, segment: &Segment) -> RecoverError {
        let Segment { file, header, .. } = segment;
        let behind = format!("{file} begins with entry {}", header.first_index);
        if !header.restart {
            let segment = segment_file(header.number - 1);
            let file = match self.applied {
                // Without a checkpoint the log would have to begin with its first entry.
                0 => format!("{CHECKPOINT_FILE} or {segment}"),
                _ => segment,
            };
            return RecoverError::Missing {
                file,
                what: format!("{behind}, and the checkpoint ends at {}", self.applied),
            };
        }
        // A log is begun behind a checkpoint that was durable, so it is the checkpoint that is not what it was.
        let file = CHECKPOINT_FILE.to_owned();
        match self.applied {
            0 => RecoverError::Missing {
                file,
                what: format!("{behind}, and those before it were in the checkpoint"),
            },
            applied => {
                let what = format!("{behind}, but this checkpoint ends at {applied}: it is an older one");
                RecoverError::Damaged { file, offset: 0, what }
            }
        }
    }

    fn entry(&mut self, place: Place<'_>, entry: LogEntry) -> Result<(), RecoverError> {
        let last = self.last.unwrap_or(0);
        if entry.index > last + 1 && entry.index > self.applied + 1 {
            let what = format!("entry {} follows entry {last}", entry.index);
            return Err(place.damaged(what));
        }
        while self.entries.last().is_some_and(|kept| kept.index >= entry.index) {
            self.entries.pop();
        }
        if self.entries.last().is_some_and(|kept| kept.term > entry.term) {
            return Err(
                place.damaged(format!("entry {} is of an older term than the one before it", entry.index))
            );
        }
        self.last = Some(entry.index);
        if entry.index == self.applied {
            self.term_at_applied = Some(entry.term);
        }
        if entry.index > self.applied {
            self.entries.push(entry);
        }
        Ok(())
    }

    /// What could be read behind the checkpoint, also after an error. Only to save it, never to go on with it.
    pub fn readable(self) -> Vec<LogEntry> {
        self.entries
    }

    /// `file` is where the last segment was read.
    pub fn finish(self, file: &str) -> Result<Log, RecoverError> {
        let place = Place { file, offset: 0 };
        if let Some(term) = self.term_at_applied.filter(|term| *term != self.applied_term) {
            let what = format!(
                "entry {} is of term {term}, but the checkpoint was taken at one of term {}",
                self.applied, self.applied_term
            );
            return Err(place.damaged(what));
        }
        let mut state = match self.hard_state {
            Some(state) => state,
            None if self.last_segment == 0 => HardState::default(),
            None => return Err(place.damaged("the hard state that each segment begins with is missing")),
        };
        let last = self.entries.last().map_or(self.applied, |entry| entry.index);
        if state.commit > last {
            let what = format!("entries up to {} were committed, but the log ends at {last}", state.commit);
            return Err(place.damaged(what));
        }
        if let Some(vote) = self.tail.vote
            && (vote.term > state.term || (vote.term == state.term && state.vote == 0))
        {
            (state.term, state.vote) = (vote.term, vote.vote);
        }
        // A write that tore between an entry of a new term and the hard state of that term: no vote in it was given.
        let term = self.entries.last().map_or(self.applied_term, |entry| entry.term);
        if state.term < term {
            (state.term, state.vote) = (term, 0);
        }
        state.commit = state.commit.max(self.applied);
        Ok(Log { hard_state: state, entries: self.entries, tail: self.tail, last_segment: self.last_segment })
    }
}

impl Loaded {
    /// Puts checkpoint and log together.
    pub fn with(self, log: Log) -> Recovered {
        let Loaded { state, applied_term, membership } = self;
        let Log { hard_state, entries, tail, last_segment } = log;
        Recovered { state, applied_term, membership, hard_state, entries, tail, last_segment }
    }
}

#[cfg(test)]
mod tests;
