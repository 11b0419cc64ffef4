// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs helper programs: container runtimes and engines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::DomainError;

/// Directories that hold administrators' programs but are not in every user's `PATH`.
const ALSO_SEARCHED: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Time limit for a helper.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tries of a helper that may fail at a bad moment, and the pause between them.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(300);

/// Returns the path of a program, or `None` if it is not installed.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ALSO_SEARCHED.map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Runs a helper and returns its standard output.
pub(super) fn run(program: &Path, arguments: &[&str]) -> Result<String, DomainError> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(command)
}

/// Runs a helper until it succeeds, [`TRIES`] times at most. An engine refuses to remove a
/// container that is about to end by itself (podman: "container state improper: stopped").
pub(super) fn persist(program: &Path, arguments: &[&str]) -> Result<String, DomainError> {
    for _ in 1..TRIES {
        if let Ok(output) = run(program, arguments) {
            return Ok(output);
        }
        std::thread::sleep(PAUSE);
    }
    run(program, arguments)
}

/// Runs a prepared command and returns its standard output.
pub(super) fn finish(command: Command) -> Result<String, DomainError> {
    finish_within(command, TIMEOUT)
}

/// Runs a prepared command with this time limit and returns its standard output.
pub(super) fn finish_within(command: Command, timeout: Duration) -> Result<String, DomainError> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    let not_started = |source| DomainError::NotStarted {
        program: line.clone(),
        source,
        fix: "reinstall it".to_owned(),
    };
    let output = rampart_host::run_within(command, timeout).map_err(not_started)?;
    match output.status {
        Some(status) if status.success() => Ok(output.output),
        status => Err(DomainError::Helper {
            command: line,
            status: status.map_or_else(
                || format!("no end within {} s", timeout.as_secs()),
                |status| status.to_string(),
            ),
            stderr: output.errors,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_a_helper_that_failed() {
        let directory = tempfile::tempdir().expect("directory");
        let mark = directory.path().join("mark").display().to_string();
        let shell = Path::new("/bin/sh");
        let script = format!("[ -e {mark} ] || {{ touch {mark}; exit 2; }}; echo done");
        let output = persist(shell, &["-c", &script]).expect("the second time");
        assert_eq!(output.trim(), "done");
        assert!(persist(shell, &["-c", "exit 2"]).is_err());
    }

    #[test]
    fn reports_a_failing_helper_with_its_standard_error() {
        let shell = find("sh").expect("a shell");
        assert_eq!(run(&shell, &["-c", "echo yes"]).expect("runs"), "yes\n");
        let error = run(&shell, &["-c", "echo because >&2; exit 5"]);
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("exit status: 5"), "{message}");
        assert!(message.contains("because"), "{message}");
        assert!(find("no-such-program-anywhere").is_none());
    }
}
