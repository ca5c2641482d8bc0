//! Rules for the Cargo.toml files: the arrows between the crates, and what each may depend on.

use crate::repository::Repository;
use crate::{Complaints, judge};

/// Which of our crates each of them may use. ARCHITECTURE.md draws it.
const ARROWS: &[(&str, &[&str])] = &[
    ("tenure-state", &[]),
    ("tenure-proto", &[]),
    ("tenure-replica", &["tenure-state", "tenure-proto"]),
    ("tenure-server", &["tenure-replica", "tenure-state", "tenure-proto"]),
    ("tenure-client", &["tenure-proto"]),
    ("tenure-sim", &["tenure-replica", "tenure-state"]),
    // The program asks for a few things by the bare messages, where the client has no word for them.
    ("tenure", &["tenure-server", "tenure-client", "tenure-proto"]),
];

/// Everything else that the two pure crates link. One more is a decision, and stands here with what it is for.
const PURE: &[(&str, &[(&str, &str)])] = &[
    (
        "tenure-state",
        &[
            ("bytes", "values that are shared and not copied"),
            ("crc", "checksums"),
            ("hashbrown", "tables that are only looked up, without std"),
            ("rustc-hash", "a hasher without a seed"),
            ("smallvec", "short lists without an allocation"),
            ("thiserror", "texts of refusals"),
        ],
    ),
    (
        "tenure-replica",
        &[
            ("bytes", "values that are shared and not copied"),
            ("crc", "checksums"),
            ("prost", "entries of the log, encoded"),
            ("protobuf", "Raft's own messages, encoded"),
            ("raft", "consensus"),
            ("rustc-hash", "a hasher without a seed"),
            ("slog", "what raft logs to"),
            ("smallvec", "short lists without an allocation"),
            ("thiserror", "texts of errors"),
            ("tracing", "events of the log; who writes them is the server's business"),
        ],
    ),
];

/// Crates that belong to one or two of ours.
const KEPT_TO: &[(&str, &[&str], &str)] = &[
    ("raft", &["tenure-replica"], "consensus is one file there"),
    ("heed", &["tenure-server"], "the checkpoint is one file there"),
    ("axum", &["tenure-server"], "HTTP is an edge"),
    ("anyhow", &["tenure", "tenure-server"], "errors that a caller must tell apart are an enum"),
    ("clap", &["tenure"], "flags are the program's"),
    ("mimalloc", &["tenure"], "a library does not choose the allocator"),
];

#[derive(Debug, PartialEq)]
struct Dependency {
    name: String,
    /// What stands behind the name.
    value: String,
    dev: bool,
    build: bool,
}

/// The dependencies that a manifest declares, those for one platform too.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.to_string();
            // `[dependencies.name]` with the details below it.
            if let Some((kind, name)) = section.split_once("dependencies.") {
                let (dev, build) = (kind.ends_with("dev-"), kind.ends_with("build-"));
                found.push(Dependency { name: name.to_string(), value: String::new(), dev, build });
            }
        } else if section.ends_with("dependencies") && section != "workspace.dependencies" {
            let Some((left, right)) = line.split_once('=') else { continue };
            let (name, key) = left.trim().split_once('.').unwrap_or((left.trim(), ""));
            let (dev, build) =
                (section.ends_with("dev-dependencies"), section.ends_with("build-dependencies"));
            let value = format!("{key} = {}", right.trim());
            found.push(Dependency { name: name.to_string(), value, dev, build });
        } else if section.contains("dependencies.")
            && let Some(last) = found.last_mut()
        {
            last.value.push_str(line);
        }
    }
    found
}

/// Each of our crates and its manifest.
fn manifests(repository: &Repository) -> impl Iterator<Item = (&str, &str)> {
    repository.texts().filter_map(|(name, text)| {
        let krate = name.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!krate.contains('/')).then_some((krate, text))
    })
}

fn arrows(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (krate, manifest) in manifests(repository) {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == krate) else {
            complaints
                .push(format!("{krate}: not one of the seven crates; ARCHITECTURE.md says where things go"));
            continue;
        };
        for dependency in dependencies(manifest) {
            let ours = dependency.name == "tenure" || dependency.name.starts_with("tenure-");
            if ours && !allowed.contains(&dependency.name.as_str()) {
                complaints.push(format!("{krate} must not depend on {}", dependency.name));
            }
        }
    }
    complaints
}

#[test]
fn the_arrows_between_the_crates() {
    judge(
        arrows,
        &[
            &[("crates/tenure-client/Cargo.toml", "[dependencies]\ntenure-server.workspace = true\n")],
            &[(
                "crates/tenure-sim/Cargo.toml",
                "[dependencies]\ntenure-server = { path = \"../tenure-server\" }\n",
            )],
            &[("crates/tenure-state/Cargo.toml", "[dev-dependencies]\ntenure-proto.workspace = true\n")],
            &[("crates/tenure-proto/Cargo.toml", "[dependencies.tenure-state]\nworkspace = true\n")],
            &[(
                "crates/tenure-replica/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\ntenure.workspace = true\n",
            )],
            &[("crates/tenure-more/Cargo.toml", "[package]\n")],
        ],
        &[(
            "crates/tenure-replica/Cargo.toml",
            "[dependencies]\ntenure-state.workspace = true\nraft = \"1\"\n",
        )],
    );
}

/// Only where all crates are: the samples of the other rules need not be complete.
fn all_seven(repository: &Repository) -> Complaints {
    let missing =
        ARROWS.iter().filter(|(krate, _)| !repository.contains(&format!("crates/{krate}/Cargo.toml")));
    missing.map(|(krate, _)| format!("{krate} is missing")).collect()
}

#[test]
fn there_are_seven_crates() {
    let names: Vec<String> = ARROWS.iter().map(|(krate, _)| format!("crates/{krate}/Cargo.toml")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    judge(all_seven, &[&all[1..]], &all);
}

fn pure_crates(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (krate, manifest) in manifests(repository) {
        let Some((_, allowed)) = PURE.iter().find(|(name, _)| *name == krate) else { continue };
        let shipped = dependencies(manifest).into_iter().filter(|dependency| !dependency.dev);
        for Dependency { name, build, .. } in shipped {
            if build || !(name.starts_with("tenure-") || allowed.iter().any(|(allowed, _)| *allowed == name))
            {
                complaints.push(format!(
                    "{krate} depends on {name}: say what it is for in tidy/manifests.rs, or leave it"
                ));
            }
        }
    }
    complaints
}

#[test]
fn state_and_replica_link_only_what_is_listed() {
    judge(
        pure_crates,
        &[
            &[("crates/tenure-replica/Cargo.toml", "[dependencies]\ntokio.workspace = true\n")],
            &[("crates/tenure-state/Cargo.toml", "[dependencies]\nrand = { workspace = true }\n")],
            &[("crates/tenure-state/Cargo.toml", "[build-dependencies]\nbytes = { workspace = true }\n")],
        ],
        &[(
            "crates/tenure-state/Cargo.toml",
            "[dependencies]\nbytes.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n",
        )],
    );
}

fn kept_to(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (krate, manifest) in manifests(repository) {
        for Dependency { name, .. } in dependencies(manifest) {
            if let Some((_, homes, reason)) = KEPT_TO.iter().find(|(kept, ..)| *kept == name)
                && !homes.contains(&krate)
            {
                complaints.push(format!("{krate} must not depend on {name}: {reason}"));
            }
        }
    }
    complaints
}

#[test]
fn some_crates_are_kept_to_one_place() {
    judge(
        kept_to,
        &[
            &[("crates/tenure-server/Cargo.toml", "[dependencies]\nraft.workspace = true\n")],
            &[("crates/tenure-client/Cargo.toml", "[dev-dependencies]\nanyhow.workspace = true\n")],
        ],
        &[("crates/tenure-replica/Cargo.toml", "[dependencies]\nraft.workspace = true\n")],
    );
}

fn versions_once(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (krate, manifest) in manifests(repository) {
        for Dependency { name, value, .. } in dependencies(manifest) {
            let inherited = value.replace(' ', "").contains("workspace=true");
            if !inherited {
                complaints
                    .push(format!("{krate}: the version of {name} belongs into the workspace's Cargo.toml"));
            }
        }
    }
    complaints
}

#[test]
fn versions_stand_in_the_workspace() {
    judge(
        versions_once,
        &[
            &[("crates/tenure/Cargo.toml", "[dependencies]\nclap = \"4\"\n")],
            &[("crates/tenure/Cargo.toml", "[dependencies.clap]\nversion = \"4\"\n")],
            &[("crates/tenure/Cargo.toml", "[dev-dependencies]\nclap = { version = \"4\" }\n")],
        ],
        &[(
            "crates/tenure/Cargo.toml",
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"x\"] }\n[dependencies.c]\nworkspace = true\n",
        )],
    );
}

fn same_lints(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (krate, manifest) in manifests(repository) {
        if !manifest.contains("\n[lints]\nworkspace = true\n") {
            complaints.push(format!("{krate}: `[lints] workspace = true` is missing"));
        }
    }
    complaints
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    judge(
        same_lints,
        &[&[("crates/tenure/Cargo.toml", "[package]\nname = \"tenure\"\n")]],
        &[("crates/tenure/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n")],
    );
}

/// The entries of a clippy.toml, of a deny.toml and of [`KEPT_TO`] alike.
fn bans_have_reasons(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in
        repository.texts().filter(|(name, _)| name.ends_with("clippy.toml") || *name == "deny.toml")
    {
        for line in text.lines().map(str::trim) {
            let ban = line.starts_with("{ path =") || line.starts_with("{ crate =");
            let bare = line.starts_with('"') && line.contains("::");
            if bare || ban && !line.contains("reason = \"") {
                complaints.push(format!("{name}: {line}: without a reason"));
            }
        }
    }
    complaints
}

#[test]
fn every_ban_has_its_reason() {
    judge(
        bans_have_reasons,
        &[
            &[("clippy.toml", "disallowed-methods = [\n    { path = \"std::fs::read\" },\n]\n")],
            &[("crates/a/clippy.toml", "disallowed-methods = [\n    \"std::fs::read\",\n]\n")],
            &[("deny.toml", "deny = [\n    { crate = \"a\" },\n]\n")],
        ],
        &[("clippy.toml", "disallowed-methods = [\n    { path = \"std::fs::read\", reason = \"no\" },\n]\n")],
    );
}
