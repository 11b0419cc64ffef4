// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers of systemd for the fields of a plan.

use rampart_model::{DomainKind, DomainProgram};

use super::answers::Answer::{self, NotConcerned, Supported, Unsupported};
use super::answers::{DomainAnswers, MachineAnswers};
use super::systemd::Means;

const BY_APPLY: &str =
    "systemd does not support it; `rampart apply` sets it when rampart-apply.service starts";
const BY_UP: &str = "systemd does not support it; `rampart up`, which the unit starts, sets it";
const LEFT_TO_UP: &str = "left to `rampart up`, which the unit starts";

/// Returns the answer for a field that Rampart sets, and systemd alone does not support.
fn without(means: Means<'_>, by: &'static str, what: &'static str, fix: &'static str) -> Answer {
    match means {
        Means::Rampart(_) => NotConcerned(by),
        Means::SystemdAlone => Unsupported(what, fix),
    }
}

pub(super) fn machine_answers(means: Means<'_>) -> MachineAnswers {
    let boot = without(
        means,
        "systemd does not support it; `rampart apply --boot` sets it",
        "systemd does not change the kernel command line",
        "rampart export tuned, or the boot loader's own configuration",
    );
    MachineAnswers {
        housekeeping: Supported,
        siblings_offline: without(
            means,
            BY_APPLY,
            "systemd takes no CPU offline",
            "echo off > /sys/devices/system/cpu/smt/control, or nosmt on the kernel command line",
        ),
        fingerprint: without(
            means,
            BY_APPLY,
            "systemd does not compare the topology before it starts the units",
            "rampart plan check, after each change of the firmware's settings",
        ),
        settings: without(
            means,
            BY_APPLY,
            "systemd does not set the machine's settings for real-time work",
            "rampart export tuned",
        ),
        expected_settings: without(
            means,
            BY_APPLY,
            "systemd does not verify settings",
            "rampart check",
        ),
        boot_arguments: boot,
        reboot: boot,
        other_interrupts: without(
            means,
            BY_APPLY,
            "systemd does not place interrupts",
            "irqaffinity= on the kernel command line, and rampart export tuned",
        ),
    }
}

pub(super) fn domain_answers(means: Means<'_>, kind: DomainKind) -> DomainAnswers {
    let container = kind.program() == DomainProgram::Container;
    let guest = kind.program() == DomainProgram::Guest;
    let by_up = |alone: Answer| match means {
        Means::Rampart(_) => NotConcerned(LEFT_TO_UP),
        Means::SystemdAlone => alone,
    };
    let of_guest = by_up(NotConcerned(
        "in the guest's definition: rampart export libvirt",
    ));
    // Guests do not have the fields of programs.
    let of_program = if guest { Supported } else { by_up(Supported) };
    DomainAnswers {
        isolation: without(
            means,
            BY_APPLY,
            "slices keep systemd's units off the CPUs; the kernel still balances load \
             to them and runs its own work there, and there is no isolated partition",
            "isolcpus=managed_irq,domain,CPUS on the kernel command line, or units under Rampart",
        ),
        cpus: of_program,
        run: if container {
            by_up(NotConcerned("on the engine's command line"))
        } else {
            of_program
        },
        restart: if guest {
            by_up(NotConcerned(
                "libvirt restarts the guest: rampart export libvirt",
            ))
        } else {
            Supported
        },
        engine: of_program,
        image: of_program,
        root_file_system: of_program,
        priority: if container {
            without(
                means,
                BY_UP,
                "the engine starts the program without the policy",
                "set it in the program: the limit and the capability are set",
            )
        } else if guest {
            of_guest
        } else {
            by_up(Supported)
        },
        reservation: without(
            means,
            BY_UP,
            "systemd does not support SCHED_DEADLINE",
            "chrt --deadline in front of the program",
        ),
        guest: of_guest,
        cell: Unsupported("systemd does not support cells", "rampart up"),
        service: if guest {
            of_guest
        } else {
            without(
                means,
                BY_UP,
                "systemd does not support service threads outside the domain",
                "CPUAffinity= in the units of those services",
            )
        },
        caches: if guest {
            of_guest
        } else {
            without(
                means,
                BY_APPLY,
                "systemd does not divide caches and memory bandwidth",
                "a group in /sys/fs/resctrl",
            )
        },
        threads: without(
            means,
            BY_UP,
            "systemd gives all threads of a unit the same CPUs and policy",
            "place the threads in the program",
        ),
        interrupts: without(
            means,
            BY_APPLY,
            "systemd does not place interrupts",
            "run the commands that follow each time that the driver requests its interrupts",
        ),
    }
}
