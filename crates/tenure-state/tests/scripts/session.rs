//! What a script talks to: a state, the rows of its checkpoint, and the clock and term of a leader.
//!
//! Beside the commands that go into the log (see `language.rs`), it knows `at TIME` and `term N` for what the
//! leader stamps, `entry-term N` for the term that the log gives the entry (until the next `term`), `quota N`,
//! `slices N`, and these questions:
//! `get`, `read-txn`, `check OPS_MAX TXN`, `lease ID`, `leases`, `replay REV`, `hash REV`, `stats`, `reload`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_state::applied::{Applied, Change, LeaseRow, Progress};
use tenure_state::command::{Command, Entry, Stamp};
use tenure_state::ids::{LeaseId, Nanos, Revision, RevisionAt};
use tenure_state::record::Record;
use tenure_state::{HashKv, State, txn};

use crate::language::{self, Parsed, Words};
use crate::print;

/// What the edge lets through.
const OPS_MAX: usize = 128;

pub struct Session {
    state: State,
    records: BTreeMap<RevisionAt, Arc<Record>>,
    leases: BTreeMap<LeaseId, LeaseRow>,
    stamp: Stamp,
    entry_term: u64,
    quota_bytes: u64,
    /// Hashes in the order of their first appearance: scripts call them A, B, C, for their bits mean nothing.
    hashes: Vec<u32>,
}

impl Session {
    pub fn new() -> Session {
        Session {
            state: State::new(),
            records: BTreeMap::new(),
            leases: BTreeMap::new(),
            stamp: Stamp { term: 1, clock: Nanos::ZERO },
            entry_term: 1,
            quota_bytes: 0,
            hashes: Vec::new(),
        }
    }

    pub fn run(&mut self, line: &str) -> Parsed<Vec<String>> {
        let mut words = Words::new(line);
        let verb = words.next()?;
        let lines = match language::command(&verb, &mut words, self.stamp)? {
            Some(command) => {
                words.end()?;
                if let Command::Txn(txn) = &command {
                    txn::check(txn, OPS_MAX).map_err(|error| format!("the edge says: {error}"))?;
                }
                self.apply(command)
            }
            None => self.ask(&verb, &mut words)?,
        };
        words.end()?;
        Ok(lines)
    }

    fn apply(&mut self, command: Command) -> Vec<String> {
        let index = self.state.meta().applied + 1;
        let entry = Entry { index, term: self.entry_term, quota_bytes: self.quota_bytes, command };
        let mut turns = 1;
        let mut progress = self.state.apply(&entry);
        let applied = loop {
            match progress {
                Progress::Done(applied) => break applied,
                Progress::Unfinished => {
                    self.state.assert_invariants();
                    turns += 1;
                    progress = self.state.resume();
                }
            }
        };
        self.state.assert_invariants();
        self.fold(&applied);
        let mut lines = match &applied.reply {
            Ok(reply) => print::reply(reply),
            Err(refusal) => vec![format!("refused: {refusal}")],
        };
        if turns > 1 {
            lines.push(format!("took {turns} turns"));
        }
        lines.extend(applied.events.iter().map(print::event));
        lines.extend(applied.changes.iter().filter_map(print::change));
        lines
    }

    fn fold(&mut self, applied: &Applied) {
        let mut told = applied.events.iter().map(|event| &event.record);
        for change in &applied.changes {
            match change {
                Change::Record(record) => {
                    assert_eq!(told.next(), Some(record), "each new record stands in an event");
                    self.records.insert(record.at, Arc::clone(record));
                }
                Change::RecordGone(at) => {
                    self.records.remove(at);
                }
                Change::Lease(row) => {
                    self.leases.insert(row.id, *row);
                }
                Change::LeaseGone(id) => {
                    self.leases.remove(id);
                }
            }
        }
        assert_eq!(told.next(), None, "each event stands for a new record");
    }

    fn ask(&mut self, verb: &str, words: &mut Words) -> Parsed<Vec<String>> {
        Ok(match verb {
            "at" => {
                self.stamp.clock = language::time(&words.next()?)?;
                Vec::new()
            }
            "term" => {
                self.stamp.term = language::number(&words.next()?)? as u64;
                self.entry_term = self.stamp.term;
                Vec::new()
            }
            "entry-term" => {
                self.entry_term = language::number(&words.next()?)? as u64;
                Vec::new()
            }
            "quota" => {
                self.quota_bytes = language::number(&words.next()?)? as u64;
                Vec::new()
            }
            "slices" => {
                self.state.set_slice_max(language::number(&words.next()?)? as usize);
                Vec::new()
            }
            "get" => answer(self.state.range(&language::range(words)?), print::range),
            "read-txn" => answer(self.state.read_txn(&language::txn(words)?), print::txn),
            "check" => {
                let ops_max = language::number(&words.next()?)? as usize;
                let checked = txn::check(&language::txn(words)?, ops_max);
                vec![checked.map_or_else(|error| format!("error: {error}"), |()| "ok".to_string())]
            }
            "lease" => self.lease(language::lease_id(&words.next()?)?),
            "leases" => {
                let ids = self.state.leases();
                let rows = ids.iter().filter_map(|id| self.state.lease(*id));
                rows.map(|row| print::lease(&row)).collect()
            }
            "replay" => {
                let from = Revision(language::number(&words.next()?)?);
                answer(self.state.replay(from, usize::MAX), |replay| {
                    replay.events.iter().map(print::event).collect()
                })
            }
            "hash" => {
                let at = Revision(language::number(&words.next()?)?);
                let hashed = self.state.hash_kv(HashKv { at, ..HashKv::default() }, usize::MAX);
                answer(hashed, |hash| {
                    let known = self.hashes.iter().position(|known| *known == hash.hash);
                    let place = known.unwrap_or_else(|| {
                        self.hashes.push(hash.hash);
                        self.hashes.len() - 1
                    });
                    let letter = char::from(b'A' + u8::try_from(place).expect("few hashes a script"));
                    vec![format!("hash {letter} at {} compacted {}", hash.at, hash.compacted)]
                })
            }
            "stats" => {
                let (stats, meta) = (self.state.stats(), self.state.meta());
                vec![
                    format!(
                        "{} keys, {} records, {} leases, {} bytes",
                        stats.keys, stats.records, stats.leases, stats.logical_bytes
                    ),
                    format!(
                        "rev={} compacted={} scrubbed={} clock={}",
                        meta.revision,
                        meta.compacted,
                        meta.scrubbed,
                        print::time(meta.clock)
                    ),
                ]
            }
            "reload" => {
                self.state = self.rebuilt();
                Vec::new()
            }
            _ => return Err(format!("{verb} is no command")),
        })
    }

    fn lease(&self, id: LeaseId) -> Vec<String> {
        let Some(row) = self.state.lease(id) else { return vec!["not found".to_string()] };
        let mut lines = vec![print::lease(&row)];
        lines.extend(self.state.lease_keys(id).iter().map(|key| format!("key {}", print::text(key))));
        lines
    }

    fn rebuilt(&self) -> State {
        let mut loader = State::load(self.state.meta());
        for record in self.records.values() {
            loader.record(Record::clone(record));
        }
        for row in self.leases.values() {
            loader.lease(*row);
        }
        loader.finish().expect("the rows of a sound state load")
    }

    /// The rows that the script's entries changed make the same state.
    pub fn check_rebuilt(&self) {
        let rebuilt = self.rebuilt();
        rebuilt.assert_invariants();
        assert_eq!(rebuilt.digest(), self.state.digest());
    }
}

fn answer<T>(
    answer: Result<T, tenure_state::refusal::Refusal>,
    print: impl FnOnce(&T) -> Vec<String>,
) -> Vec<String> {
    match answer {
        Ok(answer) => print(&answer),
        Err(refusal) => vec![format!("refused: {refusal}")],
    }
}
