// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judgements of a machine that hosts cells, from the description of its device tree.
//!
//! What prevents one request for a cell (a device that is in use, a name that exists) is not a rule
//! but a refusal of that request, in `rampart-cells`.

mod shared_resources;

use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, MEMORY_ALIGNMENT, PAGE_BYTES};
use rampart_model::device_tree::Description;
use rampart_model::{AddressSpan, Finding, Severity};

use crate::{Rule, RuleBook};

pub use crate::plan::CELL_MACHINE;

/// Minimum memory for a suggestion: the hypervisor and one small cell.
const MINIMUM_BYTES: u64 = 64 << 20;
const MEMORY_EXPECTED: &str = "2 MiB or more, in whole 2 MiB";

/// Defaults of the rules of machines that host cells.
const CELL_RULE: Rule = Rule {
    id: "",
    book: RuleBook::Cells,
    severity: Severity::Error,
    title: "",
    reason: "",
    source: "Rampart: docs/hypervisor.md",
    waivable: false,
};

/// The interrupt controller.
pub const CELL_INTERRUPT_CONTROLLER: Rule = Rule {
    id: "cell-interrupt-controller",
    title: "The machine has a GICv2, or a GICv3 with one region of redistributors",
    reason: "Cells have their interrupts without exits only with these; the hypervisor supports one region of redistributors.",
    ..CELL_RULE
};

const TRANSLATION_SERVICE: Rule = Rule {
    id: "cell-its",
    severity: Severity::Warning,
    title: "The machine has no ITS, or its root is trusted",
    reason: "The ITS writes to memory that its commands name, without a check by stage 2.",
    ..CELL_RULE
};

const CPU_COUNT: Rule = Rule {
    id: "cell-cpu-count",
    title: "The number of CPUs allows a cell",
    reason: "The root keeps one CPU, and the tables of the hypervisor have a fixed size.",
    ..CELL_RULE
};

const CPU_START: Rule = Rule {
    id: "cell-cpu-start",
    title: "PSCI starts every CPU",
    reason: "Linux releases a CPU and the hypervisor starts it again with PSCI.",
    source: "Arm: Power State Coordination Interface (DEN0022)",
    ..CELL_RULE
};

/// Memory for the hypervisor and its cells.
pub const CELL_MEMORY: Rule = Rule {
    id: "cell-memory",
    title: "Enough memory is reserved from Linux for the hypervisor and its cells",
    reason: "Linux cannot release memory that it uses.",
    ..CELL_RULE
};

/// The driver of the hypervisor.
pub const CELL_DRIVER: Rule = Rule {
    id: "cell-driver",
    title: "The driver that launches the hypervisor is loaded or installed",
    reason: "Only code of the kernel can launch the hypervisor.",
    ..CELL_RULE
};

/// The rules of machines that host cells, in the order of their checks.
pub const CELL_RULES: [Rule; 10] = [
    CELL_DRIVER,
    CELL_INTERRUPT_CONTROLLER,
    TRANSLATION_SERVICE,
    CPU_COUNT,
    CPU_START,
    CELL_MEMORY,
    shared_resources::OVERLAP,
    shared_resources::PAGE,
    shared_resources::INTERRUPT,
    shared_resources::IN_MEMORY,
];

/// Returns what prevents cells on a machine, and the resources that its devices share.
#[must_use]
pub fn check_description(description: &Description) -> Vec<Finding> {
    let mut found = Vec::new();
    controller(description, &mut found);
    cpus(description, &mut found);
    memory(description, &mut found);
    shared_resources::check(description, &mut found);
    found
}

fn controller(description: &Description, found: &mut Vec<Finding>) {
    let Some(controller) = &description.interrupt_controller else {
        found.push(
            CELL_INTERRUPT_CONTROLLER
                .finding("interrupt controller", "the device tree has no GIC")
                .values("none", "a node compatible with arm,gic-v3 or arm,gic-400")
                .fix("use a machine with a GICv3 or a GICv2; cells need its CPU interface"),
        );
        return;
    };
    let location = format!("interrupt controller {}", controller.path);
    if controller.version == 2 {
        let in_pages = |span: AddressSpan| span.start.is_multiple_of(PAGE_BYTES);
        let interface = controller.cpu_interface.filter(|span| in_pages(*span));
        if interface.is_none() || !in_pages(controller.distributor) {
            let found_span = |span: AddressSpan| format!("GICC at {:#x}", span.start);
            found.push(
                CELL_INTERRUPT_CONTROLLER
                    .finding(location, "its CPU interface is not in pages of its own")
                    .values(
                        controller
                            .cpu_interface
                            .map_or_else(|| "no GICC".to_owned(), found_span),
                        "GICD and GICC in reg, in pages of 4 KiB",
                    )
                    .fix("use another machine, or correct the reg of its node in the device tree"),
            );
        }
        return;
    }
    if controller.redistributors.len() != 1 {
        found.push(
            CELL_INTERRUPT_CONTROLLER.finding(
                location.clone(),
                "the hypervisor supports one region of redistributors",
            )
            .values(
                format!("{} regions", controller.redistributors.len()),
                "1 region",
            )
            .fix("remove the CPUs of the other regions from the device tree (maxcpus= on the kernel command line is not enough)"),
        );
    }
    if !controller.translation_services.is_empty() {
        found.push(
            TRANSLATION_SERVICE.finding(
                location,
                "its ITS can write any memory and stays with the root",
            )
            .values(
                format!("{} ITS", controller.translation_services.len()),
                "no ITS, or a trusted root",
            )
            .fix("disable the ITS in the firmware's device tree if no PCI device needs it (QEMU: its=off)"),
        );
    }
}

fn cpus(description: &Description, found: &mut Vec<Finding>) {
    let count = description.cpus.len();
    if !(2..=MAXIMUM_CPUS).contains(&count) {
        found.push(
            CPU_COUNT
                .finding("CPUs", "the number of CPUs does not allow a cell")
                .values(format!("{count}"), format!("2 to {MAXIMUM_CPUS}"))
                .fix("use a machine with that many CPUs"),
        );
    }
    let others: Vec<&str> = description
        .cpus
        .iter()
        .filter(|cpu| cpu.enable_method.as_deref() != Some("psci"))
        .map(|cpu| cpu.path.as_str())
        .collect();
    if !others.is_empty() {
        found.push(
            CPU_START
                .finding(
                    others.join(", "),
                    "only CPUs that PSCI turns on and off can leave Linux",
                )
                .values("another enable-method", "enable-method = \"psci\"")
                .fix("use a firmware with PSCI (Trusted Firmware-A), and its device tree"),
        );
    }
}

fn memory(description: &Description, found: &mut Vec<Finding>) {
    let largest = description.kept.iter().map(usable).max().unwrap_or(0);
    if largest >= MEMORY_ALIGNMENT {
        return;
    }
    let total: u64 = description.memory.iter().map(|span| span.bytes).sum();
    let keep = (total / 4).max(MINIMUM_BYTES).min(total / 2) & !(MEMORY_ALIGNMENT - 1);
    let node = description.memory.last().map_or(0, |last| {
        last.end().saturating_sub(keep) & !(MEMORY_ALIGNMENT - 1)
    });
    let fix = format!(
        "boot Linux with mem={}M, or give the device tree a node /reserved-memory/rampart@{node:x} with reg = <{:#x} {:#x} {:#x} {:#x}> and no-map",
        total.saturating_sub(keep) >> 20,
        node >> 32,
        node & 0xffff_ffff,
        keep >> 32,
        keep & 0xffff_ffff,
    );
    let finding = match &description.linux_memory {
        Some(_) => CELL_MEMORY
            .finding(
                "memory",
                "no memory is reserved from Linux for the hypervisor and its cells",
            )
            .values(format!("{largest} bytes"), MEMORY_EXPECTED),
        None => CELL_MEMORY
            .undecided(
                "memory",
                "the memory of Linux is unknown, and none is reserved for cells",
            )
            .values("cannot read /proc/iomem", MEMORY_EXPECTED),
    };
    found.push(finding.fix(match (total, &description.linux_memory) {
        // The boot loader adds the memory.
        (0, _) => {
            "describe the running machine: the device tree in a file has no memory".to_owned()
        }
        (_, Some(_)) => fix,
        (_, None) => format!("run as root or with --iomem FILE; otherwise {fix}"),
    }));
}

/// Returns the size of the whole blocks in bytes.
fn usable(span: &AddressSpan) -> u64 {
    let start = span.start.next_multiple_of(MEMORY_ALIGNMENT);
    span.end().saturating_sub(start) & !(MEMORY_ALIGNMENT - 1)
}
