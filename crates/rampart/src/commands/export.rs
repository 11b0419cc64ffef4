// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart export`: writes a plan or a guest as configuration of another tool.

mod plan;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_domain::export_libvirt;
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{CpuList, CpuSet, DomainProgram, DomainSelection, ExitCode, Topology};
use rampart_plan::Engine;

use self::plan::{FromPlan, Systemd};
use crate::commands::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const LIBVIRT_EXAMPLES: &str = "\
Without a plan the guest is that of `rampart measure --domain vm`, on another
virtual board, since libvirt cannot describe the microvm of QEMU.

Examples:
  rampart export libvirt --plan plan.toml --out /etc/rampart/guests
  rampart export libvirt --cpus 2-3 --housekeeping 0-1 --out guests
  virsh define guests/vm.xml";

/// Returns the notes and examples of the export of a plan to a tool.
macro_rules! plan_help {
    ($($example:literal),+) => {
        concat!(
            "Fields that the tool cannot express are reported on standard error and in the\n",
            "files. An existing file that no export wrote is not replaced.\n\nExamples:",
            $("\n  rampart export ", $example),+
        )
    };
}

/// Write a plan or a guest as configuration of another tool
#[derive(Debug, Args)]
#[command(after_help = plan_help!("systemd --plan plan.toml --out /etc", "podman --plan plan.toml", "kubernetes --plan plan.toml --out manifests"))]
pub(crate) struct Export {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Write the guests of a plan, or the guest of `evaluate`, as libvirt XML
    #[command(after_help = LIBVIRT_EXAMPLES)]
    Libvirt(Libvirt),
    /// Write a plan as systemd units
    #[command(after_help = plan_help!("systemd --plan plan.toml --out /etc"))]
    Systemd(Systemd),
    /// Write the settings of a plan as a TuneD profile
    #[command(after_help = plan_help!("tuned --plan plan.toml --out /etc/tuned"))]
    Tuned(FromPlan),
    /// Write the containers of a plan as podman commands
    #[command(after_help = plan_help!("podman --plan plan.toml"))]
    Podman(FromPlan),
    /// Write the containers of a plan as docker commands
    #[command(after_help = plan_help!("docker --plan plan.toml"))]
    Docker(FromPlan),
    /// Write the containers of a plan as Pods with a kubelet configuration
    #[command(after_help = plan_help!("kubernetes --plan plan.toml --out manifests"))]
    Kubernetes(FromPlan),
}

#[derive(Debug, Args)]
struct Libvirt {
    /// Plan file
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// With --plan: only this guest. Without: vm, vm:noisy or vm:tcg
    /// [default: every guest; without --plan vm]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    #[command(flatten)]
    recorded: RecordedMachine,

    /// Name of the guest in libvirt [default: that of the domain]
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    name: Option<String>,

    /// CPUs of this machine for the real-time CPUs of the guest [default: the
    /// isolated ones, or the last]
    #[arg(long, value_name = "CPUS", conflicts_with = "plan")]
    cpus: Option<CpuList>,

    /// CPUs for the other threads of the guest [default: all others]
    #[arg(long, value_name = "CPUS", conflicts_with = "plan")]
    housekeeping: Option<CpuList>,

    /// Directory of the XML and of the initramfs that it names
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(crate) fn run(arguments: &Export) -> Result<ExitCode, Failure> {
    match &arguments.tool {
        Tool::Libvirt(libvirt) => match &libvirt.plan {
            Some(file) => plan::libvirt(
                file,
                &libvirt.recorded,
                libvirt.domain.as_deref(),
                &libvirt.out,
            ),
            None => write_libvirt(libvirt),
        },
        Tool::Systemd(systemd) => plan::systemd(systemd),
        Tool::Tuned(from) => plan::tuned(from),
        Tool::Podman(from) => plan::containers(from, Engine::Podman),
        Tool::Docker(from) => plan::containers(from, Engine::Docker),
        Tool::Kubernetes(from) => plan::kubernetes(from),
    }
}

fn write_libvirt(arguments: &Libvirt) -> Result<ExitCode, Failure> {
    if arguments.recorded.is_given() {
        return Err(Failure::usage(
            "export libvirt: --machine needs --plan; fix: add --plan FILE",
        ));
    }
    let domain: DomainSelection = arguments
        .domain
        .as_deref()
        .unwrap_or("vm")
        .parse()
        .map_err(Failure::usage)?;
    if domain.kind.program() != DomainProgram::Guest {
        return Err(Failure::usage(format!(
            "export libvirt: the domain `{domain}` is not a guest; fix: write vm, vm:noisy or vm:tcg",
        )));
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => domain.to_string().replace(':', "-"),
    };
    if name.is_empty() || name.contains(['/', '\n']) || name.starts_with('.') {
        return Err(Failure::usage(format!(
            "export libvirt: invalid guest name `{name}`; fix: write a name without `/`, line breaks \
             and a leading dot"
        )));
    }
    let meter = super::meter_program()?;
    let machine = read_machine(&MachineRoot::system());
    let topology = &machine.topology;
    let cpus = super::cpus_here(arguments.cpus.as_ref())?.unwrap_or_else(|| proposed(topology));
    let housekeeping = super::cpus_here(arguments.housekeeping.as_ref())?
        .unwrap_or_else(|| topology.online.difference(&cpus));
    for (option, set) in [("--cpus", &cpus), ("--housekeeping", &housekeeping)] {
        if set.is_empty() || !set.is_subset(&topology.possible) {
            return Err(Failure::usage(format!(
                "export libvirt: {option} is `{set}`; expected: at least one CPU of {}",
                topology.possible
            )));
        }
    }
    let shared = cpus.intersection(&housekeeping);
    if !shared.is_empty() {
        return Err(Failure::usage(format!(
            "export libvirt: --cpus and --housekeeping share {}; fix: give each CPU to one of them",
            shared.named()
        )));
    }
    let exported = export_libvirt(
        domain,
        &name,
        &machine,
        &cpus,
        &housekeeping,
        &meter,
        &arguments.out,
    )?;
    output::print(&format!("{}\n", exported.xml.display()))?;
    for finding in &exported.findings {
        output::finding(finding);
    }
    output::eprint(&format!(
        "The initramfs is {}. Next: virsh define {}",
        exported.initramfs.display(),
        exported.xml.display()
    ));
    Ok(ExitCode::Success)
}

/// Returns the CPUs that settings of the machine keep for real-time work, or the last CPU.
fn proposed(topology: &Topology) -> CpuSet {
    rampart_rules::real_time_cpus_of(topology).map_or_else(
        || topology.online.iter().next_back().into_iter().collect(),
        |found| found.cpus,
    )
}
