// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers of a tool: which fields of a plan its files contain.

use super::field::{DomainField, MachineField};

const ONLY_RAMPART: Answer = Answer::NotConcerned("only Rampart judges by it");

/// A tool's support for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The files contain it, or domains that are written cannot have it.
    Supported,
    /// It does not concern the tool; the reason.
    NotConcerned(&'static str),
    /// The tool does not support it; the reason, and an alternative.
    Unsupported(&'static str, &'static str),
}

/// A tool's answers for the machine, one for each group of fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineAnswers {
    pub(super) housekeeping: Answer,
    pub(super) fingerprint: Answer,
    pub(super) siblings_offline: Answer,
    pub(super) settings: Answer,
    pub(super) expected_settings: Answer,
    pub(super) boot_arguments: Answer,
    pub(super) reboot: Answer,
    pub(super) other_interrupts: Answer,
}

impl MachineAnswers {
    /// Returns the answers of a tool that does not change the machine.
    pub(super) const fn without(reason: &'static str, alternative: &'static str) -> Self {
        let unsupported = Answer::Unsupported(reason, alternative);
        Self {
            housekeeping: unsupported,
            fingerprint: ONLY_RAMPART,
            siblings_offline: unsupported,
            settings: unsupported,
            expected_settings: unsupported,
            boot_arguments: unsupported,
            reboot: unsupported,
            other_interrupts: unsupported,
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn of(&self, field: MachineField) -> Answer {
        match field {
            MachineField::Enforcement | MachineField::Waivers => ONLY_RAMPART,
            // Idle siblings are not among the housekeeping CPUs.
            MachineField::Housekeeping | MachineField::Siblings => self.housekeeping,
            MachineField::Fingerprint => self.fingerprint,
            MachineField::SiblingsOffline => self.siblings_offline,
            MachineField::Settings => self.settings,
            MachineField::ExpectedSettings => self.expected_settings,
            MachineField::BootArguments => self.boot_arguments,
            MachineField::Reboot => self.reboot,
            MachineField::Standby => Answer::Unsupported(
                "only Rampart has the hypervisor keep a kernel for the root",
                "rampart up, or rampart cell standby",
            ),
            MachineField::OtherInterrupts => self.other_interrupts,
        }
    }
}

/// A tool's answers for a domain, one for each group of fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct DomainAnswers {
    pub(super) isolation: Answer,
    pub(super) cpus: Answer,
    pub(super) priority: Answer,
    pub(super) reservation: Answer,
    pub(super) run: Answer,
    pub(super) restart: Answer,
    pub(super) engine: Answer,
    pub(super) image: Answer,
    pub(super) root_file_system: Answer,
    /// Fields of guests alone.
    pub(super) guest: Answer,
    /// Fields of cells alone.
    pub(super) cell: Answer,
    pub(super) service: Answer,
    pub(super) caches: Answer,
    pub(super) threads: Answer,
    pub(super) interrupts: Answer,
}

impl DomainAnswers {
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn of(&self, field: DomainField) -> Answer {
        match field {
            DomainField::Isolation => self.isolation,
            DomainField::Cpus => self.cpus,
            DomainField::Priority => self.priority,
            DomainField::Reservation => self.reservation,
            DomainField::Deadline => Answer::NotConcerned("only rampart evaluate judges by it"),
            DomainField::Run => self.run,
            DomainField::Restart => self.restart,
            DomainField::Engine => self.engine,
            DomainField::Image => self.image,
            DomainField::RootFileSystem => self.root_file_system,
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
            | DomainField::Devices => self.guest,
            DomainField::CellImage | DomainField::CellOptions => self.cell,
            // Rampart alone starts domains that have one.
            DomainField::Owner => Answer::Supported,
            DomainField::Service => self.service,
            DomainField::CacheWays
            | DomainField::CacheBytes
            | DomainField::CacheExclusive
            | DomainField::Bandwidth => self.caches,
            DomainField::Threads => self.threads,
            DomainField::Interrupts => self.interrupts,
        }
    }
}
