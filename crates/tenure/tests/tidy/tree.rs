//! Rules for the files as such: names, sizes, what no text may contain, what nothing uses.

use crate::repository::Repository;
use crate::rust::{code, names};
use crate::{Complaints, judge};

const BYTES_MAX: usize = 1 << 20;

/// Names that fit everything, and so collect it.
const JUNK_DRAWERS: &[&str] = &["common", "helper", "helpers", "misc", "shared", "types", "util", "utils"];

fn junk_drawers(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.rust() {
        let stems = name.split('/').map(|part| part.trim_end_matches(".rs"));
        complaints.extend(
            stems
                .filter(|stem| JUNK_DRAWERS.contains(stem))
                .map(|stem| format!("{name}: `{stem}` says nothing")),
        );
        let code = code(text);
        let inline = JUNK_DRAWERS.iter().filter(|drawer| names(&code, &format!("mod {drawer}")));
        complaints.extend(inline.map(|drawer| format!("{name}: `mod {drawer}` says nothing")));
    }
    complaints
}

#[test]
fn no_module_is_a_junk_drawer() {
    judge(
        junk_drawers,
        &[
            &[("crates/a/src/utils.rs", "")],
            &[("crates/a/tests/common/mod.rs", "")],
            &[("crates/a/src/b.rs", "mod helpers {}\n")],
        ],
        &[("crates/a/src/utility_of_a_lease.rs", "mod types_of_keys;\n")],
    );
}

/// A file that no `mod` names is not compiled, and nobody notices.
fn dead_files(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, _) in repository.rust() {
        let Some((krate, path)) = name.split_once("/src/") else { continue };
        let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if parts.last() == Some(&"mod") {
            parts.pop();
        }
        if let ["lib"] | ["main"] | ["bin", ..] = parts[..] {
            continue;
        }
        let module = parts.pop().expect("a path has a last part");
        let folder = parts.join("/");
        let parents = match folder.as_str() {
            "" => [format!("{krate}/src/lib.rs"), format!("{krate}/src/main.rs")],
            _ => [format!("{krate}/src/{folder}.rs"), format!("{krate}/src/{folder}/mod.rs")],
        };
        let declared = |parent: &String| {
            let text = repository.text(parent).unwrap_or_default();
            names(&code(text), &format!("mod {module};"))
        };
        if !parents.iter().any(declared) {
            complaints.push(format!("{name}: no `mod {module};` in {}", parents.join(" or ")));
        }
    }
    complaints
}

#[test]
fn every_file_is_compiled() {
    judge(
        dead_files,
        &[
            &[("crates/a/src/lib.rs", "//! A.\n"), ("crates/a/src/b.rs", "")],
            &[
                ("crates/a/src/lib.rs", "mod b;\n// mod c;\n"),
                ("crates/a/src/b.rs", ""),
                ("crates/a/src/c.rs", ""),
            ],
            &[("crates/a/src/lib.rs", "mod b;\n"), ("crates/a/src/b.rs", ""), ("crates/a/src/b/c.rs", "")],
        ],
        &[
            ("crates/a/src/lib.rs", "pub(crate) mod b;\n"),
            ("crates/a/src/b/mod.rs", "mod c;\n"),
            ("crates/a/src/b/c.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/c/tests.rs", ""),
            ("crates/a/src/bin/d.rs", ""),
        ],
    );
}

fn protos(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    let Some(build) = repository.text("crates/tenure-proto/build.rs") else { return complaints };
    for (name, _) in repository.texts() {
        let Some(proto) = name.strip_prefix("crates/tenure-proto/proto/") else { continue };
        if proto.ends_with(".proto") && !build.contains(&format!("\"{proto}\"")) {
            complaints.push(format!("{name}: not in build.rs, so nothing is made of it"));
        }
    }
    complaints
}

#[test]
fn every_proto_is_compiled() {
    judge(
        protos,
        &[&[
            ("crates/tenure-proto/build.rs", "[\"etcd/kv.proto\"]"),
            ("crates/tenure-proto/proto/kv.proto", ""),
        ]],
        &[
            ("crates/tenure-proto/build.rs", "[\"etcd/kv.proto\"]"),
            ("crates/tenure-proto/proto/etcd/kv.proto", ""),
        ],
    );
}

fn large_files(repository: &Repository) -> Complaints {
    let large = repository.sizes().filter(|(_, bytes)| *bytes > BYTES_MAX);
    large.map(|(name, bytes)| format!("{name}: {bytes} bytes do not belong into git")).collect()
}

#[test]
fn no_file_is_large() {
    let large = "x".repeat(BYTES_MAX + 1);
    judge(large_files, &[&[("a.bin", &large)]], &[("a.bin", &large[1..])]);
}

/// What is true on one machine only: folders of the machines that this is built on, and mirrors of registries. Put
/// together here, so that this file does not contain them.
fn machine_words() -> [String; 8] {
    let host = |parts: [&str; 2]| parts.join(".");
    [
        ["/wo", "rk/"].concat(),
        ["/tmp", "/wt/"].concat(),
        [".lib", "rary"].concat(),
        ["arti", "factory"].concat(),
        host(["index", "crates.io"]),
        host(["proxy", "golang.org"]),
        host(["registry", "npmjs.org"]),
        host(["files", "pythonhosted.org"]),
    ]
}

fn machines(repository: &Repository) -> Complaints {
    let words = machine_words();
    let mut complaints = Vec::new();
    for (name, text) in repository.texts() {
        let found = words.iter().filter(|word| text.contains(word.as_str()));
        complaints.extend(found.map(|word| format!("{name}: {word} is there on one machine only")));
    }
    complaints
}

#[test]
fn nothing_depends_on_one_machine() {
    let bad: Vec<String> = machine_words().iter().map(|word| format!("see {word}x\n")).collect();
    let samples: Vec<[(&str, &str); 1]> = bad.iter().map(|text| [("docs/a.md", text.as_str())]).collect();
    let samples: Vec<&[(&str, &str)]> = samples.iter().map(|sample| sample.as_slice()).collect();
    judge(machines, &samples, &[("docs/a.md", "the way of a write: docs/walkthrough.md\n")]);
}

fn scripts(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in repository.texts() {
        let shell = text.lines().next().is_some_and(|line| line.starts_with("#!") && line.ends_with("sh"));
        if shell && !text.lines().any(|line| line == "set -euo pipefail") {
            complaints.push(format!("{name}: without `set -euo pipefail` it goes on after a failure"));
        }
    }
    complaints
}

#[test]
fn scripts_stop_at_the_first_failure() {
    judge(
        scripts,
        &[&[("scripts/a.sh", "#!/usr/bin/env bash\necho\n")], &[("a", "#!/bin/sh\nset -e\n")]],
        &[("scripts/a.sh", "#!/usr/bin/env bash\nset -euo pipefail\n"), ("b.py", "#!/usr/bin/env python3\n")],
    );
}
