// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `vm`: the meter as the only program of a guest that QEMU runs, without a daemon.
//!
//! A `description` of a guest is turned into QEMU's arguments and into libvirt's XML. `kvm_probe`,
//! `host_support` and `availability` check the host, `guest` boots and places it, `running_guest`
//! and `noisy` run a meter or a load in it. `planned_guest` is a guest of a plan, with a kernel or
//! disk of its own.

mod availability;
mod boot_watch;
mod description;
mod guest;
mod guest_directories;
mod guest_kernel;
mod guest_settings;
mod host_support;
mod initramfs;
mod kvm_probe;
mod libvirt;
mod libvirt_export;
mod noisy;
mod planned_guest;
mod program_libraries;
mod qemu_arguments;
mod running_guest;
mod thread_placement;

use std::path::Path;
use std::sync::PoisonError;

use rampart_host::{MachineRoot, StateDirectory, read_knob_values, read_machine};
use rampart_model::{
    Accelerator, Availability, CpuSet, DomainKind, DomainSelection, Finding, GuestRole, Machine,
};
use rampart_rules::guest::{GUEST_PLACEMENT_RULES, guest_kernel_finding};
use rampart_rules::{Isolation, Subject, findings_of};

use self::description::{Board, Description, GuestRequest};
use self::guest::{Guest, Parts};
use self::guest_kernel::{GuestKernel, KernelLocations};
use self::host_support::Program;
use self::program_libraries::Libraries;
use self::running_guest::{RunningGuest, Slot};
use crate::kernel_modules::{self, Module, ModuleTree};
use crate::shielded_process::{Environment, IsolationChoice};
use crate::{Domain, DomainError, Running, Start};

pub(crate) use self::guest_kernel::KERNEL_VARIABLE;

pub use self::guest_directories::{ReleasedGuests, release_guests};
pub use self::libvirt_export::{ExportedGuest, export_libvirt};
pub use self::planned_guest::{GuestEnd, GuestOrder, PlannedGuest, VirtualCpuPlacement};

/// Memory of a guest in MiB: its kernel, the meter, and a load program with its libraries.
const MEBIBYTES: u64 = 320;
/// Memory of a noisy neighbour in MiB.
const NOISY_MEBIBYTES: u64 = 384;
/// Maximum number of CPUs of a noisy neighbour.
const NOISY_CPUS: usize = 2;
/// Modules of the bus, the console and the port of either board.
const MODULES: [&str; 3] = ["virtio_mmio", "virtio_pci", "virtio_console"];

/// The domain `vm`.
#[derive(Debug)]
pub(crate) struct VmDomain {
    role: GuestRole,
    state: StateDirectory,
    isolation: IsolationChoice,
    /// A guest that stayed up after a run.
    up: Slot,
}

impl VmDomain {
    pub(crate) fn new(role: GuestRole, state: StateDirectory, isolation: IsolationChoice) -> Self {
        Self {
            role,
            state,
            isolation,
            up: Slot::default(),
        }
    }

    /// Returns whether a guest that stayed up suits this start.
    fn fits(guest: &Guest, start: &Start<'_>) -> bool {
        let description = &guest.description;
        let bound: CpuSet = description.pinned().into_iter().skip(1).flatten().collect();
        bound == start.settings.cpus
            && description.housekeeping == *start.housekeeping
            && description.cpus.iter().any(|cpu| cpu.policy.is_real_time())
                == start.settings.policy.is_real_time()
    }

    fn take_guest(&self, start: &Start<'_>) -> Option<Guest> {
        let mut slot = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        // A guest with other CPUs is ended here.
        let guest = slot.take()?;
        Self::fits(&guest, start).then_some(guest)
    }

    fn boot(&self, start: &Start<'_>, environment: &mut Environment) -> Result<Guest, DomainError> {
        let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
        let program = Program::find().map_err(unavailable)?;
        let kernel = KernelLocations::standard().find().map_err(unavailable)?;
        let machine = read_machine(&MachineRoot::system());
        let accelerator = accelerator(self.role);
        if accelerator == Accelerator::Kvm {
            host_support::kvm().map_err(unavailable)?;
        }
        let modules = guest_modules(&kernel, start.meter).map_err(unavailable)?;
        let load = Libraries::of_program("stress-ng");
        let parts = Parts {
            program: &program,
            meter: start.meter,
            modules: &modules,
            load: load.as_ref(),
            machine: &machine,
        };
        let order = Order {
            role: self.role,
            name: start.name,
            board: program.board(accelerator),
            machine: &machine,
            cpus: &start.settings.cpus,
            housekeeping: start.housekeeping,
            real_time_policy: start.settings.policy.is_real_time(),
            kernel: &kernel.image,
        };
        let mut guest = Guest::boot(&self.state, &parts, environment, |initramfs| {
            describe(&order, initramfs)
        })?;
        guest.note(weaknesses(&order, &kernel));
        Ok(guest)
    }
}

impl Domain for VmDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            guest: Some(self.role),
            cell: None,
            kind: DomainKind::Vm,
            engine: None,
        }
    }

    fn availability(&self, machine: &Machine) -> Availability {
        availability::of(self, machine)
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        // `rampart release` reports what cannot be removed; it does not affect this start.
        let _ = release_guests(&self.state);
        if self.role == GuestRole::Noisy {
            let mut environment = Environment::none(start);
            let guest = self.boot(start, &mut environment)?;
            return Ok(Box::new(noisy::NoisyNeighbour::start(guest, environment)?));
        }
        let kept = self.take_guest(start);
        // After an error, the guest ends before its isolation is removed.
        let mut environment = Environment::raise(&self.state, self.isolation, start)?;
        let resumed = kept.and_then(|mut guest| {
            // A guest that ended or hangs is replaced.
            guest.resume(&mut environment).ok().map(|()| guest)
        });
        let guest = match resumed {
            Some(guest) => guest,
            None => self.boot(start, &mut environment)?,
        };
        let stay = start.stay_up.then(|| Slot::clone(&self.up));
        let running = RunningGuest::start(guest, environment, start.settings, stay)?;
        Ok(Box::new(running))
    }
}

/// Returns the accelerator of a guest of this role.
fn accelerator(role: GuestRole) -> Accelerator {
    match role {
        GuestRole::Emulated => Accelerator::Tcg,
        GuestRole::RealTime | GuestRole::Noisy => Accelerator::Kvm,
    }
}

/// Returns whether a guest of this role is for real-time work.
fn is_real_time(role: GuestRole) -> bool {
    role != GuestRole::Noisy
}

/// A requested guest.
struct Order<'a> {
    role: GuestRole,
    name: &'a str,
    board: Board,
    machine: &'a Machine,
    /// The host's CPUs for its real-time virtual CPUs.
    cpus: &'a CpuSet,
    housekeeping: &'a CpuSet,
    /// Whether threads may get a real-time policy.
    real_time_policy: bool,
    kernel: &'a Path,
}

/// Describes the guest of an order on its machine in its present state.
fn describe(order: &Order<'_>, initramfs: &Path) -> Description {
    let real_time = is_real_time(order.role);
    let mebibytes = if real_time {
        MEBIBYTES
    } else {
        NOISY_MEBIBYTES
    };
    let request = GuestRequest {
        name: order.name,
        accelerator: accelerator(order.role),
        board: order.board,
        memory: host_support::backing(
            Path::new("/"),
            mebibytes,
            order.cpus,
            &order.machine.topology,
            real_time,
        ),
        cpus: order.cpus,
        housekeeping: order.housekeeping,
        real_time_policy: order.real_time_policy,
        emulated: order.machine.virtualisation.emulated,
        kernel: order.kernel.to_owned(),
        initramfs: initramfs.to_owned(),
    };
    if real_time {
        Description::real_time(request)
    } else {
        Description::noisy_neighbour(request, order.housekeeping.len().min(NOISY_CPUS))
    }
}

/// Returns the weaknesses of that guest on its machine.
fn weaknesses(order: &Order<'_>, kernel: &GuestKernel) -> Vec<Finding> {
    if is_real_time(order.role) {
        let mut findings = placement_findings(
            &MachineRoot::system(),
            order.machine,
            order.cpus,
            order.housekeeping,
        );
        findings.extend(kernel_finding(kernel));
        findings
    } else {
        Vec::new()
    }
}

/// Returns the findings about the CPUs of a real-time guest and about its host.
fn placement_findings(
    root: &MachineRoot,
    machine: &Machine,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
) -> Vec<Finding> {
    let readings = read_knob_values(root, cpus);
    let isolation = Isolation {
        real_time: cpus.clone(),
        housekeeping: housekeeping.clone(),
        has_guests: true,
        ..Isolation::default()
    };
    let subject = Subject {
        machine,
        readings: &readings,
    };
    findings_of(GUEST_PLACEMENT_RULES, subject, &isolation)
}

/// Returns the finding of a guest kernel that is known not to be built for real time.
fn kernel_finding(kernel: &GuestKernel) -> Option<Finding> {
    let image = kernel.image.display().to_string();
    (kernel.is_real_time() == Some(false))
        .then(|| guest_kernel_finding(&image, &kernel.version, KERNEL_VARIABLE))
        .flatten()
}

/// Returns the modules that a guest loads: its bus, console and port, and the module that injects
/// blocks, if there is one for its kernel.
fn guest_modules(kernel: &GuestKernel, meter: &Path) -> Result<Vec<Module>, Box<Finding>> {
    // A kernel without modules has everything built in.
    let Some(directory) = &kernel.modules else {
        return Ok(Vec::new());
    };
    let tree = ModuleTree::open(directory);
    let mut modules = tree.closure(&MODULES)?;
    modules.extend(kernel_modules::of_blocks(&tree, &kernel.release, meter)?);
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rampart_model::{Cpu, CpuId, MemoryNode};

    use super::description::tests::set;
    use super::*;

    /// Four CPUs: 0 and 1 are siblings, 3 is of another node and faster.
    fn machine(root: &MachineRoot) -> Machine {
        let mut machine = read_machine(root);
        machine.topology.online = set("0-3");
        machine.topology.cpus = [("0-1", 0, 1), ("0-1", 0, 1), ("2", 0, 1), ("3", 1, 2)]
            .into_iter()
            .zip(0..)
            .map(|((siblings, node, capacity), number)| Cpu {
                id: CpuId(number),
                core: None,
                package: None,
                node: Some(node),
                siblings: set(siblings),
                capacity: Some(capacity),
            })
            .collect();
        machine.topology.nodes = [(0, "0-2"), (1, "3")]
            .map(|(id, cpus)| MemoryNode {
                id,
                cpus: set(cpus),
                memory: 1,
            })
            .into();
        machine
    }

    fn rules(root: &MachineRoot, cpus: &str, housekeeping: &str) -> Vec<String> {
        let findings = placement_findings(root, &machine(root), &set(cpus), &set(housekeeping));
        assert!(findings.iter().all(|finding| finding.fix.is_some()));
        findings.into_iter().filter_map(|one| one.rule).collect()
    }

    #[test]
    fn reports_each_deviation_of_the_guests_cpus() {
        let root = MachineRoot::at("/nowhere");
        for (cpus, expected) in [
            ("2", &[][..]),
            ("1", &["sibling-threads"]),
            ("0-1", &["boot-cpu"]),
            ("2-3", &["one-memory-node", "one-kind-of-core"]),
        ] {
            let housekeeping = set("0-3").difference(&set(cpus)).to_string();
            assert_eq!(rules(&root, cpus, &housekeeping), expected, "{cpus}");
        }
    }

    #[test]
    fn reports_managers_network_queues_and_missing_options() {
        let directory = tempfile::tempdir().expect("directory");
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(path, text).expect("file");
        };
        for (process, name) in [
            (2, "kthreadd"),
            (7, "stalld"),
            (8, "tuned"),
            (10, "irqbalance"),
        ] {
            write(&format!("proc/{process}/comm"), &format!("{name}\n"));
        }
        for number in 0..4 {
            write(
                &format!("sys/class/net/eth0/queues/rx-{number}/rps_cpus"),
                "0",
            );
        }
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write(
            "boot/config-6.1.0",
            "CONFIG_NO_HZ_FULL=y\nCONFIG_HIGH_RES_TIMERS=y\nCONFIG_KVM=m\n",
        );
        let root = MachineRoot::at(directory.path());
        let expected = [
            "config-cpusets",
            "network-queues",
            "irqbalance",
            "tuned",
            "stalld",
        ];
        assert_eq!(rules(&root, "2", "0-1"), expected);
    }

    #[test]
    fn reports_a_guest_kernel_that_is_not_real_time() {
        let mut kernel = GuestKernel {
            image: "/boot/vmlinuz".into(),
            release: "6.1".to_owned(),
            version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
            modules: None,
        };
        let finding = kernel_finding(&kernel).expect("a finding").to_string();
        assert!(finding.contains("expected PREEMPT_RT"), "{finding}");
        kernel.version = "#1 SMP PREEMPT_RT".to_owned();
        assert_eq!(kernel_finding(&kernel), None);
        kernel.version = String::new();
        assert_eq!(kernel_finding(&kernel), None, "unknown");
    }
}
