// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Determines within seconds whether the machine's KVM boots a Linux guest. On some machines,
//! themselves guests, KVM opens, creates a guest and then emulates its instructions one by one.
//!
//! The answer is kept for this boot of the machine, this kernel image, this QEMU and this KVM: in
//! memory, and in the state directory if that is writable. It is not kept if there was no answer,
//! because QEMU could not be started or memory was short, or if QEMU did not print its version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use rampart_host::{StateDirectory, run_within};
use rampart_model::{Accelerator, CpuSet, Finding, Machine, Severity};
use rampart_qemu::Qemu;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::boot_watch::{Limits, Look, Watch, kvm_runs_no_guest};
use super::description::{Backing, Description, GuestRequest};
use super::guest_directories::GuestDirectory;
use super::guest_kernel::GuestKernel;
use super::host_support::Program;
use super::qemu_arguments::arguments;
use super::thread_placement::GuestThreads;
use crate::DomainError;

/// Memory of the probe in MiB: enough for a kernel to unpack itself and start.
const MEBIBYTES: u64 = 160;
/// Pause between two checks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const FILE: &str = "kvm-probe.json";
/// Time limit for QEMU to print its version: on a slow machine its dynamic linker takes seconds.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that an answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    boot: String,
    program: PathBuf,
    /// As the program prints it.
    program_version: String,
    kernel: PathBuf,
    kernel_bytes: u64,
    /// Creation of `/dev/kvm`, which is when the module was loaded, in nanoseconds since 1970.
    device_since: u64,
    /// The parameter `nested` of KVM's module.
    nested: String,
}

impl Question {
    /// Returns whether an answer can be kept: a program that did not print its version, because it
    /// hung or could not be started, may be another one next time.
    fn is_complete(&self) -> bool {
        !self.program_version.is_empty()
    }

    fn ask(program: &Program, kernel: &GuestKernel) -> Self {
        let line = |path: &str| {
            fs::read_to_string(path)
                .ok()
                .map(|text| text.trim().to_owned())
        };
        Self {
            boot: line("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            program: program.path.clone(),
            program_version: version(&program.path),
            kernel: kernel.image.clone(),
            kernel_bytes: fs::metadata(&kernel.image).map_or(0, |metadata| metadata.len()),
            device_since: device_since(Path::new("/dev/kvm")),
            nested: ["kvm_intel", "kvm_amd"]
                .iter()
                .find_map(|module| line(&format!("/sys/module/{module}/parameters/nested")))
                .unwrap_or_default(),
        }
    }
}

/// Returns the first line of `--version`, or nothing if the program does not answer.
fn version(program: &Path) -> String {
    let mut command = Command::new(program);
    command.arg("--version");
    let answer = run_within(command, VERSION_TIMEOUT).map(|answer| answer.output);
    let answer = answer.unwrap_or_default();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn device_since(device: &Path) -> u64 {
    let modified = fs::metadata(device).and_then(|metadata| metadata.modified());
    let since = modified
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    question: Question,
    /// The reason why no guest boots; `None` if one does.
    against: Option<Finding>,
}

/// Checks that a guest boots under KVM. Takes seconds the first time after a boot.
pub(super) fn kvm_boots_a_guest(
    state: &StateDirectory,
    program: &Program,
    kernel: &GuestKernel,
    machine: &Machine,
) -> Result<(), Box<Finding>> {
    static KNOWN: Mutex<Option<Answer>> = Mutex::new(None);
    let question = Question::ask(program, kernel);
    // A second caller waits for the first one's answer.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = state.path().join(FILE);
    let answers = |answer: &Answer| question.is_complete() && answer.question == question;
    let answer = known
        .clone()
        .filter(answers)
        .or_else(|| read(&file).filter(answers));
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let against = probe(state, program, kernel, machine).map_err(undetermined)?;
            let answer = Answer { question, against };
            if answer.question.is_complete() {
                write(&file, &answer);
            }
            answer
        }
    };
    let against = answer.against.clone();
    *known = Some(answer);
    match against {
        None => Ok(()),
        Some(finding) => Err(Box::new(finding)),
    }
}

/// Returns the finding if another cause prevented the probe.
fn undetermined(error: DomainError) -> Box<Finding> {
    Box::new(
        Finding::new(
            Severity::Error,
            "/dev/kvm",
            format!("cannot determine whether KVM boots a guest: {error}"),
        )
        .fix("remove that cause and run the same command again"),
    )
}

fn read(file: &Path) -> Option<Answer> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Writes the answer. An answer that cannot be kept is determined again.
fn write(file: &Path, answer: &Answer) {
    if let (Some(directory), Ok(text)) = (file.parent(), serde_json::to_vec(answer))
        && fs::create_dir_all(directory).is_ok()
    {
        let _ = fs::write(file, text);
    }
}

/// Runs a kernel under KVM until it executes code of its own. Returns the finding against KVM, or
/// `None` if the kernel runs.
///
/// # Errors
/// If that could not be determined.
fn probe(
    state: &StateDirectory,
    program: &Program,
    kernel: &GuestKernel,
    machine: &Machine,
) -> Result<Option<Finding>, DomainError> {
    let directory = GuestDirectory::create(state)?;
    let initramfs = directory.path().join("initramfs");
    // The guest is ended before it reads the initramfs.
    fs::write(&initramfs, [0; 512]).map_err(DomainError::file("write", &initramfs))?;
    let guest = Description::noisy_neighbour(
        GuestRequest {
            name: "probe",
            accelerator: Accelerator::Kvm,
            board: program.board(Accelerator::Kvm),
            memory: Backing {
                mebibytes: MEBIBYTES,
                huge_page: None,
                node: None,
                locked: false,
            },
            cpus: &CpuSet::new(),
            housekeeping: &machine.topology.allowed,
            real_time_policy: false,
            emulated: machine.virtualisation.emulated,
            kernel: kernel.image.clone(),
            initramfs,
        },
        1,
    );
    let qemu = Qemu::start(
        &program.path,
        arguments(&guest, directory.path()),
        directory.path(),
    )?;
    qemu.qmp().execute("cont", json!({}))?;
    let limits = Limits::of(Accelerator::Kvm, machine.virtualisation.emulated);
    let first = GuestThreads::ask(qemu.qmp(), qemu.process())?.first();
    let mut watch = Watch::new(limits, qemu.process(), first);
    loop {
        match watch.look(&qemu) {
            Look::KernelRuns => return Ok(None),
            Look::Failed(failure) if failure.accelerator => {
                return Ok(Some(kvm_runs_no_guest(&failure)));
            }
            Look::Failed(failure) => {
                return Err(DomainError::Guest {
                    guest: guest.name,
                    what: failure.what,
                    stderr: failure.stderr,
                    console: failure.console,
                });
            }
            Look::Booting => thread::sleep(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn question() -> Question {
        Question {
            boot: "b".to_owned(),
            program: "/usr/bin/qemu".into(),
            program_version: "QEMU emulator version 7.2".to_owned(),
            kernel: "/boot/vmlinuz".into(),
            kernel_bytes: 7,
            device_since: 1,
            nested: "1".to_owned(),
        }
    }

    /// A program that cannot run a guest is no evidence against KVM.
    #[test]
    fn keeps_no_answer_after_another_failure() {
        let directory = tempfile::tempdir().expect("directory");
        let script = directory.path().join("qemu-system-x86_64");
        fs::write(&script, "#!/bin/sh\necho no memory is free >&2\nexit 1\n").expect("file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
        let program = Program::at(&script);
        let kernel = GuestKernel {
            image: script.clone(),
            release: String::new(),
            version: String::new(),
            modules: None,
        };
        let state = StateDirectory::at(directory.path().join("state"));
        let machine = rampart_host::read_machine(&rampart_host::MachineRoot::at("/nowhere"));
        let answer = kvm_boots_a_guest(&state, &program, &kernel, &machine);
        let finding = answer.expect_err("it does not run").to_string();
        assert!(finding.contains("cannot determine"), "{finding}");
        assert!(finding.contains("no memory is free"), "{finding}");
        assert!(!state.path().join(FILE).exists(), "it is kept");
        // A kept answer without a version is ignored.
        let question = Question::ask(&program, &kernel);
        assert!(!question.is_complete());
        let old = Finding::new(Severity::Error, "/dev/kvm", "an old answer");
        write(
            &state.path().join(FILE),
            &Answer {
                question,
                against: Some(old),
            },
        );
        let answer = kvm_boots_a_guest(&state, &program, &kernel, &machine);
        let finding = answer.expect_err("it does not run").to_string();
        assert!(finding.contains("no memory is free"), "{finding}");
    }

    #[test]
    fn asks_again_for_another_qemu_or_kvm() {
        let now = question();
        for other in [
            Question {
                program_version: "QEMU emulator version 8.0".to_owned(),
                ..now.clone()
            },
            Question {
                device_since: 2,
                ..now.clone()
            },
            Question {
                nested: "0".to_owned(),
                ..now.clone()
            },
        ] {
            assert_ne!(other, now);
        }
        assert_eq!(device_since(Path::new("/nowhere/kvm")), 0);
        assert!(device_since(Path::new("/proc/self/exe")) > 0);
        assert_eq!(version(Path::new("/nowhere/qemu")), "");
    }

    #[test]
    fn keeps_an_answer_and_reads_it_back() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("state").join(FILE);
        let answer = Answer {
            question: question(),
            against: Some(Finding::new(Severity::Error, "/dev/kvm", "no")),
        };
        write(&file, &answer);
        assert_eq!(read(&file), Some(answer));
        fs::write(&file, "{").expect("file");
        assert_eq!(read(&file), None);
    }
}
