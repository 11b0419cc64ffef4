// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that place the interrupts of a domain; no tool does so.

use super::ExportSubject;

/// Returns the commands that route a domain's interrupts to its CPUs, with their present numbers.
pub(super) fn commands(subject: &ExportSubject<'_>, domain: &str) -> Vec<String> {
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
