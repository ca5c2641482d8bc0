//! Golden transcripts: one scenario a file, the file name is the claim.
//!
//! A script is read line by line. `#` starts a comment, `>` a command (see `scripts/language.rs`), and what
//! stands below a command is what it printed. A test fails if it prints anything else; with `REWRITE=1` in the
//! environment it writes down what was printed instead, to be read against the rules before it is committed.
#![expect(clippy::disallowed_methods, reason = "the scripts are files")]

#[path = "scripts/language.rs"]
mod language;
#[path = "scripts/print.rs"]
mod print;
#[path = "scripts/session.rs"]
mod session;

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::session::Session;

#[test]
fn all_scripts_print_what_they_printed() {
    let rewrite = env::var_os("REWRITE").is_some();
    let mut different = Vec::new();
    let scripts = scripts();
    assert!(scripts.len() >= 30, "the scripts were not found");
    for path in scripts {
        let written = fs::read_to_string(&path).expect("a script can be read");
        let printed = run(&path, &written);
        if written == printed {
            continue;
        }
        if rewrite {
            fs::write(&path, &printed).expect("a script can be written");
        } else {
            different.push(format!("{}:\n{}", path.display(), difference(&written, &printed)));
        }
    }
    assert!(different.is_empty(), "REWRITE=1 records what was printed\n\n{}", different.join("\n"));
}

#[test]
fn a_script_that_claims_something_else_is_found() {
    let true_one = "> put a 1\nok rev=2\nevent PUT a=1 v1 created@2 @2.0 (no prev)\n";
    let path = Path::new("in this test");
    assert_eq!(run(path, true_one), true_one);
    let false_one = true_one.replace("rev=2", "rev=3");
    let printed = run(path, &false_one);
    assert_eq!(printed, true_one);
    let expected = "  line 2, after > put a 1\n  written: ok rev=3\n  printed: ok rev=2\n";
    assert_eq!(difference(&false_one, &printed), expected);
    // What is not claimed at all is found as well.
    assert_ne!(run(path, "> put a 1\n"), "> put a 1\n");
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the folder of scripts is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

/// The script with what its commands print now.
fn run(path: &Path, script: &str) -> String {
    let mut session = Session::new();
    let mut printed = String::new();
    for (number, line) in script.lines().enumerate() {
        let is_output = !line.is_empty() && !line.starts_with(['#', '>']);
        if is_output {
            continue;
        }
        printed.push_str(line);
        printed.push('\n');
        if let Some(command) = line.strip_prefix('>') {
            let answer = session.run(command);
            let answer = answer.unwrap_or_else(|what| {
                panic!("{}:{}: {what}", path.display(), number + 1);
            });
            for line in answer {
                printed.push_str(&line);
                printed.push('\n');
            }
        }
    }
    session.check_rebuilt();
    printed
}

/// The first line that differs, with what leads to it.
fn difference(written: &str, printed: &str) -> String {
    let same = written.lines().zip(printed.lines()).take_while(|(a, b)| a == b).count();
    let command = printed.lines().take(same + 1).filter(|line| line.starts_with('>')).last();
    format!(
        "  line {}, after {}\n  written: {}\n  printed: {}\n",
        same + 1,
        command.unwrap_or("the start"),
        written.lines().nth(same).unwrap_or("(the end)"),
        printed.lines().nth(same).unwrap_or("(the end)"),
    )
}
