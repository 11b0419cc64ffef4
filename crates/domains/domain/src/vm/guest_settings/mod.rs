// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of a guest and of its host, as the rules of guests judge them.
//!
//! Each value is read from the kernel, from the guest, or from QEMU's command line. Rampart sets
//! the guest's own settings and does not change those of the machine.

mod host_facts;
#[cfg(test)]
mod tests;

use rampart_agent::AgentHello;
use rampart_model::{GuestKnob, GuestThread};
use rampart_rules::guest::{GuestMemoryPages, GuestSetup, GuestSubject, HostFacts, guest_settings};

pub(super) use self::host_facts::read_host_facts;
use super::KERNEL_VARIABLE;
use super::description::Description;

/// A running guest and its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// The host when the guest was started.
    pub(super) facts: &'a HostFacts,
    pub(super) guest: &'a Description,
    /// The command line that the program runs with.
    pub(super) command: &'a [String],
    /// Its threads, as the kernel reports them now.
    pub(super) threads: &'a [GuestThread],
    /// Bytes of the program that are locked in memory.
    pub(super) locked: u64,
    pub(super) hello: &'a AgentHello,
    /// The count of firmware interrupts now; `None` if it is not readable.
    pub(super) firmware_interrupts: Option<u64>,
}

/// Returns every setting that real-time guests need, with its value here.
pub(super) fn all(known: &Known<'_>) -> Vec<GuestKnob> {
    let guest = known.guest;
    guest_settings(&GuestSubject {
        facts: known.facts,
        guest: GuestSetup {
            accelerator: guest.accelerator,
            memory: GuestMemoryPages {
                mebibytes: guest.memory.mebibytes,
                huge_page: guest.memory.huge_page,
            },
            cpus: &guest.cpus,
            emulator: &guest.emulator,
            housekeeping: &guest.housekeeping,
            real_time: guest.real_time,
            emulated: guest.emulated,
            kernel_variable: KERNEL_VARIABLE,
        },
        command: known.command,
        threads: known.threads,
        locked: known.locked,
        kernel_version: &known.hello.kernel_version,
        kernel_command_line: &known.hello.kernel_command_line,
        firmware_interrupts: known.firmware_interrupts,
    })
}
