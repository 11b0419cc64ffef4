// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes a guest, for QEMU's arguments and libvirt's XML. Pure.

use std::path::PathBuf;

use rampart_model::{Accelerator, CpuId, CpuSet, SchedulingPolicy};
use rampart_rules::guest::VirtualCpu;

/// Name of the agent's virtio-serial port.
pub(super) const PORT: &str = "rampart.agent";
/// The guest's housekeeping CPU: the first, which boots.
pub(super) const HOUSEKEEPING_INSIDE: CpuId = CpuId(0);
/// Priority of real-time virtual CPUs: above all time-sharing work, below the kernel's per-CPU
/// threads, which run at 2 or more if they are raised (TuneD's profile realtime-virtual-host).
pub(super) const VIRTUAL_CPU_PRIORITY: u8 = 1;

/// The virtual board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Board {
    /// QEMU's `microvm`: virtio over memory-mapped registers, no PCI, no legacy timers. It needs
    /// KVM's paravirtual clock as the only source of its frequency.
    Microvm,
    /// QEMU's `pc`, with the legacy timers that a guest without the paravirtual clock needs.
    Pc,
    /// QEMU's `q35`, which libvirt supports.
    Q35,
}

/// The guest's memory on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backing {
    /// Size in MiB.
    pub(super) mebibytes: u64,
    /// Size of the huge pages in bytes; `None` for ordinary pages.
    pub(super) huge_page: Option<u64>,
    /// The memory node; `None` for any.
    pub(super) node: Option<u32>,
    /// Whether all memory of the program is locked.
    pub(super) locked: bool,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    /// Its name.
    pub(super) name: String,
    /// What runs its instructions.
    pub(super) accelerator: Accelerator,
    /// The board.
    pub(super) board: Board,
    /// Its memory.
    pub(super) memory: Backing,
    /// Its CPUs, by their numbers inside.
    pub(super) cpus: Vec<VirtualCpu>,
    /// The CPUs of all other threads of the program.
    pub(super) emulator: CpuSet,
    /// The host's housekeeping CPUs; a virtual CPU on none of them is isolated.
    pub(super) housekeeping: CpuSet,
    /// Its kernel's image.
    pub(super) kernel: PathBuf,
    /// Its initramfs.
    pub(super) initramfs: PathBuf,
    /// Whether the CPUs except the first are for real-time work.
    pub(super) real_time: bool,
    /// Whether the host is emulated.
    pub(super) emulated: bool,
}

/// The input of a description.
#[derive(Debug, Clone)]
pub(super) struct GuestRequest<'a> {
    pub(super) name: &'a str,
    pub(super) accelerator: Accelerator,
    pub(super) board: Board,
    pub(super) memory: Backing,
    /// The host's CPUs for real-time virtual CPUs, one for each.
    pub(super) cpus: &'a CpuSet,
    /// The host's housekeeping CPUs.
    pub(super) housekeeping: &'a CpuSet,
    /// Whether threads may get a real-time policy.
    pub(super) real_time_policy: bool,
    /// Whether the host is emulated.
    pub(super) emulated: bool,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
}

impl Description {
    /// Describes a guest for real-time work: its first CPU runs its housekeeping on the first of
    /// the host's housekeeping CPUs, each other CPU has a host CPU of its own. The program's other
    /// threads get the remaining housekeeping CPUs, if there are any: a virtual CPU that waits for
    /// its emulator is not dedicated.
    pub(super) fn real_time(request: GuestRequest<'_>) -> Self {
        let first = match request.housekeeping.first() {
            Some(cpu) => CpuSet::single(cpu),
            None => request.cpus.clone(),
        };
        let first = VirtualCpu {
            cpus: first,
            policy: SchedulingPolicy::Other,
        };
        let policy = if request.real_time_policy {
            SchedulingPolicy::Fifo(VIRTUAL_CPU_PRIORITY)
        } else {
            SchedulingPolicy::Other
        };
        let others = request.cpus.iter().map(|cpu| VirtualCpu {
            cpus: CpuSet::single(cpu),
            policy,
        });
        let cpus = std::iter::once(first.clone()).chain(others).collect();
        let rest = request.housekeeping.difference(&first.cpus);
        let mut guest = Self::with(request, cpus, true);
        if !rest.is_empty() {
            guest.emulator = rest;
        }
        guest
    }

    /// Describes a noisy neighbour: `count` CPUs that float over the housekeeping CPUs under the
    /// time-sharing policy.
    pub(super) fn noisy_neighbour(request: GuestRequest<'_>, count: usize) -> Self {
        let cpu = VirtualCpu {
            cpus: request.housekeeping.clone(),
            policy: SchedulingPolicy::Other,
        };
        let cpus = vec![cpu; count.max(1)];
        Self::with(request, cpus, false)
    }

    fn with(request: GuestRequest<'_>, cpus: Vec<VirtualCpu>, real_time: bool) -> Self {
        Self {
            name: request.name.to_owned(),
            accelerator: request.accelerator,
            board: request.board,
            memory: request.memory,
            cpus,
            emulator: request.housekeeping.clone(),
            housekeeping: request.housekeeping.clone(),
            kernel: request.kernel,
            initramfs: request.initramfs,
            real_time,
            emulated: request.emulated,
        }
    }

    /// Returns the host's CPU of each virtual CPU that is bound to one.
    pub(super) fn pinned(&self) -> Vec<Option<CpuId>> {
        self.cpus
            .iter()
            .map(|cpu| cpu.cpus.first().filter(|_| cpu.cpus.len() == 1))
            .collect()
    }

    /// Returns the guest's CPUs for real-time work, by their numbers inside.
    pub(super) fn real_time_inside(&self) -> CpuSet {
        if !self.real_time {
            return CpuSet::new();
        }
        (1..self.cpus.len())
            .filter_map(|number| u32::try_from(number).ok())
            .map(CpuId)
            .collect()
    }

    /// Returns whether no virtual CPU shares its CPU with another or with the program's own
    /// threads. Only then the guest may assume that its CPUs are never preempted for an unlimited
    /// time (`KVM_HINTS_REALTIME`, Linux document `virt/kvm/x86/cpuid.rst`); ordinary work beside
    /// the first CPU takes turns with it, which is limited. Idling without an exit (`-overcommit
    /// cpu-pm=on`) needs more: such a CPU would keep a housekeeping CPU busy.
    pub(super) fn is_dedicated(&self) -> bool {
        let mut seen = CpuSet::new();
        self.cpus.iter().all(|virtual_cpu| {
            let Some(cpu) = virtual_cpu.cpus.first() else {
                return false;
            };
            let own =
                virtual_cpu.cpus.len() == 1 && !self.emulator.contains(cpu) && !seen.contains(cpu);
            seen.insert(cpu);
            own
        })
    }

    /// Returns the guest's kernel command line, which isolates the real-time virtual CPUs like
    /// those of a machine, and starts the agent.
    pub(super) fn kernel_command_line(&self) -> String {
        let mut words: Vec<String> = ["console=ttyS0", "quiet", "panic=-1"]
            .map(str::to_owned)
            .into();
        let cpus = self.real_time_inside();
        if !cpus.is_empty() {
            // `domain` without `nohz` here and the list again in `nohz_full=`: both name the same
            // CPUs, which 6.1 does not check (reference: kernel/sched/isolation.c).
            words.push(format!("isolcpus=managed_irq,domain,{cpus}"));
            if !self.emulated {
                words.push("nohz=on".to_owned());
                words.push(format!("nohz_full={cpus}"));
            }
            words.push(format!("rcu_nocbs={cpus}"));
            // Timers of nohz_full CPUs would otherwise move to the housekeeping CPU and inherit its
            // delays.
            words.push("sysctl.kernel.timer_migration=0".to_owned());
            // Otherwise a pause between two runs is charged to the real-time thread that ran when
            // it began, and throttles its CPU for as long.
            words.push("sysctl.kernel.sched_rt_runtime_us=-1".to_owned());
            words.push(format!("irqaffinity={HOUSEKEEPING_INSIDE}"));
            words.push("skew_tick=1".to_owned());
            words.push("rcupdate.rcu_normal_after_boot=1".to_owned());
        }
        if self.emulated {
            // QEMU's emulation of SVM loses the shadow of `sti` over an exit (target/i386/tcg,
            // helper_vmrun: int_state is not read). An interrupt between `sti` and `hlt` may then
            // wake a task in a halted CPU, which runs only at the next interrupt. The tick bounds
            // that delay.
            words.push("nohz=off".to_owned());
        }
        // A guest that is paused between two runs, or whose virtual CPUs are blocked on purpose,
        // must not report a lock-up of its own.
        words.push("nowatchdog".to_owned());
        words.push("rcupdate.rcu_cpu_stall_suppress=1".to_owned());
        if self.accelerator == Accelerator::Tcg {
            // The emulated counter has a constant rate but does not report it.
            words.push("tsc=reliable".to_owned());
        }
        words.push(format!("-- agent --init --port {PORT}"));
        words.join(" ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn set(text: &str) -> CpuSet {
        text.parse().expect("CPUs")
    }

    fn request<'a>(cpus: &'a CpuSet, housekeeping: &'a CpuSet) -> GuestRequest<'a> {
        GuestRequest {
            name: "vm",
            accelerator: Accelerator::Kvm,
            board: Board::Microvm,
            memory: Backing {
                mebibytes: 256,
                huge_page: Some(2 << 20),
                node: Some(0),
                locked: true,
            },
            cpus,
            housekeeping,
            real_time_policy: true,
            emulated: false,
            kernel: "/boot/vmlinuz-6.1".into(),
            initramfs: "/run/guest/initramfs".into(),
        }
    }

    pub(crate) fn example(accelerator: Accelerator, board: Board) -> Description {
        Description::real_time(GuestRequest {
            accelerator,
            board,
            ..request(&set("2-3"), &set("0-1"))
        })
    }

    #[test]
    fn gives_each_real_time_cpu_its_own_host_cpu() {
        let guest = example(Accelerator::Kvm, Board::Microvm);
        let pinned: Vec<Option<u32>> = guest
            .pinned()
            .into_iter()
            .map(|cpu| cpu.map(|cpu| cpu.0))
            .collect();
        assert_eq!(pinned, [Some(0), Some(2), Some(3)]);
        assert_eq!(guest.real_time_inside(), set("1-2"));
        assert_eq!(guest.cpus[0].policy, SchedulingPolicy::Other);
        assert_eq!(guest.cpus[1].policy, SchedulingPolicy::Fifo(1));
        assert_eq!(guest.emulator, set("1"));
        assert_eq!(guest.housekeeping, set("0-1"));
    }

    #[test]
    fn marks_a_guest_that_shares_cpus_as_not_dedicated() {
        let mut guest = example(Accelerator::Kvm, Board::Microvm);
        assert!(guest.is_dedicated());
        let one = set("0");
        guest = Description::real_time(request(&set("2-3"), &one));
        assert_eq!(guest.emulator, one, "there is no other");
        assert!(!guest.is_dedicated());
        guest.emulator = set("1");
        assert!(guest.is_dedicated());
        guest.cpus[1].cpus = set("3");
        assert!(!guest.is_dedicated(), "two share CPU 3");
    }

    #[test]
    fn floats_a_noisy_neighbour_without_isolation() {
        let guest = Description::noisy_neighbour(request(&set("2-3"), &set("0-1")), 2);
        assert_eq!(guest.emulator, set("0-1"));
        assert_eq!(guest.pinned(), [None, None]);
        assert!(guest.real_time_inside().is_empty());
        assert!(!guest.kernel_command_line().contains("isolcpus"));
    }

    #[test]
    fn keeps_the_tick_on_an_emulated_machine() {
        let mut guest = example(Accelerator::Kvm, Board::Microvm);
        guest.emulated = true;
        let line = guest.kernel_command_line();
        assert!(
            line.contains(" nohz=off ") && !line.contains("nohz_full"),
            "{line}"
        );
    }

    #[test]
    fn isolates_real_time_cpus_on_the_command_line() {
        insta::assert_snapshot!(
            example(Accelerator::Kvm, Board::Microvm).kernel_command_line(),
            @"console=ttyS0 quiet panic=-1 isolcpus=managed_irq,domain,1-2 nohz=on nohz_full=1-2 rcu_nocbs=1-2 sysctl.kernel.timer_migration=0 sysctl.kernel.sched_rt_runtime_us=-1 irqaffinity=0 skew_tick=1 rcupdate.rcu_normal_after_boot=1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1 -- agent --init --port rampart.agent"
        );
    }
}
