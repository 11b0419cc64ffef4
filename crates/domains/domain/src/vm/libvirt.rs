// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes libvirt's XML for a description (libvirt document `formatdomain`). Pure.

use std::io;

use quick_xml::events::{BytesText, Event};
use rampart_model::Accelerator;
use rampart_plan::libvirt_elements::{
    XmlWriter as Output, empty, libvirt_document, memory_backing, memory_node, processor, text,
    text_with, virtual_cpu_policy,
};

use super::description::{Description, PORT};

/// Returns the document, with a comment wherever libvirt offers less than the description asks.
pub(super) fn document(guest: &Description) -> io::Result<String> {
    let memory = &guest.memory;
    let (kind, cpu): (_, &[(&str, &str)]) = match guest.accelerator {
        Accelerator::Kvm => (
            "kvm",
            &[("mode", "host-passthrough"), ("migratable", "off")],
        ),
        Accelerator::Tcg => ("qemu", &[("mode", "maximum")]),
    };
    libvirt_document(&[("type", kind)], |writer| {
        text(writer, "name", &guest.name)?;
        let size = memory.mebibytes.to_string();
        text_with(writer, "memory", &[("unit", "MiB")], &size)?;
        memory_backing(writer, memory.huge_page, memory.locked, guest.real_time)?;
        let housekeeping = guest.housekeeping.to_string();
        let placement = [("placement", "static"), ("cpuset", housekeeping.as_str())];
        text_with(writer, "vcpu", &placement, &guest.cpus.len().to_string())?;
        tuning(writer, guest)?;
        if let Some(node) = guest.memory.node {
            memory_node(writer, node)?;
        }
        boot(writer, guest)?;
        features(writer, guest)?;
        processor(writer, cpu, guest.cpus.len())?;
        clock(writer, guest)?;
        text(writer, "on_poweroff", "destroy")?;
        text(writer, "on_reboot", "destroy")?;
        text(writer, "on_crash", "destroy")?;
        devices(writer)
    })
}

fn tuning(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer
        .create_element("cputune")
        .write_inner_content(|writer| {
            for (number, cpu) in guest.cpus.iter().enumerate() {
                let (number, cpus) = (number.to_string(), cpu.cpus.to_string());
                empty(writer, "vcpupin", &[("vcpu", &number), ("cpuset", &cpus)])?;
            }
            let emulator = guest.emulator.to_string();
            empty(writer, "emulatorpin", &[("cpuset", &emulator)])?;
            for (number, cpu) in guest.cpus.iter().enumerate() {
                virtual_cpu_policy(writer, &number.to_string(), cpu.policy)?;
            }
            Ok(())
        })?;
    Ok(())
}

fn boot(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer.create_element("os").write_inner_content(|writer| {
        // libvirt does not support the board `microvm`.
        let board = [("arch", std::env::consts::ARCH), ("machine", "q35")];
        text_with(writer, "type", &board, "hvm")?;
        text(writer, "kernel", &guest.kernel.display().to_string())?;
        text(writer, "initrd", &guest.initramfs.display().to_string())?;
        text(writer, "cmdline", &guest.kernel_command_line())
    })?;
    Ok(())
}

fn features(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer
        .create_element("features")
        .write_inner_content(|writer| {
            empty(writer, "acpi", &[])?;
            empty(writer, "apic", &[])?;
            if guest.accelerator == Accelerator::Kvm {
                if guest.is_dedicated() {
                    writer.create_element("kvm").write_inner_content(|writer| {
                        empty(writer, "hint-dedicated", &[("state", "on")])
                    })?;
                } else {
                    comment(
                        writer,
                        "no hint-dedicated: the first virtual CPU shares its CPU with the emulator's threads",
                    )?;
                }
                empty(writer, "pmu", &[("state", "off")])?;
            }
            empty(writer, "vmport", &[("state", "off")])
        })?;
    Ok(())
}

fn comment(writer: &mut Output, words: &str) -> io::Result<()> {
    writer.write_event(Event::Comment(BytesText::new(&format!(" {words} "))))
}

fn clock(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer
        .create_element("clock")
        .with_attribute(("offset", "utc"))
        .write_inner_content(|writer| {
            empty(writer, "timer", &[("name", "hpet"), ("present", "no")])?;
            if guest.accelerator == Accelerator::Kvm {
                empty(writer, "timer", &[("name", "pit"), ("tickpolicy", "delay")])?;
            }
            Ok(())
        })?;
    Ok(())
}

fn devices(writer: &mut Output) -> io::Result<()> {
    writer
        .create_element("devices")
        .write_inner_content(|writer| {
            writer
                .create_element("serial")
                .with_attribute(("type", "pty"))
                .write_inner_content(|writer| empty(writer, "target", &[("port", "0")]))?;
            writer
                .create_element("channel")
                .with_attribute(("type", "unix"))
                .write_inner_content(|writer| {
                    empty(writer, "target", &[("type", "virtio"), ("name", PORT)])
                })?;
            // libvirt adds these by default; a real-time guest is better without them.
            empty(writer, "controller", &[("type", "usb"), ("model", "none")])?;
            empty(writer, "memballoon", &[("model", "none")])
        })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::description::Board;
    use super::super::description::tests::example;
    use super::*;

    #[test]
    fn describes_a_real_time_guest() {
        let guest = example(Accelerator::Kvm, Board::Q35);
        insta::assert_snapshot!(document(&guest).expect("a document"));
    }

    #[test]
    fn describes_an_emulated_guest_without_huge_pages() {
        let mut guest = example(Accelerator::Tcg, Board::Q35);
        guest.memory.huge_page = None;
        guest.memory.node = None;
        guest.memory.locked = false;
        insta::assert_snapshot!(document(&guest).expect("a document"));
    }

    #[test]
    fn escapes_names() {
        let mut guest = example(Accelerator::Kvm, Board::Q35);
        guest.name = "a<b>&\"".to_owned();
        let text = document(&guest).expect("a document");
        assert!(text.contains("a&lt;b&gt;&amp;"), "{text}");
    }
}
