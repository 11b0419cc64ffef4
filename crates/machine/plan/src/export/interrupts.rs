// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts: no tool places them by domain, so that the commands are told.

use super::Subject;

/// The commands that send a domain's interrupts to its CPUs, by the numbers that they have now.
pub(super) fn commands(subject: &Subject<'_>, domain: &str) -> Vec<String> {
    subject
        .resolved
        .interrupts
        .iter()
        .filter(|interrupt| interrupt.owner.as_deref() == Some(domain))
        .map(|interrupt| {
            format!(
                "echo {} > /proc/irq/{}/smp_affinity_list",
                interrupt.cpus, interrupt.number
            )
        })
        .collect()
}
