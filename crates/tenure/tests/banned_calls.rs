//! The lists of banned calls are seen to work: a copy of the workspace gets calls that `tenure-state` and
//! `tenure-replica` must not make, and clippy must refuse each of them by its name.
//!
//! Without clippy these tests say so and pass: who builds Tenure need not have it. CI has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each ban is tried with: the path in clippy.toml, and code that uses it.
const CALLS: &[(&str, &str)] = &[
    ("std::time::Instant::now", "std::time::Instant::now();"),
    ("std::time::Instant::elapsed", "fn f(t: std::time::Instant) { t.elapsed(); }"),
    ("std::time::SystemTime::now", "std::time::SystemTime::now();"),
    ("std::time::SystemTime::elapsed", "fn f(t: std::time::SystemTime) { let _ = t.elapsed(); }"),
    ("std::thread::spawn", "std::thread::spawn(|| {});"),
    ("std::thread::scope", "std::thread::scope(|_| {});"),
    ("std::thread::sleep", "std::thread::sleep(core::time::Duration::ZERO);"),
    ("std::thread::park", "std::thread::park();"),
    ("std::thread::yield_now", "std::thread::yield_now();"),
    ("std::fs::read", "let _ = std::fs::read(\"\");"),
    ("std::fs::read_to_string", "let _ = std::fs::read_to_string(\"\");"),
    ("std::fs::read_dir", "let _ = std::fs::read_dir(\"\");"),
    ("std::fs::write", "let _ = std::fs::write(\"\", \"\");"),
    ("std::fs::rename", "let _ = std::fs::rename(\"\", \"\");"),
    ("std::fs::copy", "let _ = std::fs::copy(\"\", \"\");"),
    ("std::fs::hard_link", "let _ = std::fs::hard_link(\"\", \"\");"),
    ("std::fs::metadata", "let _ = std::fs::metadata(\"\");"),
    ("std::fs::exists", "let _ = std::fs::exists(\"\");"),
    ("std::fs::remove_file", "let _ = std::fs::remove_file(\"\");"),
    ("std::fs::remove_dir", "let _ = std::fs::remove_dir(\"\");"),
    ("std::fs::remove_dir_all", "let _ = std::fs::remove_dir_all(\"\");"),
    ("std::fs::create_dir", "let _ = std::fs::create_dir(\"\");"),
    ("std::fs::create_dir_all", "let _ = std::fs::create_dir_all(\"\");"),
    ("std::env::var", "let _ = std::env::var(\"\");"),
    ("std::env::var_os", "let _ = std::env::var_os(\"\");"),
    ("std::env::vars", "let _ = std::env::vars();"),
    ("std::env::args", "let _ = std::env::args();"),
    ("std::process::id", "std::process::id();"),
    ("std::process::exit", "fn f() { std::process::exit(1) }"),
    ("std::process::abort", "fn f() { std::process::abort() }"),
    ("std::collections::HashMap", "let _: std::collections::HashMap<u8, u8>;"),
    ("std::collections::HashSet", "let _: std::collections::HashSet<u8>;"),
    ("std::hash::RandomState", "let _: std::hash::RandomState;"),
    ("std::hash::DefaultHasher", "let _: std::hash::DefaultHasher;"),
    ("std::time::Instant", "let _: std::time::Instant;"),
    ("std::time::SystemTime", "let _: std::time::SystemTime;"),
    ("std::fs::File", "let _ = std::fs::File::open(\"\");"),
    ("std::fs::OpenOptions", "let _ = std::fs::OpenOptions::new();"),
    ("std::net::TcpStream", "let _: std::net::TcpStream;"),
    ("std::net::TcpListener", "let _: std::net::TcpListener;"),
    ("std::net::UdpSocket", "let _: std::net::UdpSocket;"),
    ("std::process::Command", "let _: std::process::Command;"),
    ("std::thread::JoinHandle", "let _: std::thread::JoinHandle<()>;"),
    ("std::sync::Mutex", "let _: std::sync::Mutex<u8>;"),
    ("std::sync::RwLock", "let _: std::sync::RwLock<u8>;"),
    ("std::sync::Condvar", "let _: std::sync::Condvar;"),
    ("std::sync::mpsc::Sender", "let _: std::sync::mpsc::Sender<u8>;"),
    ("std::sync::mpsc::Receiver", "let _: std::sync::mpsc::Receiver<u8>;"),
];

#[test]
fn clippy_refuses_what_a_replica_must_not_call() {
    refuses_each_call("tenure-replica", "");
}

#[test]
fn clippy_refuses_what_the_state_must_not_call() {
    // Without this line the compiler refuses all of it: the crate is no_std.
    refuses_each_call("tenure-state", "extern crate std;\n");
}

fn refuses_each_call(krate: &str, before: &str) {
    let Some(clippy) = clippy() else { return };
    let copy = Copy::of_the_workspace(krate);

    // As it is, it passes: so what is refused afterwards is what was put in.
    let (passed, said) = copy.check(&clippy);
    assert!(passed, "clippy does not even accept {krate} as it is:\n{said}");

    let bans = bans(krate);
    let tried: BTreeSet<&str> = CALLS.iter().map(|(path, _)| *path).collect();
    assert_eq!(
        bans,
        tried.into_iter().map(str::to_string).collect(),
        "{krate}/clippy.toml and CALLS of this test differ"
    );

    copy.append_to_lib(&format!("\n{before}\n{}", offender()));
    let (passed, said) = copy.check(&clippy);
    assert!(!passed, "clippy accepts all banned calls in {krate}");
    for (path, code) in CALLS {
        let named = ["method", "type"].map(|kind| format!("use of a disallowed {kind} `{path}`"));
        assert!(
            named.iter().any(|named| said.contains(named)),
            "{krate}: `{code}` is not refused as {path}:\n{said}"
        );
    }
}

/// A function that makes every banned call.
fn offender() -> String {
    let mut code = "#[allow(warnings, reason = \"only the bans matter here\")]\n".to_string();
    code.push_str(
        "#[deny(clippy::disallowed_methods, clippy::disallowed_types, reason = \"as in the workspace\")]\n",
    );
    code.push_str("pub fn offender() {\n");
    for (_, call) in CALLS {
        code.push_str(&format!("    {{ {call} }}\n"));
    }
    code.push_str("}\n");
    code
}

/// What the crate's clippy.toml bans of std; what it bans of crates that are not there cannot be tried.
fn bans(krate: &str) -> BTreeSet<String> {
    let list = fs::read_to_string(root().join("crates").join(krate).join("clippy.toml"))
        .expect("the crate has bans");
    let entries = list.lines().filter(|line| !line.contains("allow-invalid"));
    let paths = entries.filter_map(|line| line.trim().strip_prefix("{ path = \"")?.split('"').next());
    paths.map(str::to_string).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cargo that has clippy.
fn clippy() -> Option<PathBuf> {
    let cargo = PathBuf::from(env!("CARGO"));
    let answer = Command::new(&cargo).args(["clippy", "--version"]).output();
    if answer.is_ok_and(|answer| answer.status.success()) {
        return Some(cargo);
    }
    eprintln!("SKIPPED: cargo clippy is not installed, so nothing was tried");
    assert!(std::env::var_os("CI").is_none(), "CI must have clippy");
    None
}

/// The manifests, the lists of bans, the lock file and the sources, in a folder of its own, and a crate to change.
struct Copy {
    folder: PathBuf,
    krate: &'static str,
}

impl Copy {
    fn of_the_workspace(krate: &str) -> Copy {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("banned-calls-{krate}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder can be made");
        for file in ["Cargo.toml", "Cargo.lock", "clippy.toml"] {
            fs::copy(root().join(file), folder.join(file)).expect("a file can be copied");
        }
        copy_folder(&root().join("crates"), &folder.join("crates"));
        let krate = ["tenure-state", "tenure-replica"].into_iter().find(|known| *known == krate);
        Copy { folder, krate: krate.expect("one of the two") }
    }

    fn append_to_lib(&self, code: &str) {
        let lib = self.folder.join("crates").join(self.krate).join("src/lib.rs");
        let text = fs::read_to_string(&lib).expect("the crate has a lib.rs");
        fs::write(&lib, text + code).expect("lib.rs can be written");
    }

    /// Whether clippy accepts the crate, and what it says. What others compiled for this repository is used again.
    fn check(&self, cargo: &Path) -> (bool, String) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("tmp is in the target folder");
        let output = Command::new(cargo)
            .args(["clippy", "--offline", "--color", "never", "-p", self.krate, "--target-dir"])
            .arg(target)
            .args(["--", "-D", "warnings"])
            .current_dir(&self.folder)
            // What cargo tells the program that it runs is not meant for the next cargo.
            .env_remove("CARGO_MANIFEST_DIR")
            .output()
            .expect("cargo can be run");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a folder can be listed") {
        let entry = entry.expect("an entry can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
