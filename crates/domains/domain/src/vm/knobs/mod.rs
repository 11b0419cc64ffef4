// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that real-time guests are known to need, with what it is on this machine and in this
//! guest. The list and its sources: the profiles `realtime-virtual-host` and `-guest` of TuneD,
//! libvirt's document `kvm-realtime`, Red Hat's guide to real-time guests, Linux's
//! `kernel-parameters.txt` and `virt/kvm/api.rst`.
//!
//! What a row says was read: from the kernel, from the guest, or from the command line that QEMU
//! runs with. Rampart sets what is the guest's own. The machine's settings are its owner's: they
//! are told here, with what would fix them.

mod facts;
mod kernel_command_line;
mod machine;
mod program;
mod table;
#[cfg(test)]
mod tests;

use rampart_agent::AgentHello;
use rampart_model::{CpuSet, Finding, GuestKnob, GuestThread, Severity};

pub(super) use self::facts::HostFacts;
use super::description::Description;

/// Who sets what a fix for the machine names.
const BY_OWNER: &str = "Rampart leaves the machine's own settings to its owner";

/// All that is known of a guest and its machine.
pub(super) struct Known<'a> {
    pub(super) facts: &'a HostFacts,
    pub(super) guest: &'a Description,
    /// The command line that the program runs with.
    pub(super) command: &'a [String],
    /// Its threads, as the kernel has them now.
    pub(super) threads: &'a [GuestThread],
    /// Bytes of the program that are locked in memory.
    pub(super) locked: u64,
    pub(super) hello: &'a AgentHello,
    /// The count of firmware interrupts now, where it is to be read.
    pub(super) firmware_interrupts: Option<u64>,
}

impl Known<'_> {
    /// The host's CPUs that belong to real-time virtual ones.
    fn real_time_cpus(&self) -> CpuSet {
        self.guest.pinned().into_iter().skip(1).flatten().collect()
    }
}

/// A setting, and what it means where it is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knob {
    pub(super) told: GuestKnob,
    severity: Severity,
    fix: String,
}

impl Knob {
    fn new(
        name: impl Into<String>,
        wanted: impl Into<String>,
        present: impl Into<String>,
        satisfied: bool,
        reason: &str,
    ) -> Self {
        Self {
            told: GuestKnob {
                name: name.into(),
                expected: wanted.into(),
                found: present.into(),
                satisfied,
                applied: false,
                reason: reason.to_owned(),
            },
            severity: Severity::Note,
            fix: String::new(),
        }
    }

    /// It is Rampart that set it for this guest.
    fn applied(mut self, applied: bool) -> Self {
        self.told.applied = applied;
        self
    }

    /// How much it matters if it is not as it should be.
    fn weighs(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// What fixes it.
    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// What fixes it on the machine, which is not for Rampart to set.
    fn fix_by_owner(self, fix: impl Into<String>) -> Self {
        let fix = fix.into();
        if fix.is_empty() {
            return self;
        }
        self.fix(format!("{fix}; {BY_OWNER}"))
    }

    /// A knob that is not as it should be, as a finding.
    pub(super) fn finding(&self) -> Option<Finding> {
        let told = &self.told;
        if told.satisfied {
            return None;
        }
        let finding = Finding::new(self.severity, told.name.clone(), told.reason.clone())
            .values(told.found.clone(), told.expected.clone());
        Some(if self.fix.is_empty() {
            finding
        } else {
            finding.fix(self.fix.clone())
        })
    }
}

/// Every knob. Pure.
pub(super) fn all(known: &Known<'_>) -> Vec<Knob> {
    let mut knobs = Vec::new();
    if known.guest.real_time {
        knobs.extend(machine::power(known));
        knobs.extend(kernel_command_line::of_host(known));
        knobs.extend(machine::files(known));
        knobs.extend(machine::kernel_threads(known));
        knobs.extend(machine::caches(known));
        knobs.extend(program::memory(known));
    }
    knobs.extend(program::command(known));
    knobs.extend(program::threads(known));
    if known.guest.real_time {
        knobs.extend(kernel_command_line::of_guest(known));
    }
    knobs
}
