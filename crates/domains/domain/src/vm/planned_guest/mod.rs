// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of a plan: its own kernel or disk, and the placement of every thread of its emulator.

mod qemu_arguments;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_host::{MachineRoot, PlacementGroup, ThreadPlacement, place_thread};
use rampart_model::{CpuId, CpuSet, Finding, PlacedThread, SchedulingPolicy, Severity};
use rampart_qemu::Qemu;
use serde_json::json;

use self::qemu_arguments::Facilities;
use super::host_support::{self, Program};
use super::thread_placement::{exists, kernel_helpers, threads_in};
use crate::DomainError;
use crate::process_settings::{self, Thread};

/// Time limit from resuming a guest until QEMU reports that it runs.
const RUN_LIMIT: Duration = Duration::from_secs(10);
/// First bytes of a disk in QEMU's own format (QEMU's `docs/interop/qcow2`).
const QCOW2: [u8; 4] = *b"QFI\xfb";

/// The placement of a virtual CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualCpuPlacement {
    /// The CPUs of the host; one if it is bound.
    pub cpus: CpuSet,
    /// The policy of its thread.
    pub policy: SchedulingPolicy,
}

/// A guest that a plan requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestOrder {
    /// Name of its domain.
    pub name: String,
    /// Its kernel's image.
    pub kernel: Option<PathBuf>,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its disk.
    pub disk: Option<PathBuf>,
    /// Its memory.
    pub memory_bytes: u64,
    /// Size of the huge pages of its memory in bytes; `None` for ordinary pages.
    pub huge_page: Option<u64>,
    /// The memory node that the plan names.
    pub node: Option<u32>,
    /// Its virtual CPUs by their numbers.
    pub virtual_cpus: Vec<VirtualCpuPlacement>,
    /// CPUs of the emulator's threads other than virtual CPUs.
    pub emulator: CpuSet,
    /// CPUs of the threads that serve its devices.
    pub service: CpuSet,
    /// Whether an idle virtual CPU keeps its CPU busy.
    pub cpu_pm: bool,
    /// Whether its CPUs are declared to it as dedicated.
    pub hint_dedicated: bool,
    /// PCI devices passed to it.
    pub devices: Vec<String>,
    /// A directory of its own, for sockets; emptied first.
    pub directory: PathBuf,
    /// The file that its console is appended to.
    pub log: PathBuf,
}

impl GuestOrder {
    /// Returns whether any of its virtual CPUs has a real-time policy.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        !self.real_time_inside().is_empty()
    }

    /// Returns the virtual CPUs with a real-time policy, by their numbers in the guest.
    fn real_time_inside(&self) -> CpuSet {
        (0u32..)
            .zip(&self.virtual_cpus)
            .filter(|(_, cpu)| cpu.policy.is_real_time())
            .map(|(number, _)| CpuId(number))
            .collect()
    }

    /// Returns the placement of a thread.
    fn place(&self, number: Option<usize>, name: &str, group: &PlacementGroup) -> ThreadPlacement {
        let virtual_cpu = number.and_then(|number| self.virtual_cpus.get(number));
        let (group, cpus, policy) = match virtual_cpu {
            Some(cpu) => (group.clone(), &cpu.cpus, cpu.policy),
            // QEMU names the threads that serve devices `IO …`, the kernel its own `vhost-…`.
            None if name.starts_with("IO ") || name.starts_with("vhost") => {
                (PlacementGroup::AsIs, &self.service, SchedulingPolicy::Other)
            }
            None => (
                PlacementGroup::AsIs,
                &self.emulator,
                SchedulingPolicy::Other,
            ),
        };
        ThreadPlacement {
            group,
            cpus: Some(cpus.clone()),
            policy: Some(policy),
            nice: None,
        }
    }
}

/// Returns whether the threads of a process stay together in the group: cgroup v2 does that unless
/// the group is threaded, as an isolated group is if the kernel permits it
/// (Documentation/admin-guide/cgroup-v2.rst, "Threads").
fn stays_whole(group: &PlacementGroup) -> bool {
    let PlacementGroup::V2(path) = group else {
        return false;
    };
    fs::read_to_string(path.join("cgroup.type")).is_ok_and(|kind| kind.trim() != "threaded")
}

/// The end of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestEnd {
    /// Its exit status.
    pub status: String,
    /// Whether it powered off by itself.
    pub success: bool,
}

/// A running guest of a plan. Dropping it kills it, and it does not outlive this process.
#[derive(Debug)]
pub struct PlannedGuest {
    qemu: Qemu,
    order: GuestOrder,
    group: PlacementGroup,
    /// Whether its threads stay together in the group; those of the emulator are then isolated too.
    stays_whole: bool,
    virtual_cpus: Vec<u32>,
    placed: BTreeSet<u32>,
    reason: Option<String>,
}

impl PlannedGuest {
    /// Starts a guest whose virtual CPUs belong into `group`, and resumes it when all its threads
    /// are placed. Returns findings for settings that are not in effect as requested.
    ///
    /// # Errors
    /// If there is no QEMU, no KVM, or a virtual CPU cannot be placed.
    pub fn start(
        order: GuestOrder,
        group: PlacementGroup,
    ) -> Result<(Self, Vec<Finding>), DomainError> {
        let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
        if order.kernel.is_none() && order.disk.is_none() {
            let finding = Finding::new(
                Severity::Error,
                format!("domain {}", order.name),
                "the guest has neither a kernel nor a disk",
            );
            return Err(DomainError::Unavailable(finding.fix(
                "write kernel = \"/boot/vmlinuz-…\" or disk = \"FILE\" in the plan",
            )));
        }
        let program = Program::find().map_err(unavailable)?;
        host_support::kvm().map_err(unavailable)?;
        for file in [&order.kernel, &order.initramfs, &order.disk]
            .into_iter()
            .flatten()
        {
            fs::File::open(file).map_err(DomainError::file("read", file))?;
        }
        // QEMU cannot create its sockets while those of a killed guest exist.
        let _ = fs::remove_dir_all(&order.directory);
        fs::create_dir_all(&order.directory)
            .map_err(DomainError::file("make the directory", &order.directory))?;
        let facilities = facilities(&order);
        let qemu = Qemu::start(
            &program.path,
            qemu_arguments::arguments(&order, &facilities),
            &order.directory,
        )?;
        let answer = qemu.qmp().execute("query-cpus-fast", json!({}))?;
        let mut guest = Self {
            virtual_cpus: threads_in(&answer),
            qemu,
            order,
            stays_whole: stays_whole(&group),
            group,
            placed: BTreeSet::new(),
            reason: None,
        };
        let findings = guest.place_all()?;
        guest.qemu.qmp().execute("cont", json!({}))?;
        guest.await_running()?;
        Ok((guest, findings))
    }

    /// Returns the id of the emulator's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.qemu.process()
    }

    /// Places all threads. Fails if a virtual CPU cannot be placed, and returns a finding for any
    /// other thread.
    fn place_all(&mut self) -> Result<Vec<Finding>, DomainError> {
        let mut findings = Vec::new();
        if self.stays_whole {
            let location = ThreadPlacement {
                group: self.group.clone(),
                cpus: None,
                policy: None,
                nice: None,
            };
            rampart_host::place_process(self.process(), &location)?;
        }
        findings.extend(self.place_new()?);
        for helper in kernel_helpers(self.process()) {
            let location = self.order.place(None, &helper.name, &self.group);
            let location = ThreadPlacement {
                policy: None,
                ..location
            };
            findings.extend(
                place_thread(helper.id, &location)
                    .ok()
                    .and_then(|placed| placed.refused),
            );
        }
        Ok(findings)
    }

    /// Places threads that were created since the last call.
    ///
    /// # Errors
    /// If a virtual CPU cannot be placed.
    pub fn place_new(&mut self) -> Result<Vec<Finding>, DomainError> {
        let mut findings = Vec::new();
        for thread in process_settings::threads(self.process()) {
            if self.placed.contains(&thread.id) {
                continue;
            }
            let number = self.virtual_cpus.iter().position(|id| *id == thread.id);
            match self.place_one(&thread, number) {
                Ok(placed) if number.is_none() => findings.extend(placed.refused),
                Ok(placed) => match placed.refused {
                    Some(finding) => {
                        return Err(DomainError::NotPlaced {
                            process: self.process(),
                            finding: Box::new(finding),
                        });
                    }
                    None => findings.extend(placed.notes),
                },
                // A worker may end meanwhile.
                Err(_) if !exists(self.process(), thread.id) => continue,
                Err(error) => return Err(error),
            }
            self.placed.insert(thread.id);
        }
        Ok(findings)
    }

    fn place_one(
        &self,
        thread: &Thread,
        number: Option<usize>,
    ) -> Result<PlacedThread, DomainError> {
        let mut location = self.order.place(number, &thread.name, &self.group);
        if self.stays_whole {
            location.group = PlacementGroup::AsIs;
        }
        Ok(place_thread(thread.id, &location)?)
    }

    fn await_running(&self) -> Result<(), DomainError> {
        let begin = Instant::now();
        loop {
            let answer = self.qemu.qmp().execute("query-status", json!({}))?;
            let status = answer.get("status").and_then(serde_json::Value::as_str);
            match status {
                Some("running") => return Ok(()),
                // KVM could not run it.
                Some("internal-error" | "guest-panicked") => {}
                _ if begin.elapsed() < RUN_LIMIT => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                _ => {}
            }
            return Err(DomainError::Guest {
                guest: self.order.name.clone(),
                what: format!(
                    "it is `{}` after it was resumed",
                    status.unwrap_or("unknown")
                ),
                stderr: self.qemu.stderr_tail(),
                console: rampart_qemu::last_lines(&self.order.log, 12).unwrap_or_default(),
            });
        }
    }

    /// Returns how it ended, or `None` while it runs. A guest that resets itself has failed: a
    /// kernel that panics does so.
    pub fn ended(&mut self) -> Option<GuestEnd> {
        while let Some(event) = self.qemu.qmp().next_event(Duration::ZERO) {
            if event.name == "SHUTDOWN" {
                let reason = event.data.get("reason").and_then(|reason| reason.as_str());
                self.reason = Some(reason.unwrap_or("unknown").to_owned());
            }
        }
        let status = self.qemu.ended()?;
        let reason = self.reason.as_deref();
        let success = status.success()
            && !matches!(reason, Some("guest-reset" | "guest-panic" | "host-error"));
        let status = match reason {
            Some(reason) => format!("{status} ({reason})"),
            None if status.success() => status.to_string(),
            None => format!("{status}; QEMU reports: {}", self.qemu.stderr_tail()),
        };
        Some(GuestEnd { status, success })
    }

    /// Asks it to power off, by ACPI. The caller waits, and ends it after its time limit.
    pub fn power_down(&self) {
        // A guest that has ended does not answer, which is no error.
        let _ = self.qemu.qmp().execute("system_powerdown", json!({}));
    }

    /// Ends the emulator: requests its end over QMP, then kills it.
    pub fn end(self) {
        let directory = self.order.directory.clone();
        self.qemu.end();
        let _ = fs::remove_dir_all(directory);
    }
}

fn facilities(order: &GuestOrder) -> Facilities {
    let machine = rampart_host::read_machine(&MachineRoot::system());
    let bound: CpuSet = order
        .virtual_cpus
        .iter()
        .filter(|cpu| cpu.cpus.len() == 1)
        .flat_map(|cpu| cpu.cpus.iter())
        .collect();
    let mebibytes = order.memory_bytes >> 20;
    let backing = host_support::backing(
        Path::new("/"),
        mebibytes,
        &bound,
        &machine.topology,
        order.is_real_time(),
    );
    Facilities {
        locked: backing.locked,
        node: order.node.or(backing.node),
        disk_format: order.disk.as_deref().map_or("raw", disk_format),
    }
}

/// Returns the format of a disk. Detecting it once at the start prevents QEMU from guessing it and
/// from refusing a guest that writes such first bytes.
fn disk_format(disk: &Path) -> &'static str {
    let mut begin = [0; 4];
    let read = fs::File::open(disk).and_then(|mut file| file.read_exact(&mut begin));
    if read.is_ok() && begin == QCOW2 {
        "qcow2"
    } else {
        "raw"
    }
}
