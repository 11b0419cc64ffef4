// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The begin of a connection: a remote script receives the agent and starts it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use rampart_agent::{Agent, AgentError};

use crate::BenchError;
use crate::copy_programs::Programs;

/// How long the copied agent may take for its first answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Size of the pieces in which the agent is copied, in bytes.
const PIECE: usize = 64 * 1024;

/// The fix if no remote directory can hold and run programs.
const FIX_DIRECTORY: &str = "name a directory with free space on a file system that is not mounted \
                             noexec: `export TMPDIR=DIRECTORY` in ~/.bashrc of that machine";

/// Marks the lines of the script; the start files of the shell may print others.
const MARK: &str = "rampart-bench";

/// The remote script. The user's login shell, whatever it is, gets it as one word in single quotes,
/// so it contains no single quote, line end or exclamation mark. If programs cannot be run in one
/// directory (`noexec`), it tries the next.
pub(super) const SCRIPT: &str = concat!(
    "echo \"rampart-bench machine $(uname -s) $(uname -m)\"; read size || exit 1; d=; ",
    "trap \"rm -rf \\\"\\$d\\\"\" EXIT; trap : HUP INT TERM; ok=; ",
    "for b in \"${TMPDIR:-/tmp}\" /var/tmp /dev/shm \"$HOME\"; do ",
    "n=$(mktemp -d \"$b/rampart.XXXXXXXX\" 2>/dev/null) || continue; ",
    "if [ -z \"$d\" ]; then d=$n; head -c \"$size\" >\"$d/rampart-meter\" || exit 1; ",
    "else cp \"$d/rampart-meter\" \"$n/\" && rm -rf \"$d\"; d=$n; fi; ",
    "chmod 700 \"$d/rampart-meter\"; ",
    "if \"$d/rampart-meter\" --version >/dev/null 2>&1; then ok=1; break; fi; done; ",
    "if [ -z \"$ok\" ]; then echo \"rampart-bench unfit $d\"; exit 1; fi; ",
    "echo \"rampart-bench directory $d\"; cd \"$d\" || exit 1; ",
    "\"$d/rampart-meter\" agent --silence "
);

/// The result of a successful begin.
pub(super) struct Greeted {
    pub(super) agent: Agent,
    pub(super) directory: String,
}

/// Why the begin failed.
pub(super) enum Failed {
    /// The connection ended; `ssh` reports why.
    Ended,
    /// Something else.
    Other(BenchError),
}

/// Answers the script from this side. Calls `news` after each step, which restarts the time limit.
pub(super) fn greet(
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    programs: &Programs,
    machine: &str,
    news: &dyn Fn(),
) -> Result<Greeted, Failed> {
    let mut stdout = BufReader::new(stdout);
    let words = next_mark(&mut stdout)?;
    news();
    let (system, architecture) = match words.as_slice() {
        [word, system, architecture] if word == "machine" => (system, architecture),
        _ => return Err(Failed::Ended),
    };
    if system != "Linux" {
        return Err(Failed::Other(BenchError::Unfit {
            machine: machine.to_owned(),
            reason: format!("it runs {system}, expected Linux"),
            fix: "use a machine with Linux in --on ssh:HOST".to_owned(),
        }));
    }
    let programs = programs
        .for_architecture(architecture, machine)
        .map_err(Failed::Other)?;
    let meter = fs::read(&programs.meter).map_err(|source| {
        Failed::Other(BenchError::File {
            path: programs.meter.clone(),
            source,
        })
    })?;
    let sent = writeln!(stdin, "{}", meter.len()).and_then(|()| {
        for piece in meter.chunks(PIECE) {
            stdin.write_all(piece)?;
            news();
        }
        stdin.flush()
    });
    // The reason why the connection ended is more useful than a write error.
    drop(sent);
    let words = next_mark(&mut stdout)?;
    news();
    let directory = match words.split_first() {
        Some((word, rest)) if word == "directory" => rest.join(" "),
        Some((word, _)) if word == "unfit" => {
            return Err(Failed::Other(BenchError::Unfit {
                machine: machine.to_owned(),
                reason: "none of $TMPDIR, /tmp, /var/tmp, /dev/shm and $HOME has free space and \
                         permits to run programs (mount option noexec)"
                    .to_owned(),
                fix: FIX_DIRECTORY.to_owned(),
            }));
        }
        _ => return Err(Failed::Ended),
    };
    match Agent::connect_over(stdout, stdin, TIMEOUT) {
        Ok(agent) => Ok(Greeted { agent, directory }),
        Err(AgentError::Lost(_)) => Err(Failed::Ended),
        Err(source) => Err(Failed::Other(BenchError::Agent {
            machine: machine.to_owned(),
            source,
            output: String::new(),
        })),
    }
}

/// Returns the words of the next line of the script.
fn next_mark(stdout: &mut impl BufRead) -> Result<Vec<String>, Failed> {
    // Limits the output of start files that is skipped.
    let mut limited = stdout.take(1 << 20);
    let mut line = Vec::new();
    while limited
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split_whitespace().map(str::to_owned);
        // The last line of a start file may lack its line end.
        if words.any(|word| word == MARK) {
            return Ok(words.collect());
        }
        line.clear();
    }
    Err(Failed::Ended)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Returns the error of [`greet`] with this script as the remote side.
    fn error_with(script: &str) -> String {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let here = std::env::current_exe().expect("this program");
        let programs = Programs {
            rampart: here.clone(),
            meter: "/etc/passwd".into(),
        };
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let greeted = greet(
            stdin.expect("a pipe"),
            stdout.expect("a pipe"),
            &programs,
            "ssh:far",
            &|| (),
        );
        rampart_host::end_child(&mut child);
        match greeted {
            Err(Failed::Other(error)) => error.to_string(),
            Err(Failed::Ended) => panic!("ended"),
            Ok(_) => panic!("greeted"),
        }
    }

    #[test]
    fn reports_an_unsuitable_machine_with_a_fix() {
        let text = error_with("echo rampart-bench machine Darwin arm64; read size");
        assert!(
            text.contains("runs Darwin, expected Linux; fix: "),
            "{text}"
        );
        let text = error_with(&format!(
            "echo rampart-bench machine Linux {}; read size; head -c $size >/dev/null; \
             echo rampart-bench unfit; read more",
            std::env::consts::ARCH
        ));
        assert!(text.contains("noexec") && !text.contains('?'), "{text}");
        assert!(
            text.contains("; fix: ") && text.contains("TMPDIR="),
            "{text}"
        );
    }

    #[test]
    fn the_script_fits_into_single_quotes_of_any_shell() {
        assert!(!SCRIPT.contains(['\'', '\n', '!']));
    }

    #[test]
    fn finds_marks_among_other_words() {
        let mut text: &[u8] = b"Welcome!\nfortune rampart-bench machine Linux x86_64\nrest";
        let words = next_mark(&mut text).unwrap_or_default();
        assert_eq!(words, ["machine", "Linux", "x86_64"]);
        let mut rest = String::new();
        text.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "rest");
        assert!(next_mark(&mut "nothing\n".as_bytes()).is_err());
    }
}
