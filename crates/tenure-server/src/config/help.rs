//! The table of flags, written for people: on the terminal and in docs/configuration.md.

use std::fmt::Write;

use super::flags::{FLAGS, Flag, Group, Kind, Standing};
use crate::identity::ETCD_VERSION;

const EXAMPLES: &str = "\
Start a lease server that speaks etcd's v3 API.

Usage: tenure serve [flags]

Examples:
  tenure serve                                        on localhost:2379, data in ./default.tenure
  tenure serve --name n1 --data-dir /var/lib/tenure --auto-compaction-retention 1h
  tenure serve --listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://10.0.0.7:2379
  tenure serve --listen-client-urls unix:///run/tenure.sock --listen-metrics-urls http://127.0.0.1:2381
  tenure serve --config-file /etc/tenure.yaml         etcd's file, with etcd's names

Flags are written as etcd's: --name=value, --name value or -name value; a switch alone is true; the last one wins.
Each can be set in the environment: --data-dir is TENURE_DATA_DIR or ETCD_DATA_DIR.
";

/// What `tenure serve --help` prints.
pub fn help() -> String {
    let mut text = EXAMPLES.to_owned();
    for (group, title) in Group::ALL {
        let working: Vec<&Flag> = in_group(group).filter(|flag| flag.standing == Standing::Works).collect();
        if working.is_empty() || group == Group::Old {
            continue;
        }
        let _ = write!(text, "\n{title}:\n");
        for flag in working {
            let head = format!("  --{} {}", flag.name, placeholder(flag.kind));
            let default = if shows_default(flag) { format!(" [{}]", flag.default) } else { String::new() };
            let lines = wrap(&format!("{}{default}", flag.help), 66);
            if head.len() > 42 {
                let _ = writeln!(text, "{head}");
            }
            for (i, line) in lines.iter().enumerate() {
                let start = if i == 0 && head.len() <= 42 { head.as_str() } else { "" };
                let _ = writeln!(text, "{start:<44}{line}");
            }
        }
    }
    text.push_str("\nOther flags of etcd, accepted without effect (docs/configuration.md says why):\n");
    push_names(&mut text, |standing| matches!(standing, Standing::Ignored(_)));
    text.push_str("\nRefused, because what they ask for is not there:\n");
    push_names(&mut text, |standing| matches!(standing, Standing::Refused(_)));
    text
}

fn push_names(text: &mut String, wanted: fn(Standing) -> bool) {
    let names: Vec<_> = FLAGS.iter().filter(|flag| wanted(flag.standing)).map(|flag| flag.name).collect();
    for line in wrap(&names.join(" "), 106) {
        let _ = writeln!(text, "  {line}");
    }
}

/// What `--version` prints: etcd's four lines, which scripts parse.
pub fn version() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let (tenure, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    format!(
        "etcd Version: {ETCD_VERSION}\nGit SHA: Tenure-{tenure}\nGo Version: none (Tenure {tenure}, in Rust)\n\
         Go OS/Arch: {os}/{arch}\n"
    )
}

/// A flag as a shell offers it.
#[derive(Debug)]
pub struct Offer {
    pub name: &'static str,
    pub help: &'static str,
    pub takes_value: bool,
    /// All that it can be; empty if that is not a short list.
    pub choices: &'static [&'static str],
}

/// The flags that do something here.
pub fn offers() -> impl Iterator<Item = Offer> {
    let working = FLAGS.iter().filter(|flag| flag.standing == Standing::Works && flag.group != Group::Old);
    working.map(|flag| Offer {
        name: flag.name,
        help: flag.help,
        takes_value: flag.kind != Kind::Bool,
        choices: match flag.kind {
            Kind::Choice(choices) => choices,
            _ => &[],
        },
    })
}

fn in_group(group: Group) -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(move |flag| flag.group == group)
}

fn shows_default(flag: &Flag) -> bool {
    !flag.default.is_empty() && flag.kind != Kind::Bool
}

fn placeholder(kind: Kind) -> String {
    match kind {
        Kind::Bool => String::new(),
        Kind::Int(..) => "N".to_owned(),
        Kind::Duration(_) => "TIME".to_owned(),
        Kind::Text => "TEXT".to_owned(),
        Kind::Choice(choices) => choices.join("|"),
        Kind::List => "A,B".to_owned(),
        Kind::Urls => "URL,…".to_owned(),
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// The tables of docs/configuration.md.
#[cfg(test)]
pub(super) fn markdown() -> String {
    let mut text = String::new();
    for (group, title) in Group::ALL {
        let _ = write!(text, "\n### {title}\n\n| flag | default | what it does here |\n|---|---|---|\n");
        for flag in in_group(group) {
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let kind = match flag.kind {
                Kind::Choice(choices) if flag.standing == Standing::Works => {
                    let choices: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
                    format!(" One of {}.", choices.join(", "))
                }
                _ => String::new(),
            };
            let does = match flag.standing {
                Standing::Works => format!("{}{kind}", flag.help),
                Standing::Ignored(why) => {
                    format!("*No effect:* {why}. ({})", flag.help.trim_end_matches('.'))
                }
                Standing::Refused(why) => {
                    format!("**Refused:** {why}. ({})", flag.help.trim_end_matches('.'))
                }
            };
            let _ = writeln!(text, "| `--{}` | {default} | {does} |", flag.name);
        }
    }
    text
}
