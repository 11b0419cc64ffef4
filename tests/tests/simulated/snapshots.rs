// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saved machines: continued, damaged, and made by several programs at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rampart_tests::limited::{Limited as _, finished};
use rampart_tests::programs::{beside_others, stderr, stdout};
use rampart_tests::simulated::sim;

/// A small machine, which boots faster.
const MACHINE: [&str; 6] = ["run", "--own", "--cpus", "2", "--memory", "512"];

/// Prints what two machines must not share, and the time.
const IDENTITY: &str = "cat /proc/sys/kernel/random/uuid; date +%s";

/// A cache directory with the images of this user, and no snapshot.
struct Cache {
    directory: tempfile::TempDir,
}

impl Cache {
    fn create() -> Self {
        // The image is built if there is none.
        let output = sim(&[&MACHINE[..], &["--", "true"]].concat()).finish();
        let _ = stdout(&output.expect("rampart starts"), 0);
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME"));
        let usual = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let directory = tempfile::tempdir().expect("a directory");
        let own = directory.path().join("rampart/sim");
        fs::create_dir_all(&own).expect("made");
        for entry in fs::read_dir(usual.join("rampart/sim")).expect("the images") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name");
            if !["snapshots", "run"].map(AsRef::as_ref).contains(&name) && path.is_dir() {
                std::os::unix::fs::symlink(&path, own.join(name)).expect("a link");
            }
        }
        Self { directory }
    }

    /// Returns a command that runs this script in a machine.
    fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = sim(&[&MACHINE[..], options, &["--", "sh", "-c", script]].concat());
        command.env("XDG_CACHE_HOME", self.directory.path());
        command
    }

    /// Returns the output of the script, and the notes.
    fn output(&self, options: &[&str], script: &str) -> (String, String) {
        let output = self.run(options, script).finish().expect("rampart starts");
        (stdout(&output, 0), stderr(&output))
    }

    /// Returns the directories of the saved machines.
    fn saved(&self) -> Vec<PathBuf> {
        let all = self.directory.path().join("rampart/sim/snapshots");
        let entries = fs::read_dir(all).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.join("snapshot.json").exists())
            .collect()
    }

    fn only_saved(&self) -> PathBuf {
        let mut saved = self.saved();
        assert_eq!(saved.len(), 1, "{saved:?}");
        saved.remove(0)
    }
}

fn lines(text: &str) -> (String, u64) {
    let mut lines = text.lines();
    let identity = lines.next().expect("an identity").to_owned();
    let time = lines.next().expect("a time").parse().expect("seconds");
    (identity, time)
}

fn inode_and_time(path: &Path) -> (u64, SystemTime) {
    let metadata = fs::metadata(path).expect("there");
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    (inode, metadata.modified().expect("a time"))
}

/// Asserts that a machine which writes to its memory and its files leaves the saved one as it was.
#[test]
fn the_second_machine_continues_from_the_first() {
    let _machine = beside_others();
    let cache = Cache::create();
    let first = cache.output(
        &[],
        &format!("{IDENTITY}; touch /var/seen; head -c 9M /dev/zero >/tmp/a"),
    );
    let ram = cache.only_saved().join("ram");
    let saved = inode_and_time(&ram);
    let second = cache.output(
        &[],
        &format!("{IDENTITY}; ls /var/seen /tmp/a 2>&1 | grep -c cannot"),
    );
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    assert_eq!((first.1.as_str(), second.1.as_str()), ("", ""), "notes");
    assert_eq!(inode_and_time(&ram), saved, "the memory was written to");
    // Only a machine that continues has the memory of the first, not its clock and its random numbers.
    assert_eq!(
        second.0.lines().last(),
        Some("2"),
        "files of the first machine"
    );
    let ((one, _), (other, time)) = (lines(&first.0), lines(&second.0));
    assert_ne!(one, other, "random numbers of two machines");
    assert!(
        now.abs_diff(time) < 100,
        "the clock: {time}, expected {now}"
    );
    // Another command line is another machine, and so is one that has to boot.
    let booted = cache.output(&["--no-snapshot"], "true");
    assert_eq!(booted.1, "");
    assert_eq!(cache.saved().len(), 1);
    let _ = cache.output(&["--append", "another"], "grep -q another /proc/cmdline");
    assert_eq!(cache.saved().len(), 2);
}

#[test]
fn a_damaged_machine_is_discarded_with_a_note() {
    let _machine = beside_others();
    let cache = Cache::create();
    let _ = cache.output(&[], "true");
    for name in ["state", "ram"] {
        let saved = cache.only_saved();
        let file = fs::File::options().write(true).open(saved.join(name));
        file.expect("opened").set_len(4096).expect("truncated");
        let (text, notes) = cache.output(&[], "echo up");
        assert_eq!(text, "up\n");
        let expected = format!(
            "note: a saved machine is discarded, and a new one is booted: {name} has 4096 bytes"
        );
        assert!(notes.starts_with(&expected), "{notes}");
        // The new one is usable.
        assert_eq!(cache.output(&[], "true").1, "");
    }
}

#[test]
fn machines_that_start_at_the_same_time_share_one_snapshot() {
    let _machine = beside_others();
    let cache = Cache::create();
    let both = [0, 1].map(|_| {
        let mut command = cache.run(&[], IDENTITY);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command.spawn().expect("rampart starts")
    });
    let outputs = both.map(finished);
    let identities = outputs.map(|output| {
        assert_eq!(stderr(&output), "");
        lines(&stdout(&output, 0)).0
    });
    assert_ne!(identities[0], identities[1]);
    let _ = cache.only_saved();
}
