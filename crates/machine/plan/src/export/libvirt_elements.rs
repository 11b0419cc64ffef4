// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements of libvirt's XML that every real-time guest has (libvirt document `formatdomain`).

use std::io;

use quick_xml::Writer;
use quick_xml::events::BytesText;
use rampart_model::SchedulingPolicy;

/// A writer of XML to memory.
pub type XmlWriter = Writer<Vec<u8>>;

/// Returns a document whose root element `domain` has these attributes.
///
/// # Errors
/// If `content` fails.
pub fn libvirt_document(
    attributes: &[(&str, &str)],
    content: impl FnOnce(&mut XmlWriter) -> io::Result<()>,
) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer
        .create_element("domain")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(content)?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Writes an element with a text.
///
/// # Errors
/// If the writer fails.
pub fn text(writer: &mut XmlWriter, name: &str, value: &str) -> io::Result<()> {
    text_with(writer, name, &[], value)
}

/// Writes an element with attributes and a text.
///
/// # Errors
/// If the writer fails.
pub fn text_with(
    writer: &mut XmlWriter,
    name: &str,
    attributes: &[(&str, &str)],
    value: &str,
) -> io::Result<()> {
    writer
        .create_element(name)
        .with_attributes(attributes.iter().copied())
        .write_text_content(BytesText::new(value))?;
    Ok(())
}

/// Writes an element without content.
///
/// # Errors
/// If the writer fails.
pub fn empty(writer: &mut XmlWriter, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    writer
        .create_element(name)
        .with_attributes(attributes.iter().copied())
        .write_empty()?;
    Ok(())
}

/// Writes the backing of a guest's memory: huge pages of this size in bytes, locked, allocated at
/// the start. Its pages are never merged.
///
/// # Errors
/// If the writer fails.
pub fn memory_backing(
    writer: &mut XmlWriter,
    huge_page: Option<u64>,
    locked: bool,
    immediate: bool,
) -> io::Result<()> {
    writer
        .create_element("memoryBacking")
        .write_inner_content(|writer| {
            if let Some(bytes) = huge_page {
                writer
                    .create_element("hugepages")
                    .write_inner_content(|writer| {
                        let kibibytes = (bytes / 1024).to_string();
                        empty(writer, "page", &[("size", &kibibytes), ("unit", "KiB")])
                    })?;
            }
            empty(writer, "nosharepages", &[])?;
            if locked {
                empty(writer, "locked", &[])?;
            }
            if immediate {
                empty(writer, "allocation", &[("mode", "immediate")])?;
            }
            Ok(())
        })?;
    Ok(())
}

/// Writes the memory node of a guest.
///
/// # Errors
/// If the writer fails.
pub fn memory_node(writer: &mut XmlWriter, node: u32) -> io::Result<()> {
    writer
        .create_element("numatune")
        .write_inner_content(|writer| {
            let nodes = node.to_string();
            empty(writer, "memory", &[("mode", "strict"), ("nodeset", &nodes)])
        })?;
    Ok(())
}

/// Writes the processor of a guest: cores without sibling threads.
///
/// # Errors
/// If the writer fails.
pub fn processor(
    writer: &mut XmlWriter,
    attributes: &[(&str, &str)],
    cores: usize,
) -> io::Result<()> {
    writer
        .create_element("cpu")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(|writer| {
            let cores = cores.to_string();
            let attributes = [
                ("sockets", "1"),
                ("dies", "1"),
                ("cores", cores.as_str()),
                ("threads", "1"),
            ];
            empty(writer, "topology", &attributes)
        })?;
    Ok(())
}

/// Writes the policy of virtual CPUs. libvirt has no `SCHED_DEADLINE` for them.
///
/// # Errors
/// If the writer fails.
pub fn virtual_cpu_policy(
    writer: &mut XmlWriter,
    numbers: &str,
    policy: SchedulingPolicy,
) -> io::Result<()> {
    let (scheduler, priority) = match policy {
        SchedulingPolicy::Fifo(priority) => ("fifo", priority.to_string()),
        SchedulingPolicy::RoundRobin(priority) => ("rr", priority.to_string()),
        SchedulingPolicy::Other | SchedulingPolicy::Deadline { .. } => return Ok(()),
    };
    let attributes = [
        ("vcpus", numbers),
        ("scheduler", scheduler),
        ("priority", priority.as_str()),
    ];
    empty(writer, "vcpusched", &attributes)
}
