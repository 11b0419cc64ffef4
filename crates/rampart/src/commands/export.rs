// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart export`: a plan, or the guest of the evaluation, in the words of another tool.

mod plan;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_domain::export_libvirt;
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{CpuSet, DomainProgram, DomainSelection, ExitCode, Topology};
use rampart_plan::Engine;

use self::plan::{FromPlan, Systemd};
use crate::commands::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const LIBVIRT_EXAMPLES: &str = "\
Examples:
  rampart export libvirt --cpus 2-3 --housekeeping 0-1 --out /etc/rampart/guests
  rampart export libvirt --plan plan.toml --out /etc/rampart/guests
  virsh define /etc/rampart/guests/vm.xml

With a plan its guests are written. Without one the guest is the one that `rampart measure --domain
vm` runs, on another virtual board: libvirt cannot describe QEMU's microvm. Nothing of this machine
is changed but the files that are written.";

const PLAN_EXAMPLES: &str = "\
Examples:
  rampart export systemd --plan plan.toml --out /etc
  rampart export podman --plan plan.toml
  rampart export kubernetes --plan plan.toml --out manifests

What a tool has no words for is told on standard error and in the files. A file that is there and
was not written by an export is left as it is.";

/// Write a plan, or a guest, in the words of another tool
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub(crate) struct Export {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Write the guests of a plan as libvirt XML; without a plan the guest of the evaluation, with
    /// the initramfs that it boots
    Libvirt(Libvirt),
    /// Write a plan as units of systemd
    #[command(after_help = PLAN_EXAMPLES)]
    Systemd(Systemd),
    /// Write a plan's settings as a profile of TuneD
    #[command(after_help = PLAN_EXAMPLES)]
    Tuned(FromPlan),
    /// Write the containers of a plan as commands of podman
    #[command(after_help = PLAN_EXAMPLES)]
    Podman(FromPlan),
    /// Write the containers of a plan as commands of docker
    #[command(after_help = PLAN_EXAMPLES)]
    Docker(FromPlan),
    /// Write the containers of a plan as Pods, with the kubelet's configuration
    #[command(after_help = PLAN_EXAMPLES)]
    Kubernetes(FromPlan),
}

#[derive(Debug, Args)]
#[command(after_help = LIBVIRT_EXAMPLES)]
struct Libvirt {
    /// The plan whose guests are written
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// With a plan: the guest of this name alone. Without: vm (the default), vm:noisy or vm:tcg
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    #[command(flatten)]
    recorded: RecordedMachine,

    /// Name of the guest in libvirt; without it that of the domain
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    name: Option<String>,

    /// CPUs of the machine for the guest's real-time CPUs; without it those that are isolated, or
    /// the last one
    #[arg(long, value_name = "CPUS", conflicts_with = "plan")]
    cpus: Option<CpuSet>,

    /// CPUs for everything else of the guest; without it all others
    #[arg(long, value_name = "CPUS", conflicts_with = "plan")]
    housekeeping: Option<CpuSet>,

    /// Directory for the XML and the initramfs that it names; it must stay where it is
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
            "export libvirt: --machine goes with --plan; without a plan the guest is for this \
             machine",
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
            "export libvirt: the domain `{domain}` is no guest; write vm, vm:noisy or vm:tcg",
        )));
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => domain.to_string().replace(':', "-"),
    };
    if name.is_empty() || name.contains(['/', '\n']) || name.starts_with('.') {
        return Err(Failure::usage(format!(
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
            return Err(Failure::usage(format!(
                "export libvirt: {option} is `{set}`; needed at least one CPU of {}",
                topology.possible
            )));
        }
    }
    let shared = cpus.intersection(&housekeeping);
    if !shared.is_empty() {
        return Err(Failure::usage(format!(
            "export libvirt: both --cpus and --housekeeping name {}; a real-time CPU of the guest \
             needs one for itself",
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
