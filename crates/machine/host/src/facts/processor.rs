// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the processor from `/proc/cpuinfo`.

use std::collections::BTreeMap;

use crate::MachineRoot;

/// Names of processor cores: implementer and part number of MIDR_EL1, as in the kernel's
/// arch/arm64/include/asm/cputype.h.
const CORES: [(u32, u32, &str); 24] = [
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd04, "Cortex-A35"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd42, "Cortex-A78AE"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4d, "Cortex-A715"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x41, 0xd80, "Cortex-A520"),
    (0x41, 0xd81, "Cortex-A720"),
    (0x43, 0x0af, "ThunderX2"),
    (0x4e, 0x004, "Carmel"),
    (0xc0, 0xac3, "Ampere-1"),
];

/// Properties in `/proc/cpuinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Processor {
    /// Name; for arm64 the kinds of cores with their counts.
    pub(super) model: String,
    /// Revision of the microcode.
    pub(super) microcode: Option<String>,
    /// Whether it is an x86 processor.
    pub(super) is_x86: bool,
    /// Whether it reports a hypervisor below it (x86 only).
    pub(super) is_guest: bool,
    /// Whether it exists only as an emulation.
    pub(super) is_emulated: bool,
}

pub(super) fn read(root: &MachineRoot) -> Processor {
    let text = root.text("proc/cpuinfo").unwrap_or_default();
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(label, value)| (label.trim(), value.trim()))
        .collect();
    let first = |wanted: &str| {
        lines
            .iter()
            .find(|(label, value)| *label == wanted && !value.is_empty())
            .map(|(_, value)| (*value).to_owned())
    };
    let flags = first("flags").unwrap_or_default();
    let (cores, is_emulated) = arm_cores(&lines);
    Processor {
        model: first("model name")
            .filter(|_| cores.is_empty())
            .or_else(|| (!cores.is_empty()).then_some(cores))
            .or_else(|| first("Processor"))
            .unwrap_or_default(),
        microcode: first("microcode"),
        is_x86: first("vendor_id").is_some(),
        is_guest: flags.split(' ').any(|flag| flag == "hypervisor"),
        is_emulated,
    }
}

fn arm_cores(lines: &[(&str, &str)]) -> (String, bool) {
    let numbers = |wanted: &str| -> Vec<u32> {
        lines
            .iter()
            .filter(|(label, _)| *label == wanted)
            .filter_map(|(_, value)| u32::from_str_radix(value.trim_start_matches("0x"), 16).ok())
            .collect()
    };
    let implementers = numbers("CPU implementer");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (implementer, part) in implementers.iter().zip(numbers("CPU part")) {
        let name = CORES
            .iter()
            .find(|(maker, number, _)| (maker, *number) == (implementer, part))
            .map_or_else(
                || format!("implementer {implementer:#04x} part {part:#05x}"),
                |(.., name)| (*name).to_owned(),
            );
        *counts.entry(name).or_default() += 1;
    }
    let names: Vec<String> = counts
        .into_iter()
        .map(|(name, count)| format!("{count} × {name}"))
        .collect();
    (names.join(", "), implementers.contains(&0))
}
