// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libvirt's XML for a description (libvirt document `formatdomain`). Pure.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesText, Event};
use rampart_model::{Accelerator, SchedulingPolicy};

use super::description::{Description, PORT};

/// The document. Where libvirt gives less than the description asks, a comment in it says so.
pub(super) fn document(guest: &Description) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let kind = match guest.accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "qemu",
    };
    writer
        .create_element("domain")
        .with_attribute(("type", kind))
        .write_inner_content(|writer| {
            text(writer, "name", &guest.name)?;
            writer
                .create_element("memory")
                .with_attribute(("unit", "MiB"))
                .write_text_content(BytesText::new(&guest.memory.mebibytes.to_string()))?;
            memory(writer, guest)?;
            writer
                .create_element("vcpu")
                .with_attribute(("placement", "static"))
                .with_attribute(("cpuset", guest.housekeeping.to_string().as_str()))
                .write_text_content(BytesText::new(&guest.cpus.len().to_string()))?;
            tuning(writer, guest)?;
            if let Some(node) = guest.memory.node {
                writer
                    .create_element("numatune")
                    .write_inner_content(|writer| {
                        writer
                            .create_element("memory")
                            .with_attribute(("mode", "strict"))
                            .with_attribute(("nodeset", node.to_string().as_str()))
                            .write_empty()?;
                        Ok(())
                    })?;
            }
            boot(writer, guest)?;
            features(writer, guest)?;
            processor(writer, guest)?;
            clock(writer, guest)?;
            text(writer, "on_poweroff", "destroy")?;
            text(writer, "on_reboot", "destroy")?;
            text(writer, "on_crash", "destroy")?;
            devices(writer)
        })?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(io::Error::other)
}

type Output = Writer<Vec<u8>>;

fn text(writer: &mut Output, name: &str, value: &str) -> io::Result<()> {
    writer
        .create_element(name)
        .write_text_content(BytesText::new(value))?;
    Ok(())
}

fn empty(writer: &mut Output, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    writer
        .create_element(name)
        .with_attributes(attributes.iter().copied())
        .write_empty()?;
    Ok(())
}

fn memory(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer
        .create_element("memoryBacking")
        .write_inner_content(|writer| {
            if let Some(bytes) = guest.memory.huge_page {
                writer
                    .create_element("hugepages")
                    .write_inner_content(|writer| {
                        let kibibytes = (bytes / 1024).to_string();
                        empty(writer, "page", &[("size", &kibibytes), ("unit", "KiB")])
                    })?;
            }
            empty(writer, "nosharepages", &[])?;
            if guest.memory.locked {
                empty(writer, "locked", &[])?;
            }
            if guest.real_time {
                empty(writer, "allocation", &[("mode", "immediate")])?;
            }
            Ok(())
        })?;
    Ok(())
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
                let number = number.to_string();
                let (scheduler, priority) = match cpu.policy {
                    SchedulingPolicy::Fifo(priority) => ("fifo", priority.to_string()),
                    SchedulingPolicy::RoundRobin(priority) => ("rr", priority.to_string()),
                    SchedulingPolicy::Other | SchedulingPolicy::Deadline { .. } => continue,
                };
                let attributes = [
                    ("vcpus", number.as_str()),
                    ("scheduler", scheduler),
                    ("priority", &priority),
                ];
                empty(writer, "vcpusched", &attributes)?;
            }
            Ok(())
        })?;
    Ok(())
}

fn boot(writer: &mut Output, guest: &Description) -> io::Result<()> {
    writer.create_element("os").write_inner_content(|writer| {
        writer
            .create_element("type")
            .with_attribute(("arch", std::env::consts::ARCH))
            // libvirt cannot describe the board `microvm`.
            .with_attribute(("machine", "q35"))
            .write_text_content(BytesText::new("hvm"))?;
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

fn processor(writer: &mut Output, guest: &Description) -> io::Result<()> {
    let cores = guest.cpus.len().to_string();
    let topology = |writer: &mut Output| {
        let attributes = [
            ("sockets", "1"),
            ("dies", "1"),
            ("cores", cores.as_str()),
            ("threads", "1"),
        ];
        empty(writer, "topology", &attributes)
    };
    let attributes: &[(&str, &str)] = match guest.accelerator {
        Accelerator::Kvm => &[("mode", "host-passthrough"), ("migratable", "off")],
        Accelerator::Tcg => &[("mode", "maximum")],
    };
    writer
        .create_element("cpu")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(topology)?;
    Ok(())
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
            // What a real-time guest is better without; libvirt adds each by itself otherwise.
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
    fn a_real_time_guest() {
        let guest = example(Accelerator::Kvm, Board::Q35);
        insta::assert_snapshot!(document(&guest).expect("a document"));
    }

    #[test]
    fn an_emulated_guest_without_huge_pages() {
        let mut guest = example(Accelerator::Tcg, Board::Q35);
        guest.memory.huge_page = None;
        guest.memory.node = None;
        guest.memory.locked = false;
        insta::assert_snapshot!(document(&guest).expect("a document"));
    }

    #[test]
    fn names_cannot_break_the_document() {
        let mut guest = example(Accelerator::Kvm, Board::Q35);
        guest.name = "a<b>&\"".to_owned();
        let text = document(&guest).expect("a document");
        assert!(text.contains("a&lt;b&gt;&amp;"), "{text}");
    }
}
