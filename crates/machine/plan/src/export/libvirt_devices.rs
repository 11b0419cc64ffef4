// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's devices: a console, its disk and its PCI devices, without the default devices of libvirt
//! that disturb a real-time guest (libvirt kbase kvm-realtime).

use std::io;

use super::libvirt::Guest;
use super::libvirt_elements::{XmlWriter as Output, empty};

pub(super) fn devices(writer: &mut Output, guest: &Guest<'_>) -> io::Result<()> {
    writer
        .create_element("devices")
        .write_inner_content(|writer| {
            if let Some(path) = &guest.planned.disk {
                disk(writer, path)?;
            }
            writer
                .create_element("serial")
                .with_attribute(("type", "pty"))
                .write_inner_content(|writer| empty(writer, "target", &[("port", "0")]))?;
            for address in &guest.planned.devices {
                device(writer, address)?;
            }
            empty(writer, "controller", &[("type", "usb"), ("model", "none")])?;
            empty(writer, "memballoon", &[("model", "none")])?;
            if guest.is_x86() {
                // libvirt detects a crash by it.
                empty(writer, "panic", &[("model", "isa")])?;
            }
            Ok(())
        })?;
    Ok(())
}

fn disk(writer: &mut Output, path: &str) -> io::Result<()> {
    let block = path.starts_with("/dev/");
    let format = if path.ends_with(".qcow2") && !block {
        "qcow2"
    } else {
        "raw"
    };
    let (kind, source) = if block {
        ("block", "dev")
    } else {
        ("file", "file")
    };
    writer
        .create_element("disk")
        .with_attribute(("type", kind))
        .with_attribute(("device", "disk"))
        .write_inner_content(|writer| {
            let driver = [
                ("name", "qemu"),
                ("type", format),
                ("cache", "none"),
                ("io", "native"),
                ("iothread", "1"),
            ];
            empty(writer, "driver", &driver)?;
            empty(writer, "source", &[(source, path)])?;
            empty(writer, "target", &[("dev", "vda"), ("bus", "virtio")])
        })?;
    Ok(())
}

/// Writes a PCI device with an address such as `0000:03:00.0`, which the plan's parser has checked.
fn device(writer: &mut Output, address: &str) -> io::Result<()> {
    let parts: Vec<String> = address
        .split([':', '.'])
        .map(|part| format!("0x{part}"))
        .collect();
    let [domain, bus, slot, function] = parts.as_slice() else {
        return Ok(());
    };
    writer
        .create_element("hostdev")
        .with_attribute(("mode", "subsystem"))
        .with_attribute(("type", "pci"))
        .with_attribute(("managed", "yes"))
        .write_inner_content(|writer| {
            writer
                .create_element("source")
                .write_inner_content(|writer| {
                    let address = [
                        ("domain", domain.as_str()),
                        ("bus", bus.as_str()),
                        ("slot", slot.as_str()),
                        ("function", function.as_str()),
                    ];
                    empty(writer, "address", &address)
                })?;
            Ok(())
        })?;
    Ok(())
}
