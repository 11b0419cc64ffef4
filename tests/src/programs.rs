// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the built programs.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rampart_model::{CpuId, CpuSet, Evaluation, Measurement};

use crate::limited::Limited as _;

/// Returns the directory of the built programs.
///
/// # Panics
/// If they are not built.
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

/// Copies the programs to a directory, and permits every user to read and write it: only root may be able to
/// read the directory of the built ones.
///
/// # Panics
/// If they cannot be copied.
pub fn copy_programs_for_everyone(to: &Path) {
    for name in ["rampart", "rampart-meter"] {
        std::fs::copy(directory().join(name), to.join(name)).expect("a copy");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(to, mode).expect("permissions");
}

/// Returns the command `rampart` with these arguments and this state directory, so that tests neither read nor
/// leave a journal of the user.
#[must_use]
pub fn rampart(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(directory().join("rampart"));
    command
        .args(arguments)
        .env("RAMPART_STATE_DIR", state)
        .env_remove("RAMPART_METER");
    command
}

/// Returns a tar archive of these files of a directory. tar(1) reads them as arguments, so `-C` changes the
/// directory of those that follow.
///
/// # Panics
/// If tar fails.
#[must_use]
pub fn archive(directory: &Path, files: &[&str]) -> Vec<u8> {
    let output = Command::new("tar")
        .args(["-c", "-C"])
        .arg(directory)
        .args(files)
        .finish()
        .expect("tar starts");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// A temporary directory for an evaluation.
#[derive(Debug)]
pub struct Scratch {
    /// Removed when dropped.
    pub directory: tempfile::TempDir,
    /// Where a state directory can be created.
    pub state: PathBuf,
    /// Where results can be written.
    pub results: PathBuf,
}

impl Scratch {
    /// Creates the temporary directory, and nothing in it.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn create() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name| directory.path().join(name);
        let (state, results) = (path("state"), path("results"));
        Self {
            directory,
            state,
            results,
        }
    }

    /// Returns the path of the results as an argument.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn out(&self) -> &str {
        self.results.to_str().expect("a path in UTF-8")
    }
}

/// Returns the exit code of a finished program.
///
/// # Panics
/// If a signal ended the program.
#[must_use]
pub fn exit_code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

/// Returns the standard output of a program that exited with `code`.
///
/// # Panics
/// With its output, if it exited with another code.
#[must_use]
pub fn stdout(output: &Output, code: i32) -> String {
    assert_eq!(
        exit_code(output),
        code,
        "stderr:\n{}\nstdout:\n{}",
        stderr(output),
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error of a program.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a program exited with `code`, reported all of these words, and printed no output.
///
/// # Panics
/// If it did not.
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let error = stderr(output);
    assert_eq!(exit_code(output), code, "{error}");
    for word in words {
        assert!(error.contains(word), "{word} is not in: {error}");
    }
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Runs `rampart measure … --json`.
///
/// # Panics
/// If it fails or prints no measurement.
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

/// Returns the CPUs that this process may use.
///
/// # Panics
/// If sched_getaffinity(2) fails.
#[must_use]
pub fn usable_cpus() -> CpuSet {
    let set = rustix::thread::sched_getaffinity(None).expect("affinity");
    (0..1024)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| CpuId(cpu as u32))
        .collect()
}

/// Returns the last CPU that this process may use.
///
/// # Panics
/// If sched_getaffinity(2) fails.
#[must_use]
pub fn last_cpu() -> CpuId {
    usable_cpus().iter().next_back().expect("a CPU")
}

/// Use of this machine: exclusive ([`alone`]), or for one of several simulated machines
/// ([`beside_others`]).
#[derive(Debug)]
#[must_use]
pub struct Machine {
    /// The kernel releases the locks when the test ends, also by a panic.
    locks: Vec<File>,
}

/// Reports that a test, or a part of it, cannot run here, with the reason: on standard error, and in the list
/// that `make test` prints at its end.
#[expect(clippy::print_stderr, reason = "reports a skipped test")]
pub fn left_out(reason: &str) {
    eprintln!("left out: {reason}");
    if let Some(list) = std::env::var_os("RAMPART_SKIPPED") {
        append(Path::new(&list), reason);
    }
}

/// Builds a plugin of QEMU (`benchmarks/NAME.c`) and returns it. Reports that the test is left out and returns `None` if
/// the header of plugins is not available.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn qemu_plugin(name: &str) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(repository.join("scripts/qemu-plugins"))
        .finish_within(Duration::from_secs(1200), Vec::new())
        .expect("scripts/qemu-plugins starts");
    let errors = String::from_utf8_lossy(&built.stderr);
    if built.status.code() == Some(3) {
        left_out(&format!(
            "what QEMU's plugin {name} counts: {}",
            errors.trim()
        ));
        return None;
    }
    assert!(built.status.success(), "{errors}");
    Some(repository.join("target").join(format!("{name}.so")))
}

/// Appends a line to a file that exists.
fn append(file: &Path, line: &str) {
    if let Ok(mut file) = File::options().append(true).open(file) {
        // With one write, because several tests may write at a time.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// Waits for exclusive use of the machine. Returns `None`, and reports the reason, without root or with fewer
/// CPUs.
///
/// # Panics
/// If the lock file cannot be created or locked.
pub fn machine(test: &str, cpus: usize) -> Option<Machine> {
    // First alone: the isolation of another test may keep this process off a CPU.
    let machine = alone();
    is_root_with_cpus(test, cpus).then_some(machine)
}

/// Returns whether this process is root and may use so many CPUs, and reports the reason if not.
pub fn is_root_with_cpus(test: &str, cpus: usize) -> bool {
    if !rustix::process::geteuid().is_root() {
        left_out(&format!("{test}: it needs root"));
        return false;
    }
    if usable_cpus().len() < cpus {
        left_out(&format!("{test}: it needs {cpus} CPUs"));
        return false;
    }
    true
}

/// Waits until no other test of any test program measures or boots a machine: two tests that measure or change
/// this one would disturb each other.
///
/// # Panics
/// If the lock file cannot be created or locked.
pub fn alone() -> Machine {
    let lock = lock_file("");
    lock.lock().expect("the lock");
    Machine { locks: vec![lock] }
}

/// Waits until no test uses this machine exclusively. For tests that boot a machine of their own and measure nothing
/// on this one; the test runner limits how many run.
///
/// # Panics
/// If the lock file cannot be created or locked.
pub fn beside_others() -> Machine {
    let lock = lock_file("");
    lock.lock_shared().expect("the lock");
    Machine { locks: vec![lock] }
}

/// Waits like [`beside_others`], and until no other test has a machine which commands join: there is one on this
/// machine at a time.
///
/// # Panics
/// If a lock file cannot be created or locked.
pub fn only_machine_up() -> Machine {
    let mut machine = beside_others();
    let up = lock_file("-up");
    up.lock().expect("the lock");
    machine.locks.push(up);
    machine
}

fn lock_file(part: &str) -> File {
    let name = format!("rampart-tests{part}.lock");
    File::create(std::env::temp_dir().join(name)).expect("a lock file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_a_line_of_the_list() {
        let list = tempfile::NamedTempFile::new().expect("a file");
        append(list.path(), "one: no reason");
        append(list.path(), "two: none");
        let text = std::fs::read_to_string(list.path()).expect("read");
        assert_eq!(text, "one: no reason\ntwo: none\n");
    }
}
