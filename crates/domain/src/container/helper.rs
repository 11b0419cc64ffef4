// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper programs: container runtimes and engines, asked one thing at a time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::DomainError;

/// Directories that hold administrators' programs but are not in every user's `PATH`.
const ALSO_SEARCHED: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// A helper that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a program is; none where it is not installed.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ALSO_SEARCHED.map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Runs a helper to its end and returns its standard output.
pub(super) fn run(program: &Path, arguments: &[&str]) -> Result<String, DomainError> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(command)
}

/// Runs a prepared command to its end and returns its standard output.
pub(super) fn finish(command: Command) -> Result<String, DomainError> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    let not_started = |source| DomainError::NotStarted {
        program: line.clone(),
        source,
        mend: "install it again".to_owned(),
    };
    let said = rampart_host::run_within(command, PATIENCE).map_err(not_started)?;
    match said.status {
        Some(status) if status.success() => Ok(said.output),
        status => Err(DomainError::Helper {
            command: line,
            status: status.map_or_else(
                || format!("no end within {} s", PATIENCE.as_secs()),
                |status| status.to_string(),
            ),
            stderr: said.errors,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_helper_is_told_with_its_words() {
        let shell = find("sh").expect("a shell");
        assert_eq!(run(&shell, &["-c", "echo yes"]).expect("runs"), "yes\n");
        let error = run(&shell, &["-c", "echo because >&2; exit 5"]);
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("exit status: 5"), "{message}");
        assert!(message.contains("because"), "{message}");
        assert!(find("no-such-program-anywhere").is_none());
    }
}
