//! Rules for what stands in a file of Rust.

use crate::repository::Repository;
use crate::rust::{code, code_without_tests, is_test, names};
use crate::{Complaints, judge};

const LINES_MAX: usize = 600;

/// Files that are longer, and how long they may be. The number may only go down.
const LONGER: &[(&str, usize)] = &[];

/// Who may name a clock, and what for. The `clock.rs` of client and server are for leases; all others measure, wait or show, and decide
/// nothing about a lease by it.
const CLOCKS: &[(&str, &str)] = &[
    ("crates/tenure-sim/src/main/clock.rs", "how long the simulator has run"),
    ("crates/tenure/src/bench/clock.rs", "how long a server took to answer"),
    ("crates/tenure-client/src/channel.rs", "how long an endpoint that failed is left alone"),
    ("crates/tenure-client/src/clock.rs", "the time that a holder counts its lease by"),
    ("crates/tenure-server/src/checkpoint.rs", "when the next checkpoint is due, and how long one took"),
    ("crates/tenure-server/src/clock.rs", "the time that goes into Replica::step"),
    ("crates/tenure-server/src/compactor.rs", "how old a revision is, for compaction by time"),
    ("crates/tenure-server/src/disk.rs", "how long an fsync took"),
    ("crates/tenure-server/src/driver.rs", "how long a turn took"),
    ("crates/tenure-server/src/edge/mod.rs", "how long a request took, for the log"),
    ("crates/tenure-server/src/listen.rs", "how long calls may finish when the server stops"),
    ("crates/tenure-server/src/logging/format.rs", "the time of a line, for people"),
    ("crates/tenure-server/src/meter.rs", "how long a call took"),
    ("crates/tenure-server/src/server.rs", "how long it has been up, and when to say how far a start is"),
    ("crates/tenure-server/src/storage.rs", "how long a write took"),
];

/// Who may say `unsafe`.
const UNSAFE: &[(&str, &str)] = &[(
    "crates/tenure-server/src/store.rs",
    "opening a memory map is undefined behaviour if others change the file",
)];

/// Who may use a hash table where order must not differ. None of them goes through it from end to end.
const HASH_TABLES: &[(&str, &str)] = &[(
    "crates/tenure-state/src/lease.rs",
    "a lease is found by its id; what goes through all of them takes the slab",
)];

fn module_comment(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    // `foo/tests.rs` holds the tests of `foo.rs`, and needs no comment to say so.
    for (name, text) in repository.rust().filter(|(name, _)| !name.ends_with("/tests.rs")) {
        let first = text.lines().next().unwrap_or_default();
        if !first.starts_with("//! ") {
            complaints.push(format!("{name}: what is it for? Its first line is not a `//!` comment"));
        }
    }
    complaints
}

#[test]
fn every_file_says_what_it_is_for() {
    judge(
        module_comment,
        &[
            &[("crates/a/src/b.rs", "use std::fs;\n//! Late.\n")],
            &[("crates/a/tests/b.rs", "// Not a module comment.\n")],
            &[("crates/a/src/main.rs", "")],
        ],
        &[("crates/a/src/b.rs", "//! Reads.\n"), ("crates/a/src/b/tests.rs", "use super::*;\n")],
    );
}

/// The lines that count: without inline modules of tests.
fn length(text: &str) -> usize {
    code_without_tests(text).lines().count()
}

fn lengths(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| !is_test(name)) {
        let lines = length(text);
        match LONGER.iter().find(|(longer, _)| *longer == name) {
            Some((_, max)) if lines > *max => {
                complaints.push(format!("{name}: {lines} lines, and it had {max}"))
            }
            Some(_) if lines <= LINES_MAX => {
                complaints.push(format!("{name}: {lines} lines; take it off the list LONGER"))
            }
            None if lines > LINES_MAX => {
                complaints.push(format!("{name}: {lines} lines, more than {LINES_MAX}; divide it"))
            }
            _ => {}
        }
    }
    for (name, _) in
        LONGER.iter().filter(|(name, _)| repository.has_folder("crates/tenure") && !repository.contains(name))
    {
        complaints.push(format!("{name} is gone; take it off the list LONGER"));
    }
    complaints
}

#[test]
fn no_file_is_too_long() {
    let long = "fn a() {}\n".repeat(LINES_MAX + 1);
    let tested = format!("{}#[cfg(test)]\nmod tests {{\n{long}}}\n", "fn a() {}\n".repeat(LINES_MAX - 2));
    judge(
        lengths,
        &[&[("crates/a/src/b.rs", &long)]],
        &[("crates/a/src/b.rs", &tested), ("crates/a/src/c/tests.rs", &long)],
    );
}

fn unfinished(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust() {
        let code = code(text);
        for mark in ["todo!", "unimplemented!", "dbg!"] {
            if names(&code, mark) {
                complaints.push(format!("{name}: {mark}"));
            }
        }
    }
    complaints
}

#[test]
fn nothing_is_left_unfinished() {
    judge(
        unfinished,
        &[
            &[("crates/a/src/b.rs", "fn a() { todo!() }\n")],
            &[("crates/a/src/b.rs", "fn a() { core::unimplemented!(\"later\") }\n")],
            &[("crates/a/tests/b.rs", "fn a() { dbg!(1); }\n")],
        ],
        &[("crates/a/src/b.rs", "// todo! is refused\nfn a() { my_todo!(\"dbg!\") }\n")],
    );
}

fn bare_unwraps(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| !is_test(name)) {
        let count = code_without_tests(text).matches(".unwrap()").count();
        if count > 0 {
            complaints.push(format!("{name}: {count} bare .unwrap(); .expect(\"why this cannot fail\")"));
        }
    }
    complaints
}

#[test]
fn nothing_is_unwrapped_without_a_word() {
    judge(
        bare_unwraps,
        &[&[("crates/a/src/b.rs", "fn a() {\n    b()\n        .unwrap()\n}\n")]],
        &[
            (
                "crates/a/src/b.rs",
                "// .unwrap()\nfn a() { b().unwrap_or(1) }\n#[cfg(test)]\nmod tests { fn a() { b().unwrap() } }\n",
            ),
            ("crates/a/tests/c.rs", "fn a() { b().unwrap() }\n"),
        ],
    );
}

/// Files of shipped code that name one of `words`, and are not on `list`; and those on the list that name none.
fn only_listed(repository: &Repository, words: &[&str], list: &[(&str, &str)], what: &str) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| !is_test(name)) {
        let code = code_without_tests(text);
        let named = words.iter().find(|word| names(&code, word));
        let listed = list.iter().any(|(listed, _)| *listed == name);
        match named {
            Some(word) if !listed => complaints.push(format!("{name}: {word}: {what}")),
            None if listed => {
                complaints.push(format!("{name} is listed for {words:?} and names none of them"))
            }
            _ => {}
        }
    }
    complaints
}

fn raft_in_one_file(repository: &Repository) -> Complaints {
    let only = &[("crates/tenure-replica/src/consensus.rs", "consensus")];
    only_listed(
        repository,
        &["raft::", "protobuf::", "slog::"],
        only,
        "only consensus.rs names the Raft library",
    )
}

#[test]
fn only_consensus_names_the_raft_library() {
    judge(
        raft_in_one_file,
        &[
            &[("crates/tenure-replica/src/lib.rs", "use raft::RawNode;\n")],
            &[("crates/tenure-replica/src/lib.rs", "fn a(b: &::raft::Config) {}\n")],
            &[("crates/tenure-replica/src/consensus.rs", "fn a() {}\n")],
        ],
        &[
            ("crates/tenure-replica/src/consensus.rs", "use raft::RawNode;\n"),
            ("crates/tenure-replica/src/lib.rs", "//! See raft::RawNode.\nuse crate::my_raft::A;\n"),
        ],
    );
}

fn unsafe_in_one_file(repository: &Repository) -> Complaints {
    only_listed(
        repository,
        &["unsafe", "unsafe_code"],
        UNSAFE,
        "only the files in the list UNSAFE of tidy/sources.rs may",
    )
}

#[test]
fn only_the_store_is_unsafe() {
    judge(
        unsafe_in_one_file,
        &[
            &[("crates/a/src/b.rs", "fn a() { unsafe { b() } }\n")],
            &[("crates/a/src/b.rs", "#![allow(unsafe_code)]\n")],
        ],
        &[
            ("crates/a/src/b.rs", "//! Nothing unsafe.\n"),
            ("crates/tenure-server/src/store.rs", "unsafe {}\n"),
        ],
    );
}

fn clocks_in_few_files(repository: &Repository) -> Complaints {
    let words = ["Instant::now", "SystemTime::now", "clock_gettime", "UNIX_EPOCH"];
    let what =
        "time comes from clock.rs; to measure only, name the file in the list CLOCKS of tidy/sources.rs";
    only_listed(repository, &words, CLOCKS, what)
}

#[test]
fn only_a_few_files_read_a_clock() {
    judge(
        clocks_in_few_files,
        &[
            &[("crates/tenure-server/src/edge/kv.rs", "fn a() { let now = Instant::now(); }\n")],
            &[("crates/tenure-replica/src/lib.rs", "fn a() { std::time::SystemTime::now(); }\n")],
            &[("crates/tenure-client/src/clock.rs", "fn a() {}\n")],
        ],
        &[
            ("crates/tenure-server/src/a.rs", "//! Not Instant::now.\n"),
            ("crates/a/tests/b.rs", "fn a() { Instant::now(); }\n"),
        ],
    );
}

/// The crates without clock, IO, threads and chance.
fn pure(name: &str) -> bool {
    ["crates/tenure-state/src/", "crates/tenure-replica/src/"].iter().any(|folder| name.starts_with(folder))
}

fn no_std(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| name.starts_with("crates/tenure-state/src/")) {
        let code = code_without_tests(text);
        if name == "crates/tenure-state/src/lib.rs" && !code.lines().any(|line| line == "#![no_std]") {
            complaints.push(format!("{name}: #![no_std] is missing"));
        }
        if names(&code, "extern crate std") {
            complaints.push(format!("{name}: extern crate std"));
        }
    }
    complaints
}

#[test]
fn the_state_is_no_std() {
    judge(
        no_std,
        &[
            &[("crates/tenure-state/src/lib.rs", "//! State.\n")],
            &[("crates/tenure-state/src/lib.rs", "//! State.\n#![no_std]\nextern crate std;\n")],
            &[("crates/tenure-state/src/lib.rs", "#![cfg_attr(not(feature = \"std\"), no_std)]\n")],
        ],
        &[("crates/tenure-state/src/lib.rs", "//! State.\n#![no_std]\nextern crate alloc;\n")],
    );
}

fn nothing_waits(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| pure(name)) {
        let code = code(text);
        for word in ["async", ".await", "thread_local!", "static mut"] {
            if names(&code, word) {
                complaints.push(format!("{name}: {word}"));
            }
        }
    }
    complaints
}

#[test]
fn nothing_waits_in_state_or_replica() {
    judge(
        nothing_waits,
        &[
            &[("crates/tenure-replica/src/a.rs", "pub async fn a() {}\n")],
            &[("crates/tenure-state/src/a.rs", "fn a() { b().await }\n")],
            &[("crates/tenure-replica/src/a.rs", "thread_local! { static A: u8 = 1; }\n")],
        ],
        &[
            ("crates/tenure-replica/src/a.rs", "//! Nothing async.\nfn awaits() {}\n"),
            ("crates/tenure-server/src/a.rs", "async fn a() {}\n"),
        ],
    );
}

fn hash_tables(repository: &Repository) -> Complaints {
    let words = ["HashMap", "HashSet", "FxHashMap", "FxHashSet", "HashTable"];
    let mut complaints = Vec::new();
    for (name, text) in repository.rust().filter(|(name, _)| pure(name) && !is_test(name)) {
        let code = code_without_tests(text);
        let listed = HASH_TABLES.iter().any(|(listed, _)| *listed == name);
        if words.iter().any(|word| names(&code, word)) != listed {
            complaints.push(format!("{name}: a hash table's order is no order; BTreeMap, or the list HASH_TABLES of tidy/sources.rs"));
        }
    }
    complaints
}

#[test]
fn order_does_not_come_from_a_hash() {
    judge(
        hash_tables,
        &[
            &[("crates/tenure-replica/src/a.rs", "use rustc_hash::FxHashMap;\n")],
            &[("crates/tenure-state/src/a.rs", "use hashbrown::HashSet;\n")],
        ],
        &[
            ("crates/tenure-state/src/lease.rs", "use hashbrown::HashMap;\n"),
            ("crates/tenure-server/src/a.rs", "use std::collections::HashMap;\n"),
        ],
    );
}

fn allowed_with_reason(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust() {
        let code = code(text);
        for start in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in code.match_indices(start) {
                let attribute = &code[at..at + code[at..].find(']').unwrap_or(code.len() - at)];
                if !names(attribute, "reason") {
                    complaints.push(format!("{name}: {attribute}]: without a reason"));
                }
            }
        }
    }
    complaints
}

#[test]
fn a_lint_is_switched_off_with_its_reason() {
    judge(
        allowed_with_reason,
        &[
            &[("crates/a/src/b.rs", "#[allow(dead_code)]\nfn a() {}\n")],
            &[("crates/a/src/b.rs", "#![expect(\n    dead_code,\n)]\n")],
        ],
        &[("crates/a/src/b.rs", "#[expect(\n    dead_code,\n    reason = \"soon\"\n)]\nfn a() {}\n")],
    );
}
