// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds out in seconds whether the machine's KVM brings a Linux guest up at all. There are
//! machines, themselves guests, whose KVM opens, makes a guest and then carries out its
//! instructions one by one in software.
//!
//! The answer is kept for this boot of the machine and this kernel image: in memory, and in the
//! state directory where that can be written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rampart_host::StateDirectory;
use rampart_model::{Accelerator, CpuSet, Finding, Machine, Severity};
use rampart_qemu::Qemu;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::arguments::arguments;
use super::description::{Backing, Description, Wishes};
use super::host::{self, Program};
use super::kernel::GuestKernel;
use super::store::GuestDirectory;
use super::threads::Placement;
use super::watch::{Limits, Look, Watch, kvm_runs_no_guest};
use crate::DomainError;

/// Memory of the probe: enough for a kernel to unpack itself and to start.
const MEBIBYTES: u64 = 160;
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const FILE: &str = "kvm-probe.json";

/// What an answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    boot: String,
    program: PathBuf,
    kernel: PathBuf,
    kernel_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    question: Question,
    /// Why no guest comes up; none if one does.
    against: Option<Finding>,
}

/// Whether a guest comes up under KVM. Takes seconds the first time after a boot.
pub(super) fn kvm_brings_a_guest_up(
    state: &StateDirectory,
    program: &Program,
    kernel: &GuestKernel,
    machine: &Machine,
) -> Result<(), Box<Finding>> {
    static KNOWN: Mutex<Option<Answer>> = Mutex::new(None);
    let question = Question {
        boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        program: program.path.clone(),
        kernel: kernel.image.clone(),
        kernel_bytes: fs::metadata(&kernel.image).map_or(0, |metadata| metadata.len()),
    };
    // Whoever comes second waits for the first one's answer.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = state.path().join(FILE);
    let answer = known
        .clone()
        .filter(|answer| answer.question == question)
        .or_else(|| read(&file).filter(|answer| answer.question == question));
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let against = probe(state, program, kernel, machine).err();
            let answer = Answer {
                question,
                against: against.map(|finding| *finding),
            };
            write(&file, &answer);
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

fn read(file: &Path) -> Option<Answer> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// As well as it goes: what cannot be kept is asked again.
fn write(file: &Path, answer: &Answer) {
    if let (Some(directory), Ok(text)) = (file.parent(), serde_json::to_vec(answer))
        && fs::create_dir_all(directory).is_ok()
    {
        let _ = fs::write(file, text);
    }
}

/// Lets a kernel run under KVM until it executes code of its own.
fn probe(
    state: &StateDirectory,
    program: &Program,
    kernel: &GuestKernel,
    machine: &Machine,
) -> Result<(), Box<Finding>> {
    let failed = |error: DomainError| {
        Box::new(Finding::new(
            Severity::Problem,
            "/dev/kvm",
            format!("whether KVM brings a guest up cannot be found out: {error}"),
        ))
    };
    let directory = GuestDirectory::create(state).map_err(failed)?;
    let initramfs = directory.path().join("initramfs");
    // The guest is ended before it would look into it.
    fs::write(&initramfs, [0; 512])
        .map_err(|cause| failed(DomainError::file("write", &initramfs)(cause)))?;
    let guest = Description::neighbour(
        Wishes {
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
            kernel: kernel.image.clone(),
            initramfs,
        },
        1,
    );
    let qemu = Qemu::start(
        &program.path,
        arguments(&guest, directory.path()),
        directory.path(),
    )
    .map_err(|error| failed(error.into()))?;
    qemu.qmp()
        .execute("cont", json!({}))
        .map_err(|error| failed(error.into()))?;
    let limits = Limits::of(Accelerator::Kvm, host::is_emulated(machine));
    let first = Placement::ask(qemu.qmp(), qemu.process())
        .map_err(failed)?
        .first();
    let mut watch = Watch::new(limits, qemu.process(), first);
    loop {
        match watch.look(&qemu) {
            Look::KernelRuns => return Ok(()),
            Look::Failed(failure) => return Err(Box::new(kvm_runs_no_guest(&failure))),
            Look::Booting => thread::sleep(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_and_read_again() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("state").join(FILE);
        let answer = Answer {
            question: Question {
                boot: "b".to_owned(),
                program: "/usr/bin/qemu".into(),
                kernel: "/boot/vmlinuz".into(),
                kernel_bytes: 7,
            },
            against: Some(Finding::new(Severity::Problem, "/dev/kvm", "no")),
        };
        write(&file, &answer);
        assert_eq!(read(&file), Some(answer));
        fs::write(&file, "{").expect("file");
        assert_eq!(read(&file), None);
    }
}
