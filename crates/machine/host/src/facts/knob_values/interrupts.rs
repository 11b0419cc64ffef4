// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads interrupts that drivers have requested (Documentation/core-api/irq/irq-affinity.rst,
//! Documentation/ABI/testing/sysfs-kernel-irq).

use rampart_rules::Interrupt;

use crate::MachineRoot;

/// Returns every interrupt with an action, by number.
pub(super) fn read(root: &MachineRoot) -> Vec<Interrupt> {
    root.numbered("proc/irq", "")
        .into_iter()
        .filter_map(|number| interrupt(root, number))
        .collect()
}

fn interrupt(root: &MachineRoot, number: u32) -> Option<Interrupt> {
    let (proc, sys) = (
        format!("proc/irq/{number}"),
        format!("sys/kernel/irq/{number}"),
    );
    // Each action also has a directory in /proc, unless its name is taken.
    let name = root.line(&format!("{sys}/actions")).or_else(|| {
        root.names(&proc)
            .into_iter()
            .find(|name| root.path(&format!("{proc}/{name}")).is_dir())
    })?;
    let chip = root.line(&format!("{sys}/chip_name")).unwrap_or_default();
    let hardware: Option<u32> = root.value(&format!("{sys}/hwirq"));
    // The first 32 of a GIC are per CPU (Arm IHI 0069), and so is the timer of x86 machines.
    let per_cpu = (chip.starts_with("GIC") && hardware.is_some_and(|number| number < 32))
        || (number == 0 && name == "timer");
    Some(Interrupt {
        number,
        affinity: root.value(&format!("{proc}/smp_affinity_list"))?,
        effective: root
            .line(&format!("{proc}/effective_affinity_list"))
            .and_then(|text| text.parse().ok()),
        // Only kernels with CONFIG_GENERIC_IRQ_DEBUGFS have this file.
        managed: root
            .text(&format!("sys/kernel/debug/irq/irqs/{number}"))
            .map(|text| text.contains("IRQD_AFFINITY_MANAGED")),
        per_cpu,
        chip,
        name,
    })
}
