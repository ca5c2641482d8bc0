//! The files of a repository, in memory: the real one, or a sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names, relative to the root and with `/`, and contents.
pub struct Repository {
    files: BTreeMap<String, Vec<u8>>,
}

impl Repository {
    /// The repository that this test was built from.
    pub fn here() -> &'static Repository {
        static HERE: OnceLock<Repository> = OnceLock::new();
        HERE.get_or_init(|| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let names = listed_by_git(&root).unwrap_or_else(|| walked(&root));
            let read = |name: String| Some((name.clone(), fs::read(root.join(&name)).ok()?));
            let files: BTreeMap<_, _> = names.into_iter().filter_map(read).collect();
            assert!(files.contains_key("STYLE.md") && files.len() > 100, "the repository was not found");
            Repository { files }
        })
    }

    pub fn of(sample: &[(&str, &str)]) -> Repository {
        let file = |(name, text): &(&str, &str)| (name.to_string(), text.as_bytes().to_vec());
        Repository { files: sample.iter().map(file).collect() }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    pub fn has_folder(&self, name: &str) -> bool {
        let below = format!("{}/", name.trim_end_matches('/'));
        self.files.keys().any(|file| file.starts_with(&below))
    }

    /// Name and size of every file.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.len()))
    }

    /// Name and text of every file that is text.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(name, bytes)| Some((name.as_str(), str::from_utf8(bytes).ok()?)))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.files.get(name)?).ok()
    }

    /// The Rust of our crates: not of the Go suite, not of anything generated.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs"))
    }
}

/// What is committed, or would be with the next `git add`.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let listing = Command::new("git")
        // Whoever runs the tests may not be who checked the repository out.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let listing = String::from_utf8(listing.stdout).ok()?;
    Some(listing.split_terminator('\0').map(str::to_string).collect())
}

/// For a copy of the sources without git.
fn walked(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder of the repository can be listed") {
            let entry = entry.expect("an entry of a folder can be read");
            let path = folder.join(entry.file_name());
            let ignored =
                ["target", ".git", ".compat"].contains(&entry.file_name().to_string_lossy().as_ref());
            match entry.file_type().expect("an entry has a type").is_dir() {
                true if !ignored => folders.push(path),
                false => names.push(path.to_string_lossy().replace('\\', "/")),
                true => {}
            }
        }
    }
    names
}
