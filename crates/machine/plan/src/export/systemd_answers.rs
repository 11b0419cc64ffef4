// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What systemd makes of each field of a plan.

use rampart_model::{DomainKind, DomainProgram};

use super::field::{DomainField, MachineField};
use super::gaps::Answer::{self, Apart, Lost, Said};
use super::systemd::Means;

const BY_APPLY: &str =
    "systemd does not support it; `rampart apply` sets it when rampart-apply.service starts";
const BY_UP: &str = "systemd does not support it; `rampart up`, which the unit starts, sets it";
const LEFT_TO_UP: &str = "left to `rampart up`, which the unit starts";
const JUDGEMENT: &str = "only Rampart judges by it";

/// What is lost without Rampart.
fn without(means: Means<'_>, by: &'static str, what: &'static str, fix: &'static str) -> Answer {
    match means {
        Means::Rampart(_) => Apart(by),
        Means::SystemdAlone => Lost(what, fix),
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
pub(super) fn of_machine(means: Means<'_>, field: MachineField) -> Answer {
    match field {
        // The slices of ordinary work have neither real-time CPUs nor their idle siblings.
        MachineField::Housekeeping | MachineField::Siblings => Said,
        MachineField::SiblingsOffline => without(
            means,
            BY_APPLY,
            "systemd takes no CPU offline",
            "echo off > /sys/devices/system/cpu/smt/control, or nosmt on the kernel command line",
        ),
        MachineField::Fingerprint => without(
            means,
            BY_APPLY,
            "systemd does not compare the topology before it starts the units",
            "rampart plan check, after each change of the firmware's settings",
        ),
        MachineField::Enforcement | MachineField::Waivers => Apart(JUDGEMENT),
        MachineField::Settings => without(
            means,
            BY_APPLY,
            "systemd does not set the machine's settings for real-time work",
            "rampart export tuned",
        ),
        MachineField::ExpectedSettings => without(
            means,
            BY_APPLY,
            "systemd does not verify settings",
            "rampart check",
        ),
        MachineField::BootArguments | MachineField::Reboot => without(
            means,
            "systemd does not support it; `rampart apply --boot` sets it",
            "systemd does not change the kernel command line",
            "rampart export tuned, or the boot loader's own configuration",
        ),
        MachineField::OtherInterrupts => without(
            means,
            BY_APPLY,
            "systemd does not place interrupts",
            "irqaffinity= on the kernel command line, and rampart export tuned",
        ),
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
pub(super) fn of_domain(means: Means<'_>, kind: DomainKind, field: DomainField) -> Answer {
    let container = kind.program() == DomainProgram::Container;
    let guest = kind.program() == DomainProgram::Guest;
    let elsewhere = |by: &'static str| match means {
        Means::Rampart(_) => Apart(LEFT_TO_UP),
        Means::SystemdAlone => Apart(by),
    };
    let of_guest = || elsewhere("in the guest's definition: rampart export libvirt");
    match field {
        DomainField::Isolation => without(
            means,
            BY_APPLY,
            "slices keep systemd's units off the CPUs; the kernel still balances load \
             to them and runs its own work there, and there is no isolated partition",
            "isolcpus=managed_irq,domain,CPUS on the kernel command line, or units under Rampart",
        ),
        DomainField::Run if container => elsewhere("on the engine's command line"),
        DomainField::Restart if !guest => Said,
        DomainField::Cpus
        | DomainField::Run
        | DomainField::Engine
        | DomainField::Image
        | DomainField::RootFileSystem
            if !guest =>
        {
            match means {
                Means::Rampart(_) => Apart(LEFT_TO_UP),
                Means::SystemdAlone => Said,
            }
        }
        DomainField::Restart => elsewhere("libvirt restarts the guest: rampart export libvirt"),
        DomainField::Priority if !container && !guest => match means {
            Means::Rampart(_) => Apart(LEFT_TO_UP),
            Means::SystemdAlone => Said,
        },
        DomainField::Priority if container => without(
            means,
            BY_UP,
            "the engine starts the program without the policy",
            "set it in the program: the limit and the capability are set",
        ),
        DomainField::Priority => of_guest(),
        DomainField::Reservation => without(
            means,
            BY_UP,
            "systemd does not support SCHED_DEADLINE",
            "chrt --deadline in front of the program",
        ),
        DomainField::Deadline => Apart(JUDGEMENT),
        DomainField::VirtualCpus
        | DomainField::Memory
        | DomainField::HugePages
        | DomainField::MemoryNode
        | DomainField::Kernel
        | DomainField::Initramfs
        | DomainField::Disk
        | DomainField::Emulator
        | DomainField::IdleKeepsCpu
        | DomainField::DedicatedHint
        | DomainField::Devices => of_guest(),
        DomainField::CellImage | DomainField::CellOptions => {
            Lost("systemd does not support cells", "rampart up")
        }
        DomainField::Service if guest => of_guest(),
        DomainField::Service => without(
            means,
            BY_UP,
            "systemd does not support service threads outside the domain",
            "CPUAffinity= in the units of those services",
        ),
        DomainField::CacheWays
        | DomainField::CacheBytes
        | DomainField::CacheExclusive
        | DomainField::Bandwidth
            if guest =>
        {
            of_guest()
        }
        DomainField::CacheWays
        | DomainField::CacheBytes
        | DomainField::CacheExclusive
        | DomainField::Bandwidth => without(
            means,
            BY_APPLY,
            "systemd does not divide caches and memory bandwidth",
            "a group in /sys/fs/resctrl",
        ),
        DomainField::Threads => without(
            means,
            BY_UP,
            "systemd gives all threads of a unit the same CPUs and policy",
            "place the threads in the program",
        ),
        DomainField::Interrupts => without(
            means,
            BY_APPLY,
            "systemd does not place interrupts",
            "run the commands that follow each time that the driver requests its interrupts",
        ),
        // Fields of other kinds.
        DomainField::Cpus
        | DomainField::Run
        | DomainField::Engine
        | DomainField::Image
        | DomainField::RootFileSystem => Said,
    }
}
