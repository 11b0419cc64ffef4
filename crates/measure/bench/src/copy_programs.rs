// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copying of the programs to another machine.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rampart_agent::{AgentCommand, AgentProcess};
use rampart_host::find_program_file;

use crate::monitor::{AFTER_END, Streams, monitor};
use crate::{BenchError, BenchMachine};

/// How long the unpacking program may neither read nor end.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The paths of the two programs on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// `rampart`.
    pub rampart: PathBuf,
    /// `rampart-meter`.
    pub meter: PathBuf,
}

impl Programs {
    /// Returns the programs for an architecture: `self` for the architecture of this machine,
    /// otherwise those in the directory `ARCHITECTURE` among the files that belong to `rampart`.
    ///
    /// # Errors
    /// Returns an error if they do not exist.
    pub fn for_architecture(&self, architecture: &str, machine: &str) -> Result<Self, BenchError> {
        if architecture == std::env::consts::ARCH {
            return Ok(self.clone());
        }
        Ok(Self {
            rampart: self.other(architecture, "rampart", machine)?,
            meter: self.other(architecture, "rampart-meter", machine)?,
        })
    }

    /// Returns the path of `rampart-meter` for an architecture, as [`Programs::for_architecture`]
    /// finds it.
    ///
    /// # Errors
    /// Returns an error if it does not exist.
    pub fn meter_for(&self, architecture: &str, machine: &str) -> Result<PathBuf, BenchError> {
        if architecture == std::env::consts::ARCH {
            return Ok(self.meter.clone());
        }
        self.other(architecture, "rampart-meter", machine)
    }

    fn other(&self, architecture: &str, name: &str, machine: &str) -> Result<PathBuf, BenchError> {
        find_program_file(&self.rampart, Path::new(architecture).join(name)).map_err(|searched| {
            BenchError::NoProgram {
                machine: machine.to_owned(),
                architecture: architecture.to_owned(),
                searched,
            }
        })
    }

    /// Returns the directory of the hypervisor and of the programs for its cells. It may not exist.
    #[must_use]
    pub fn hypervisor(&self) -> PathBuf {
        find_program_file(&self.rampart, "hypervisor")
            .unwrap_or_else(|_| self.rampart.with_file_name("hypervisor"))
    }

    /// Returns the directory of kernel modules among the files of `rampart`, if it exists. It holds the
    /// modules for all architectures, because no two kernels have the same release.
    #[must_use]
    pub fn modules(&self) -> Option<PathBuf> {
        find_program_file(&self.rampart, "modules").ok()
    }

    /// Returns the directory of firmware for simulated machines among the files of `rampart`, if it exists.
    #[must_use]
    pub fn firmware(&self) -> Option<PathBuf> {
        find_program_file(&self.rampart, "firmware").ok()
    }
}

/// Programs on another machine. They are removed when the connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedPrograms {
    /// Path of `rampart` on that machine; `rampart-meter` and `modules` are beside it.
    pub rampart: String,
}

/// Copies the programs and the kernel modules that belong to them into the machine's directory, as a tar
/// stream that `tar` unpacks there.
///
/// # Errors
/// Returns an error if the programs for its architecture do not exist, or if `tar` fails or hangs.
pub fn copy_programs(
    machine: &dyn BenchMachine,
    programs: &Programs,
) -> Result<CopiedPrograms, BenchError> {
    copy_programs_within(machine, programs, TIMEOUT)
}

pub(crate) fn copy_programs_within(
    machine: &dyn BenchMachine,
    programs: &Programs,
    timeout: Duration,
) -> Result<CopiedPrograms, BenchError> {
    let directory = machine.directory();
    let modules = programs.modules();
    let programs =
        programs.for_architecture(&machine.agent().hello().architecture, &machine.name())?;
    let script = "mkdir -p \"$1\" && exec tar -x -f - -C \"$1\"";
    let process = start(machine, &["sh", "-c", script, "sh", directory])?;
    let (
        Streams {
            stdin,
            stdout,
            stderr,
        },
        process,
    ) = monitor(process);
    drop(stdout);
    let command = format!("tar -x -C {directory}");
    let (ended, sent, output) = thread::scope(|scope| {
        let sending = scope.spawn(|| send(stdin, &programs, modules.as_deref()));
        let reading = scope.spawn(move || {
            let mut output = String::new();
            // If it cannot be read, the error shows the status alone.
            let _ = stderr.take(4096).read_to_string(&mut output);
            output
        });
        let ended = process.wait(timeout);
        if matches!(ended, Ok(None)) {
            // This unblocks the sender and the reader.
            drop(process);
        } else {
            process.finish_streams(AFTER_END, || sending.is_finished() && reading.is_finished());
        }
        (ended, sending.join(), reading.join())
    });
    let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let output = output.unwrap_or_default();
    let failed = |status: String, output: &str| BenchError::ProgramFailed {
        machine: machine.name(),
        command: command.clone(),
        status,
        output: output.trim().to_owned(),
    };
    match (ended.map_err(|error| machine.explain(error))?, sent) {
        (None, _) => Err(BenchError::Hung {
            machine: machine.name(),
            command,
            silence: timeout,
        }),
        (Some(status), _) if !status.success() => Err(failed(status.to_string(), &output)),
        (Some(_), Ok(())) => Ok(CopiedPrograms {
            rampart: format!("{directory}/rampart"),
        }),
        (Some(_), Err(SendError::Here(error))) => Err(error),
        (Some(status), Err(SendError::There(error))) => {
            Err(failed(status.to_string(), &error.to_string()))
        }
    }
}

enum SendError {
    /// A file cannot be read.
    Here(BenchError),
    /// The remote program does not read.
    There(io::Error),
}

fn send(to: impl Write, programs: &Programs, modules: Option<&Path>) -> Result<(), SendError> {
    // Large pieces, because each becomes one message of the agent's protocol.
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(32 * 1024, to));
    append(&mut archive, "rampart", &programs.rampart)?;
    append(&mut archive, "rampart-meter", &programs.meter)?;
    if let Some(modules) = modules {
        for (name, path) in files_below(modules).map_err(|source| {
            SendError::Here(BenchError::File {
                path: modules.to_owned(),
                source,
            })
        })? {
            append(&mut archive, &format!("modules/{name}"), &path)?;
        }
    }
    archive
        .into_inner()
        .and_then(|mut to| to.flush())
        .map_err(SendError::There)
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    path: &Path,
) -> Result<(), SendError> {
    let here = |source| {
        SendError::Here(BenchError::File {
            path: path.to_owned(),
            source,
        })
    };
    let file = File::open(path).map_err(here)?;
    let size = file.metadata().map_err(here)?.len();
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o755);
    archive
        .append_data(&mut header, name, file)
        .map_err(SendError::There)
}

/// Lists the files below a directory with their relative paths. Does not follow links.
fn files_below(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let below = files_below(&entry.path())?;
            files.extend(
                below
                    .into_iter()
                    .map(|(path, file)| (format!("{name}/{path}"), file)),
            );
        } else if kind.is_file() {
            files.push((name, entry.path()));
        }
    }
    Ok(files)
}

fn start(machine: &dyn BenchMachine, argv: &[&str]) -> Result<AgentProcess, BenchError> {
    machine
        .agent()
        .spawn(&AgentCommand::new(argv.iter().copied()))
        .map_err(|error| machine.explain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_programs_of_another_architecture_beside_ours() {
        let directory = tempfile::tempdir().expect("a directory");
        let ours = Programs {
            rampart: directory.path().join("rampart"),
            meter: directory.path().join("rampart-meter"),
        };
        let here = std::env::consts::ARCH;
        assert_eq!(ours.for_architecture(here, "x").expect("ours"), ours);
        let error = ours.for_architecture("riscv64", "x").expect_err("none");
        assert!(
            error
                .to_string()
                .contains("install the programs of rampart for riscv64"),
            "{error}"
        );
        assert!(matches!(error, BenchError::NoProgram { .. }), "{error:?}");
        let theirs = directory.path().join("riscv64");
        std::fs::create_dir(&theirs).expect("directory");
        for name in ["rampart", "rampart-meter"] {
            std::fs::write(theirs.join(name), "").expect("file");
        }
        let programs = ours.for_architecture("riscv64", "x").expect("theirs");
        assert_eq!(programs.rampart, theirs.join("rampart"));
        let meter = ours.meter_for("riscv64", "x").expect("theirs");
        assert_eq!(meter, theirs.join("rampart-meter"));
        assert_eq!(ours.meter_for(here, "x").expect("ours"), ours.meter);
    }
}
