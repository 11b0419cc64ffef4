// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the built programs.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rampart_model::{CpuSet, Evaluation, Measurement};

use crate::limited::Limited as _;

/// The directory of the built programs.
///
/// # Panics
/// If they are not built; a test without the program has nothing to say.
#[must_use]
pub fn directory() -> PathBuf {
    let directory = std::env::var_os("RAMPART_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin"),
        PathBuf::from,
    );
    assert!(
        directory.join("rampart").is_file() && directory.join("rampart-meter").is_file(),
        "{}: no programs to test; run `make build`",
        directory.display()
    );
    directory
}

/// `rampart` with these arguments, its state in a directory of its own, so that tests neither
/// meet nor leave a journal of the machine's user.
#[must_use]
pub fn rampart(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(directory().join("rampart"));
    command
        .args(arguments)
        .env("RAMPART_STATE_DIR", state)
        .env_remove("RAMPART_METER");
    command
}

/// The exit code of a finished program.
///
/// # Panics
/// If a signal ended it: no program of ours ends so.
#[must_use]
pub fn exit_code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

/// The standard output of a program that must succeed with `code`.
///
/// # Panics
/// With everything it said, if it did not.
#[must_use]
pub fn stdout(output: &Output, code: i32) -> String {
    assert_eq!(
        exit_code(output),
        code,
        "stdout:\n{}\nstderr:\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `rampart measure … --json`.
///
/// # Panics
/// If it fails or prints something else.
#[must_use]
pub fn measure(state: &Path, arguments: &[&str]) -> Measurement {
    let arguments = [
        &["measure"],
        arguments,
        &["--json", "--show-progress", "none"],
    ]
    .concat();
    let output = rampart(state, &arguments).finish().expect("rampart starts");
    serde_json::from_str(&stdout(&output, 0)).expect("a measurement")
}

/// Reads the document of a result directory.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn evaluation(results: &Path) -> Evaluation {
    let text = std::fs::read_to_string(results.join("evaluation.json")).expect("evaluation.json");
    serde_json::from_str(&text).expect("an evaluation")
}

/// The CPUs that this process may use.
///
/// # Panics
/// If the kernel does not tell.
#[must_use]
pub fn usable_cpus() -> CpuSet {
    let set = rustix::thread::sched_getaffinity(None).expect("affinity");
    (0..1024)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| rampart_model::CpuId(cpu as u32))
        .collect()
}

/// The machine, for one test alone: two that measure or change it at once would find each other.
#[derive(Debug)]
#[must_use]
pub struct Machine {
    /// Held until the test is over, by the kernel's own account even if it panics.
    _lock: File,
}

/// Tells of a test, or a part of one, that cannot run here, and why: on standard error, which is shown
/// of a test that fails, and in the list of `make test`, which is shown at its end.
#[expect(clippy::print_stderr, reason = "a test that is left out says why")]
pub fn left_out(what: &str) {
    eprintln!("left out: {what}");
    if let Some(list) = std::env::var_os("RAMPART_SKIPPED") {
        note(Path::new(&list), what);
    }
}

/// A line more in a list that is there.
fn note(list: &Path, what: &str) {
    if let Ok(mut list) = File::options().append(true).open(list) {
        // One write: several tests write to it at a time.
        let _ = list.write_all(format!("{what}\n").as_bytes());
    }
}

/// Waits for the machine. None, with the reason told, where a test that needs root or so many CPUs
/// cannot run.
///
/// # Panics
/// If the lock cannot be had.
pub fn machine(test: &str, cpus: usize) -> Option<Machine> {
    if !rustix::process::geteuid().is_root() {
        left_out(&format!("{test}: it needs root"));
        return None;
    }
    if usable_cpus().len() < cpus {
        left_out(&format!("{test}: it needs {cpus} CPUs"));
        return None;
    }
    Some(alone())
}

/// Waits until no other test of any test program measures or boots a machine.
///
/// # Panics
/// Panics if the lock file cannot be created or locked.
pub fn alone() -> Machine {
    let lock = File::create(std::env::temp_dir().join("rampart-tests.lock")).expect("a lock file");
    lock.lock().expect("the lock");
    Machine { _lock: lock }
}

/// The C library of the simulated machine, which is Debian 12.
const LIBRARY_INSIDE: (u32, u32) = (2, 36);

/// Whether a test program can be carried into the simulated machine: one that is linked with a newer
/// C library does not start there. If not, the reason is told.
#[must_use]
pub fn starts_inside(test: &str) -> bool {
    // glibc's getconf(1) tells its version; who has another library has another answer, or none.
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").finish();
    let answer = answer.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let answer = answer.unwrap_or_default();
    let starts = library_version(&answer).is_none_or(|version| version <= LIBRARY_INSIDE);
    if !starts {
        let (major, minor) = LIBRARY_INSIDE;
        left_out(&format!(
            "{test}: it is linked with {answer}, and needs one no newer than glibc {major}.{minor} to start in the simulated machine"
        ));
    }
    starts
}

/// From `glibc 2.36`.
fn library_version(answer: &str) -> Option<(u32, u32)> {
    let (major, minor) = answer.strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_a_line_of_the_list() {
        let list = tempfile::NamedTempFile::new().expect("a file");
        note(list.path(), "one: no reason");
        note(list.path(), "two: none");
        let text = std::fs::read_to_string(list.path()).expect("read");
        assert_eq!(text, "one: no reason\ntwo: none\n");
    }

    #[test]
    fn detects_a_newer_c_library() {
        assert_eq!(library_version("glibc 2.36"), Some(LIBRARY_INSIDE));
        for newer in ["glibc 2.41", "glibc 2.37.9000", "glibc 3.0"] {
            assert!(library_version(newer).is_some_and(|version| version > LIBRARY_INSIDE));
        }
        assert!(library_version("glibc 2.9").is_some_and(|version| version < LIBRARY_INSIDE));
        assert_eq!(library_version(""), None);
    }
}
