// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart export`: a domain in the words of another tool.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_domain::{DomainError, export_libvirt};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{CpuSet, DomainKind, DomainSelection, ExitCode, Topology};

use crate::failure::Failure;
use crate::output;

const LIBVIRT_EXAMPLES: &str = "\
Examples:
  rampart export libvirt --cpus 2-3 --housekeeping 0-1 --out /etc/rampart/guests
  virsh define /etc/rampart/guests/vm.xml

The guest is the one that `rampart measure --domain vm` runs, on another virtual board: libvirt
cannot describe QEMU's microvm. Nothing of this machine is changed but the files that are written.";

/// Write a domain in the words of another tool
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Write a guest as libvirt XML, with the initramfs that it boots
    Libvirt(Libvirt),
}

#[derive(Debug, Args)]
#[command(after_help = LIBVIRT_EXAMPLES)]
struct Libvirt {
    /// Which guest: vm, vm:noisy or vm:tcg
    #[arg(long, value_name = "DOMAIN", default_value = "vm")]
    domain: DomainSelection,

    /// Name of the guest in libvirt; without it that of the domain
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// CPUs of the machine for the guest's real-time CPUs; without it those that are isolated, or
    /// the last one
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,

    /// CPUs for everything else of the guest; without it all others
    #[arg(long, value_name = "CPUS")]
    housekeeping: Option<CpuSet>,

    /// Directory for the XML and the initramfs that it names; it must stay where it is
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(crate) fn run(arguments: &Export) -> Result<ExitCode, Failure> {
    match &arguments.tool {
        Tool::Libvirt(libvirt) => write_libvirt(libvirt),
    }
}

fn write_libvirt(arguments: &Libvirt) -> Result<ExitCode, Failure> {
    let usage = |text: String| Failure::new(ExitCode::Usage, anyhow::anyhow!(text));
    if arguments.domain.kind != DomainKind::Vm {
        return Err(usage(format!(
            "export libvirt: the domain `{}` is no guest; write vm, vm:noisy or vm:tcg",
            arguments.domain
        )));
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => arguments.domain.to_string().replace(':', "-"),
    };
    if name.is_empty() || name.contains(['/', '\n']) || name.starts_with('.') {
        return Err(usage(format!(
            "export libvirt: `{name}` cannot be the name of a guest; write one without `/`, line \
             breaks and leading points"
        )));
    }
    let meter = super::meter_program()?;
    let machine = read_machine(&MachineRoot::system());
    let topology = &machine.topology;
    let cpus = match &arguments.cpus {
        Some(cpus) => cpus.clone(),
        None => proposed(topology),
    };
    let housekeeping = match &arguments.housekeeping {
        Some(cpus) => cpus.clone(),
        None => topology.online.difference(&cpus),
    };
    for (option, set) in [("--cpus", &cpus), ("--housekeeping", &housekeeping)] {
        if set.is_empty() || !set.is_subset(&topology.possible) {
            return Err(usage(format!(
                "export libvirt: {option} is `{set}`; needed at least one CPU of {}",
                topology.possible
            )));
        }
    }
    let shared = cpus.intersection(&housekeeping);
    if !shared.is_empty() {
        return Err(usage(format!(
            "export libvirt: both --cpus and --housekeeping name {}; a real-time CPU of the guest \
             needs one for itself",
            shared.named()
        )));
    }
    let exported = export_libvirt(
        arguments.domain,
        &name,
        &machine,
        &cpus,
        &housekeeping,
        &meter,
        &arguments.out,
    )
    .map_err(|error| {
        let code = match error {
            DomainError::Unavailable(_) => ExitCode::PreconditionMissing,
            _ => ExitCode::Failure,
        };
        Failure::new(code, error)
    })?;
    output::print(&format!("{}\n", exported.xml.display()))?;
    for finding in &exported.findings {
        output::say(&format!("rampart: {finding}"));
    }
    output::say(&format!(
        "rampart: its initramfs is {}; define it with: virsh define {}",
        exported.initramfs.display(),
        exported.xml.display()
    ));
    Ok(ExitCode::Success)
}

/// The isolated CPUs, or the last one.
fn proposed(topology: &Topology) -> CpuSet {
    let isolated = topology.isolated.intersection(&topology.online);
    if isolated.is_empty() {
        topology.online.iter().next_back().into_iter().collect()
    } else {
        isolated
    }
}
