// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests of a plan as libvirt's XML (libvirt document `formatdomain`).

use std::io;

use rampart_model::{
    CpuSet, DomainProgram, Finding, PlannedDomain, ResolvedDomain, Restart, Severity,
};

use super::answers::Answer::{Supported, Unsupported};
use super::answers::{DomainAnswers, MachineAnswers};
use super::gaps::{Gaps, Part};
use super::libvirt_cache::cache;
use super::libvirt_devices::devices;
use super::libvirt_elements::{
    XmlWriter as Output, empty, libvirt_document, memory_backing, memory_node, processor, text,
    text_with, virtual_cpu_policy,
};
use super::{ExportSubject, Exported, ExportedFile, interrupts};

/// A guest of the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest<'a> {
    pub(super) subject: &'a ExportSubject<'a>,
    pub(super) planned: &'a PlannedDomain,
    pub(super) resolved: &'a ResolvedDomain,
}

const MACHINE_ANSWERS: MachineAnswers = MachineAnswers::without(
    "a guest's definition does not change the machine",
    "rampart apply, or rampart export systemd and tuned",
);

/// Findings report the limits of supported fields on this machine one by one.
const DOMAIN_ANSWERS: DomainAnswers = DomainAnswers {
    isolation: Unsupported(
        "libvirt binds the guest's threads and does not isolate their CPUs",
        "rampart apply, or rampart export systemd",
    ),
    reservation: Unsupported(
        "libvirt does not support SCHED_DEADLINE for virtual CPUs",
        "a priority instead: vcpus = { policy = { fifo = 1 } }",
    ),
    service: Unsupported(
        "libvirt binds I/O threads to these CPUs, but not the kernel's vhost threads",
        "rampart up, or taskset for the threads vhost-PID",
    ),
    interrupts: Unsupported(
        "libvirt does not place interrupts",
        "run the commands below each time that the driver requests its interrupts",
    ),
    priority: Supported,
    restart: Supported,
    guest: Supported,
    caches: Supported,
    cpus: Supported,
    run: Supported,
    engine: Supported,
    image: Supported,
    root_file_system: Supported,
    cell: Supported,
    threads: Supported,
};

/// Writes the guests of a plan, or the one of this name.
///
/// # Errors
/// If the XML cannot be written to memory.
pub fn libvirt(subject: &ExportSubject<'_>, only: Option<&str>) -> io::Result<Exported> {
    let mut files = Vec::new();
    let mut findings = Vec::new();
    let mut machine = Gaps::default();
    machine.of_machine(subject, &MACHINE_ANSWERS);
    for (planned, resolved) in subject.domains() {
        if only.is_some_and(|name| name != planned.name) {
            continue;
        }
        if planned.kind.program() != DomainProgram::Guest {
            let why = format!("it is of kind {}, not a guest", planned.kind);
            machine.not_written(
                planned,
                why,
                "rampart export systemd, or podman for containers",
            );
            continue;
        }
        let guest = Guest {
            subject,
            planned,
            resolved,
        };
        let mut gaps = machine.clone();
        gaps.of_domain(planned, &DOMAIN_ANSWERS);
        add_findings(&guest, &mut gaps);
        let body = document(&guest, &mut gaps)?;
        let mut head = gaps.head("libvirt", subject, Part::Machine);
        let own = gaps.head("libvirt", subject, Part::Domain(&planned.name));
        head.extend(own.into_iter().skip(if head.len() > 1 { 2 } else { 1 }));
        files.push(ExportedFile {
            path: format!("{}.xml", planned.name),
            text: format!("<!--\n{}\n-->\n{body}", in_comment(&head)),
        });
        findings.extend(gaps.of(&planned.name));
    }
    let mut all = machine.into_findings();
    all.extend(findings);
    Ok(Exported {
        files,
        findings: all,
    })
}

/// Formats lines for an XML comment, which two hyphens would end.
fn in_comment(lines: &[String]) -> String {
    let text = lines.join("\n").replace("--", "- -").replace("--", "- -");
    text.trim_end_matches('-').to_owned()
}

/// Adds findings for settings without an element.
fn add_findings(guest: &Guest<'_>, gaps: &mut Gaps) {
    let name = &guest.planned.name;
    let mut add = |severity, field: &str, what: &str, fix: String| {
        let location = format!("domain `{name}`, {field}");
        gaps.add(Some(name), Finding::new(severity, location, what).fix(fix));
    };
    let commands = interrupts::commands(guest.subject, name);
    if !commands.is_empty() {
        add(
            Severity::Note,
            "interrupts",
            "as root, with their present numbers",
            commands.join("; "),
        );
    }
    let inside = real_time_inside(guest);
    if guest.planned.kernel.is_some() && !inside.is_empty() {
        add(
            Severity::Note,
            "kernel",
            "a plan has no kernel command line for the guest's kernel, which has to isolate its real-time CPUs \
             too",
            format!(
                "add a cmdline element with isolcpus=managed_irq,domain,{inside} nohz_full={inside} \
                 rcu_nocbs={inside} and what the guest's root needs"
            ),
        );
    }
    if guest.planned.kernel.is_none() && guest.planned.disk.is_none() {
        add(
            Severity::Warning,
            "kernel, disk",
            "the plan has neither, so the guest cannot boot",
            "write kernel = \"/path\" or disk = \"/path\" in the plan".to_owned(),
        );
    }
    if guest.resolved.virtual_cpus.contains(&None) {
        add(
            Severity::Warning,
            "vcpus",
            "a virtual CPU has no CPU of its own, and runs on the housekeeping CPUs",
            "name more CPUs in the plan".to_owned(),
        );
    }
}

/// Returns the numbers of the real-time virtual CPUs.
fn real_time_inside(guest: &Guest<'_>) -> CpuSet {
    let request = guest
        .planned
        .vcpus
        .as_ref()
        .map(rampart_model::VirtualCpus::request)
        .unwrap_or_default();
    if !request.policy.is_some_and(|policy| policy.0.is_real_time()) {
        return CpuSet::new();
    }
    (0u32..)
        .zip(&guest.resolved.virtual_cpus)
        .map(|(number, _)| rampart_model::CpuId(number))
        .filter(|number| {
            request
                .real_time
                .as_ref()
                .is_none_or(|real_time| real_time.contains(*number))
        })
        .collect()
}

impl Guest<'_> {
    fn is_real_time(&self) -> bool {
        !real_time_inside(self).is_empty()
    }

    pub(super) fn is_x86(&self) -> bool {
        self.subject.machine.architecture == "x86_64"
    }
}

fn document(guest: &Guest<'_>, gaps: &mut Gaps) -> io::Result<String> {
    let (planned, resolved) = (guest.planned, guest.resolved);
    let mut attributes = vec![("type", "kvm")];
    if planned.cpu_pm {
        attributes.push(("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0"));
    }
    libvirt_document(&attributes, |writer| {
        text(writer, "name", &planned.name)?;
        if let Some(memory) = &planned.memory {
            let bytes = memory.size.0.to_string();
            text_with(writer, "memory", &[("unit", "b")], &bytes)?;
        }
        let page = planned.memory.as_ref().and_then(|memory| memory.hugepage);
        let real_time = guest.is_real_time();
        memory_backing(writer, page.map(|page| page.0), real_time, real_time)?;
        let housekeeping = guest.subject.resolved.housekeeping.to_string();
        let placement = [("placement", "static"), ("cpuset", housekeeping.as_str())];
        let count = resolved.virtual_cpus.len();
        text_with(writer, "vcpu", &placement, &count.to_string())?;
        if planned.disk.is_some() {
            text(writer, "iothreads", "1")?;
        }
        tuning(writer, guest, gaps)?;
        if let Some(node) = node(guest) {
            memory_node(writer, node)?;
        }
        // A slice outside machine.slice, which is limited to the housekeeping CPUs.
        writer
            .create_element("resource")
            .write_inner_content(|writer| {
                text(writer, "partition", &format!("/rampart/{}", planned.name))
            })?;
        boot(writer, guest)?;
        features(writer, guest)?;
        let passthrough = [("mode", "host-passthrough"), ("migratable", "off")];
        processor(writer, &passthrough, count)?;
        clock(writer, guest)?;
        events(writer, planned.restart)?;
        devices(writer, guest)?;
        command_line(writer, guest)
    })
}

/// Returns the memory node: the plan's, or the only node of the guest's CPUs.
fn node(guest: &Guest<'_>) -> Option<u32> {
    let named = guest.planned.memory.as_ref().and_then(|memory| memory.node);
    let nodes = guest.subject.several_nodes(&guest.resolved.cpus);
    let only = nodes.filter(|nodes| nodes.len() == 1);
    named.or_else(|| only.and_then(|nodes| nodes.first()).map(|node| node.0))
}

fn tuning(writer: &mut Output, guest: &Guest<'_>, gaps: &mut Gaps) -> io::Result<()> {
    let (planned, resolved) = (guest.planned, guest.resolved);
    let policy = planned
        .vcpus
        .as_ref()
        .and_then(|vcpus| vcpus.request().policy)
        .map(|policy| policy.0);
    writer
        .create_element("cputune")
        .write_inner_content(|writer| {
            for (number, cpu) in resolved.virtual_cpus.iter().enumerate() {
                if let Some(cpu) = cpu {
                    let (number, cpu) = (number.to_string(), cpu.to_string());
                    empty(writer, "vcpupin", &[("vcpu", &number), ("cpuset", &cpu)])?;
                }
            }
            let emulator = resolved.emulator.to_string();
            empty(writer, "emulatorpin", &[("cpuset", &emulator)])?;
            if planned.disk.is_some() {
                let service = resolved.service.to_string();
                let attributes = [("iothread", "1"), ("cpuset", service.as_str())];
                empty(writer, "iothreadpin", &attributes)?;
            }
            let inside = real_time_inside(guest);
            if let (Some(policy), false) = (policy, inside.is_empty()) {
                virtual_cpu_policy(writer, &inside.to_string(), policy)?;
            }
            cache(writer, guest, gaps)
        })?;
    Ok(())
}

fn boot(writer: &mut Output, guest: &Guest<'_>) -> io::Result<()> {
    let machine = guest.subject.machine;
    let board = if guest.is_x86() { "q35" } else { "virt" };
    writer.create_element("os").write_inner_content(|writer| {
        let board = [("arch", machine.architecture.as_str()), ("machine", board)];
        text_with(writer, "type", &board, "hvm")?;
        if let Some(kernel) = &guest.planned.kernel {
            text(writer, "kernel", kernel)?;
        }
        if let Some(initramfs) = &guest.planned.initramfs {
            text(writer, "initrd", initramfs)?;
        }
        if guest.planned.kernel.is_none() && guest.planned.disk.is_some() {
            empty(writer, "boot", &[("dev", "hd")])?;
        }
        Ok(())
    })?;
    Ok(())
}

fn features(writer: &mut Output, guest: &Guest<'_>) -> io::Result<()> {
    writer
        .create_element("features")
        .write_inner_content(|writer| {
            empty(writer, "acpi", &[])?;
            if guest.is_x86() {
                empty(writer, "apic", &[])?;
            } else {
                empty(writer, "gic", &[])?;
            }
            if guest.planned.hint_dedicated {
                writer.create_element("kvm").write_inner_content(|writer| {
                    empty(writer, "hint-dedicated", &[("state", "on")])
                })?;
            }
            if guest.is_real_time() {
                empty(writer, "pmu", &[("state", "off")])?;
            }
            if guest.is_x86() {
                empty(writer, "vmport", &[("state", "off")])?;
            }
            Ok(())
        })?;
    Ok(())
}

fn clock(writer: &mut Output, guest: &Guest<'_>) -> io::Result<()> {
    let clock = writer
        .create_element("clock")
        .with_attribute(("offset", "utc"));
    if guest.is_x86() {
        clock.write_inner_content(|writer| {
            empty(writer, "timer", &[("name", "hpet"), ("present", "no")])?;
            empty(writer, "timer", &[("name", "pit"), ("tickpolicy", "delay")])
        })?;
    } else {
        clock.write_empty()?;
    }
    Ok(())
}

fn events(writer: &mut Output, restart: Restart) -> io::Result<()> {
    // A guest that resets itself has failed, as under `rampart up`.
    let (end, failure) = match restart {
        Restart::Never => ("destroy", "destroy"),
        Restart::OnFailure => ("destroy", "restart"),
        Restart::Always => ("restart", "restart"),
    };
    text(writer, "on_poweroff", end)?;
    text(writer, "on_reboot", failure)?;
    text(writer, "on_crash", failure)
}

/// Writes QEMU options without a libvirt element. A second `-overcommit` replaces the first, so it
/// repeats the memory lock.
fn command_line(writer: &mut Output, guest: &Guest<'_>) -> io::Result<()> {
    if !guest.planned.cpu_pm {
        return Ok(());
    }
    let value = if guest.is_real_time() {
        "mem-lock=on,cpu-pm=on"
    } else {
        "cpu-pm=on"
    };
    writer
        .create_element("qemu:commandline")
        .write_inner_content(|writer| {
            empty(writer, "qemu:arg", &[("value", "-overcommit")])?;
            empty(writer, "qemu:arg", &[("value", value)])
        })?;
    Ok(())
}
