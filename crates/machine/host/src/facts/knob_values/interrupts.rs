// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads interrupts that drivers have requested (Documentation/core-api/irq/irq-affinity.rst,
//! Documentation/ABI/testing/sysfs-kernel-irq).

use rampart_rules::InterruptReading;

use crate::MachineRoot;

/// Returns every interrupt with an action, by number.
pub(super) fn read(root: &MachineRoot) -> Vec<InterruptReading> {
    root.numbered("proc/irq", "")
        .into_iter()
        .filter_map(|number| interrupt(root, number))
        .collect()
}

fn interrupt(root: &MachineRoot, number: u32) -> Option<InterruptReading> {
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
    let chip = chip_name(root, number);
    let per_cpu = is_of_each_cpu(root, number, &name);
    Some(InterruptReading {
        number,
        affinity: root.value(&format!("{proc}/smp_affinity_list"))?,
        effective: root
            .line(&format!("{proc}/effective_affinity_list"))
            .and_then(|text| text.parse().ok()),
        managed: is_managed(root, number),
        per_cpu,
        chip,
        name,
    })
}

/// Returns whether the kernel manages the affinity of an interrupt, which cannot be changed then. Only
/// kernels with CONFIG_GENERIC_IRQ_DEBUGFS show it.
pub(crate) fn is_managed(root: &MachineRoot, number: u32) -> Option<bool> {
    root.text(&format!("sys/kernel/debug/irq/irqs/{number}"))
        .map(|text| text.contains("IRQD_AFFINITY_MANAGED"))
}

fn chip_name(root: &MachineRoot, number: u32) -> String {
    root.line(&format!("sys/kernel/irq/{number}/chip_name"))
        .unwrap_or_default()
}

/// Returns whether each CPU has this interrupt for itself, so that none can be moved: the private
/// ones of a GIC, 0 to 31 and 1056 to 1119 (Arm IHI 0069, 2.2.1), and the timer of x86 machines.
pub(crate) fn is_of_each_cpu(root: &MachineRoot, number: u32, action: &str) -> bool {
    let hardware = || root.value::<u32>(&format!("sys/kernel/irq/{number}/hwirq"));
    let private = |number: u32| number < 32 || (1056..1120).contains(&number);
    (chip_name(root, number).starts_with("GIC") && hardware().is_some_and(private))
        || (number == 0 && action == "timer")
}
