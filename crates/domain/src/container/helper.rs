// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper programs: container runtimes and engines, asked one thing at a time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
    command.args(arguments).stdin(Stdio::null());
    finish(command)
}

/// Runs a prepared command to its end and returns its standard output.
pub(super) fn finish(mut command: Command) -> Result<String, DomainError> {
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
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_started)?;
    let output = child.stdout.take().map(collect);
    let errors = child.stderr.take().map(collect);
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("no end within {} s", PATIENCE.as_secs());
            }
            Err(error) => break error.to_string(),
        }
    };
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    let (output, errors) = (text(output), text(errors));
    if status == "exit status: 0" {
        Ok(output)
    } else {
        Err(DomainError::Helper {
            command: line,
            status,
            stderr: errors,
        })
    }
}

/// Reads an output to its end, as far as it is of any use in a message.
fn collect(mut output: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.by_ref().take(64 << 10).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut output, &mut std::io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
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
