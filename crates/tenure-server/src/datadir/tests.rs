//! Which directories are taken, and which are refused.

use super::*;

const ORIGIN: Origin = Origin { cluster: 0xc1, member: 0xa1 };

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a place for temporary files")
}

fn refusal(root: &Path) -> DirError {
    DataDir::open(root, ORIGIN).expect_err("it is not to be used")
}

#[test]
fn a_new_directory_is_private_and_remembers_whose_it_is() {
    let parent = temporary();
    let root = parent.path().join("a/b");
    let mut dir = DataDir::open(&root, ORIGIN).expect("it can be made");
    assert!(!root.join("identity").exists(), "it is nobody's before it is claimed");
    dir.claim().expect("it can be written");
    dir.started(7).expect("it can be written");
    drop(dir);
    let other = Origin { cluster: 2, member: 3 };
    let dir = DataDir::open(&root, other).expect("it is known");
    assert_eq!(dir.identity, DirIdentity { origin: ORIGIN, boot: 1, segment: 7 });
    for (name, mode) in
        [("", 0o700), ("log", 0o700), ("checkpoint", 0o700), ("identity", 0o600), ("LOCK", 0o600)]
    {
        let meta = fs::metadata(root.join(name)).expect("it was made");
        assert_eq!(meta.mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn an_empty_directory_that_is_ours_is_made_private() {
    let dir = temporary();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    drop(DataDir::open(dir.path(), ORIGIN).expect("it is empty"));
    assert_eq!(fs::metadata(dir.path()).expect("it is there").mode() & 0o777, 0o700);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o750)).expect("it is ours");
    let error = refusal(dir.path());
    assert!(matches!(error, DirError::Mode { mode: 0o750, .. }), "{error}");
    assert!(error.to_string().contains("chmod 700"), "{error}");
}

#[test]
fn somebody_elses_directory_is_refused_and_left_alone() {
    let dir = temporary();
    fs::write(dir.path().join("letters.txt"), "dear").expect("it can be written");
    let error = refusal(dir.path());
    assert!(matches!(&error, DirError::Foreign { found, .. } if found == "letters.txt"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);

    let dir = temporary();
    fs::create_dir_all(dir.path().join("member/wal")).expect("it can be made");
    assert!(refusal(dir.path()).to_string().contains("etcd"));
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
}

#[test]
fn a_directory_that_lost_its_identity_is_damaged() {
    for name in ["log/0000000000000001.wal", "log/spare-1", "checkpoint/data.mdb"] {
        let dir = temporary();
        drop(DataDir::open(dir.path(), ORIGIN).expect("it is empty"));
        fs::write(dir.path().join("identity.new"), "half of one").expect("it can be written");
        drop(DataDir::open(dir.path(), ORIGIN).expect("nothing was put into it yet"));
        fs::write(dir.path().join(name), "something").expect("it can be written");
        let error = refusal(dir.path());
        assert!(error.is_damage(), "{error}");
        let text = error.to_string();
        assert!(text.contains("/identity is missing") && text.contains(name), "{text}");
        assert!(text.contains("never go back") && text.contains("tenure export"), "{text}");
        assert!(!dir.path().join("identity").exists());
    }
}

#[test]
fn a_file_is_no_directory() {
    let dir = temporary();
    let path = dir.path().join("file");
    fs::write(&path, "").expect("it can be written");
    for path in [path.clone(), path.join("below")] {
        let error = refusal(&path);
        assert!(matches!(error, DirError::NotADirectory { .. }), "{error}");
        assert!(error.to_string().contains("is not a directory"), "{error}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_said_to_be_so() {
    let dir = temporary();
    // Root writes where modes forbid it, but not to what is mounted read-only.
    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new(arguments[0]);
        command.args(&arguments[1..]).arg(dir.path()).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let mounted = mount(&["mount", "-t", "tmpfs", "-o", "ro,mode=0700", "tmpfs"]);
    if !mounted {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).expect("it is ours");
    }
    let refused = DataDir::open(dir.path(), ORIGIN);
    if mounted {
        assert!(mount(&["umount"]));
    } else if rustix::process::geteuid().is_root() {
        return;
    }
    let error = refused.expect_err("it is not to be used");
    assert!(matches!(error, DirError::NotWritable { .. }), "{error}");
    assert!(error.to_string().contains("must be writable by user"), "{error}");
}

#[test]
fn another_users_directory_is_refused() {
    let dir = temporary();
    if !rustix::process::geteuid().is_root()
        || std::os::unix::fs::chown(dir.path(), Some(4711), None).is_err()
    {
        return;
    }
    assert!(matches!(refusal(dir.path()), DirError::Owner { owner: 4711, .. }));
}

#[test]
fn a_directory_that_is_in_use_is_refused() {
    let dir = temporary();
    let open = DataDir::open(dir.path(), ORIGIN).expect("it is empty");
    open.claim().expect("it can be written");
    let error = refusal(dir.path()).to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert!(matches!(DataDir::open_read_only(dir.path(), |_| None), Err(DirError::Locked { .. })));
    drop(open);
    DataDir::open(dir.path(), ORIGIN).expect("it is free again");
}

#[test]
fn no_flipped_bit_gives_a_directory_another_identity() {
    let dir = temporary();
    DataDir::open(dir.path(), ORIGIN).expect("it is empty").claim().expect("it can be written");
    let path = dir.path().join("identity");
    let sound = fs::read(&path).expect("it is there");
    for byte in 0..sound.len() {
        for bit in 0..8 {
            let mut damaged = sound.clone();
            damaged[byte] ^= 1 << bit;
            fs::write(&path, &damaged).expect("it can be written");
            let error = refusal(dir.path());
            assert!(matches!(error, DirError::DamagedIdentity { .. }), "bit {bit} of byte {byte}: {error}");
        }
    }
    let newer = String::from_utf8(sound).expect("it is text").replace("format 1", "format 2");
    let body = newer.split("crc").next().expect("the first part is always there");
    let newer = format!("{body}crc {:08x}\n", crc32c(&[body.as_bytes()]));
    fs::write(&path, newer).expect("it can be written");
    assert!(matches!(refusal(dir.path()), DirError::NewerFormat { found: 2, .. }));
}
