// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats a description as text.

use std::fmt::Write as _;

use rampart_model::ByteSize;

use super::{Description, Device, Interrupt, InterruptKind, RangeUse, Span};

/// Returns the description as text. Leaves out disabled devices unless `all` is set.
#[must_use]
pub fn text(description: &Description, all: bool) -> String {
    let mut text = String::new();
    let model = description.model.as_deref().unwrap_or("unknown model");
    let _ = writeln!(text, "{model} ({})", description.compatible.join(", "));
    cpus(&mut text, description);
    memory(&mut text, description);
    controller(&mut text, description);
    let shown = |device: &&Device| all || device.enabled;
    let devices: Vec<&Device> = description.devices.iter().filter(shown).collect();
    let hidden = description.devices.len() - devices.len();
    let _ = writeln!(text, "\nDevices");
    for device in devices {
        one(&mut text, device);
    }
    if hidden > 0 {
        let _ = writeln!(text, "  {hidden} more are disabled (--all shows them)");
    }
    let _ = writeln!(text, "\nFindings");
    if description.findings.is_empty() {
        let _ = writeln!(text, "  none");
    }
    for finding in &description.findings {
        let word = match finding.severity {
            rampart_model::Severity::Note => "note",
            rampart_model::Severity::Warning => "warning",
            rampart_model::Severity::Error => "error",
        };
        let _ = writeln!(text, "  {word:8} {finding}");
    }
    text
}

fn cpus(text: &mut String, description: &Description) {
    let _ = writeln!(text, "\nCPUs");
    for cpu in &description.cpus {
        let _ = writeln!(
            text,
            "  {:>3}  MPIDR {:#x}  {}  {}",
            cpu.number,
            cpu.mpidr,
            cpu.compatible.first().map_or("", String::as_str),
            cpu.enable_method.as_deref().unwrap_or("no enable-method"),
        );
    }
}

fn memory(text: &mut String, description: &Description) {
    let _ = writeln!(text, "\nMemory");
    let mut line = |what: &str, span: &Span, of: &str| {
        let size = ByteSize(span.bytes);
        let _ = writeln!(text, "  {what:14} {span}  {size}{of}");
    };
    for span in &description.memory {
        line("all", span, "");
    }
    for span in description.linux_memory.iter().flatten() {
        line("of Linux", span, "");
    }
    for reservation in &description.reserved {
        line(
            "reserved",
            &reservation.span,
            &format!("  {}", reservation.path),
        );
    }
    for span in &description.kept {
        line("kept for cells", span, "");
    }
}

fn controller(text: &mut String, description: &Description) {
    let _ = writeln!(text, "\nInterrupt controller");
    let Some(controller) = &description.interrupt_controller else {
        let _ = writeln!(text, "  unknown");
        return;
    };
    let _ = writeln!(text, "  GICv{}  {}", controller.version, controller.path);
    let _ = writeln!(text, "  distributor     {}", controller.distributor);
    for span in &controller.redistributors {
        let _ = writeln!(text, "  redistributors  {span}");
    }
    for span in &controller.translation_services {
        let _ = writeln!(text, "  ITS             {span}");
    }
}

fn one(text: &mut String, device: &Device) {
    let disabled = if device.enabled { "" } else { "  disabled" };
    let kind = device.compatible.first().map_or("", String::as_str);
    let driver = device
        .linux
        .as_ref()
        .and_then(|linux| linux.driver.as_ref());
    let driver = driver.map_or_else(String::new, |driver| format!("  (driver {driver})"));
    let _ = writeln!(text, "  {}  {kind}{driver}{disabled}", device.path);
    for range in &device.ranges {
        let purpose = match range.purpose {
            RangeUse::Registers => "registers",
            RangeUse::PciWindow => "PCI window",
        };
        let name = range.name.as_deref().unwrap_or("");
        let line = format!("      {purpose}  {}  {name}", range.span());
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if !device.interrupts.is_empty() {
        let all: Vec<String> = device.interrupts.iter().map(interrupt).collect();
        let _ = writeln!(text, "      interrupts {}", all.join(", "));
    }
    for reference in &device.references {
        let arguments: Vec<String> = reference.arguments.iter().map(u32::to_string).collect();
        let line = format!(
            "      {}  {} {}",
            reference.property,
            reference.path,
            arguments.join(" ")
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn interrupt(interrupt: &Interrupt) -> String {
    let number = interrupt.number;
    let edge = if interrupt.edge { " edge" } else { "" };
    let through = interrupt.controller.as_deref().unwrap_or("");
    match interrupt.kind {
        InterruptKind::Shared if through.is_empty() => {
            format!("{number} (SPI {}{edge})", number - 32)
        }
        InterruptKind::Shared => format!("{number} (SPI {}{edge} through {through})", number - 32),
        InterruptKind::Private => format!("{number} (PPI {})", number - 16),
        InterruptKind::Extended => format!("{number} (extended SPI)"),
        InterruptKind::Elsewhere => format!("{number} of {through}"),
    }
}
