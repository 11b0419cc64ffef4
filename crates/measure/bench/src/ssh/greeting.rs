// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first words with another machine: a script there takes the agent and becomes it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use rampart_agent::{Agent, AgentError};

use crate::BenchError;
use crate::carry::Programs;

/// How long the carried agent may take for its first word.
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent goes over in pieces of so many bytes.
const PIECE: usize = 64 * 1024;

/// What makes a directory there in which programs can be put and started.
const MEND_PLACE: &str = "make room there (`df -h /tmp /var/tmp`), or `mount -o remount,exec /tmp` \
                          there, or name another directory: `export TMPDIR=DIRECTORY` in ~/.bashrc \
                          there";

/// What lines of the script begin with; a shell's start files may print others.
const MARK: &str = "rampart-bench";

/// Runs over there, given to whatever shell the user has as one word in single quotes. So it has
/// none itself, nor a line end, nor an exclamation mark. A file system may forbid to run programs;
/// then the next place is tried.
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

/// What the first conversation gave.
pub(super) struct Greeted {
    pub(super) agent: Agent,
    pub(super) directory: String,
}

/// How the first conversation failed.
pub(super) enum Failed {
    /// The connection ended: `ssh` says why.
    Ended,
    /// Something else.
    Other(BenchError),
}

/// The near side of the script.
///
/// `news` is told of each step: with it begins the time for the next.
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
            reason: format!("it runs {system}, needed Linux"),
            fix: "name a machine with Linux in --on ssh:HOST".to_owned(),
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
    // What ends it says more than that it cannot be written to.
    drop(sent);
    let words = next_mark(&mut stdout)?;
    news();
    let directory = match words.split_first() {
        Some((word, rest)) if word == "directory" => rest.join(" "),
        Some((word, _)) if word == "unfit" => {
            return Err(Failed::Other(BenchError::Unfit {
                machine: machine.to_owned(),
                reason: "in none of $TMPDIR, /tmp, /var/tmp, /dev/shm and $HOME a program can be \
                         put and started, needed one with room that is not mounted noexec"
                    .to_owned(),
                fix: MEND_PLACE.to_owned(),
            }));
        }
        _ => return Err(Failed::Ended),
    };
    match Agent::connect_over(stdout, stdin, PATIENCE) {
        Ok(agent) => Ok(Greeted { agent, directory }),
        Err(AgentError::Lost(_)) => Err(Failed::Ended),
        Err(source) => Err(Failed::Other(BenchError::Agent {
            machine: machine.to_owned(),
            source,
            said: String::new(),
        })),
    }
}

/// The words of the next line that the script wrote.
fn next_mark(stdout: &mut impl BufRead) -> Result<Vec<String>, Failed> {
    // Whatever a start file prints, it is not endless.
    let mut limited = stdout.take(1 << 20);
    let mut line = Vec::new();
    while limited
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split_whitespace().map(str::to_owned);
        // A start file may have left a line without its end.
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

    /// What the near side makes of a far side that is this script.
    fn told_by(script: &str) -> String {
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
    fn a_machine_that_cannot_be_served_is_told_with_what_mends_it() {
        let text = told_by("echo rampart-bench machine Darwin arm64; read size");
        assert!(text.contains("runs Darwin, needed Linux; fix: "), "{text}");
        let text = told_by(&format!(
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
    fn the_script_stands_in_single_quotes_of_any_shell() {
        assert!(!SCRIPT.contains(['\'', '\n', '!']));
    }

    #[test]
    fn marks_are_found_among_other_words() {
        let mut text: &[u8] = b"Welcome!\nfortune rampart-bench machine Linux x86_64\nrest";
        let words = next_mark(&mut text).unwrap_or_default();
        assert_eq!(words, ["machine", "Linux", "x86_64"]);
        let mut rest = String::new();
        text.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "rest");
        assert!(next_mark(&mut "nothing\n".as_bytes()).is_err());
    }
}
