// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart sim`: builds, boots and enters the simulated machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use rampart_bench::sim::{
    Architecture, BuildStep, CopiedFile, Forward, Image, Init, Joined, Sim, SimError, SimOptions,
    USUAL_BOOT_TIMEOUT, USUAL_CPUS, USUAL_MEBIBYTES, Up,
};
use rampart_bench::{BenchMachine, has_terminal, run_with_standard_streams};
use rampart_model::{CpuId, CpuList, CpuSet, ExitCode, ParseCpuSetError};

use crate::failure::{Failure, code_of};
use crate::progress::Style;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
Packages come from RAMPART_DEBIAN_MIRROR, the mirror of this machine's apt, or
deb.debian.org. They are kept with the image in ~/.cache/rampart/sim.

Exit codes of `run` and `shell`: that of the command, or 128 plus its signal; 6
if the machine panicked, hung, ended or did not boot.

Examples:
  rampart sim build                   build the image, or update it
  rampart sim shell                   a shell; the machine ends with it
  rampart sim run -- uname -a         one command
  rampart sim run --cpus 3 -- cyclictest -m -p 80 -t 1 -D 5
  rampart sim up                      hold a machine; `run` and `shell` join it
  rampart sim down                    end that machine
  rampart sim --architecture aarch64 run -- uname -m";

const UP_EXAMPLES: &str = "\
Examples:
  rampart sim up
  rampart sim up --forward 2222:22    with a port for ssh
  rampart sim up --disk state.img     `reboot` keeps what was written";

const SHELL_EXAMPLES: &str = "\
Examples:
  rampart sim shell
  rampart sim shell --init systemd    with systemd, its slices and services";

const RUN_EXAMPLES: &str = "\
Examples:
  rampart sim run -- uname -a
  tar c DIR | rampart sim run -- tar xC /tmp
  rampart sim run --disk state.img -- ls /var/lib/rampart
  rampart sim run --file blocksys.ko:/tmp/blocksys.ko -- insmod /tmp/blocksys.ko";

/// Build, boot and enter the simulated machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArguments {
    /// Simulated machine: x86_64 or aarch64; aarch64-backports, with the newest
    /// kernel for the distribution; aarch64-smmu, with an SMMU of the
    /// hypervisor; aarch64-firmware and aarch64-firmware-sdei, with Trusted
    /// Firmware-A; a board of arm64, imx8mp or versal. Another
    /// architecture needs the programs of that architecture [default: the
    /// architecture of this machine]
    #[arg(long, value_name = "ARCHITECTURE", value_parser = architecture, global = true)]
    architecture: Option<&'static Architecture>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch packages and build the image, or update it
    #[command(after_help = "Example:\n  rampart sim build")]
    Build,
    /// Boot a machine and hold it until Ctrl-C or `rampart sim down`
    #[command(after_help = UP_EXAMPLES)]
    Up(Box<MachineArguments>),
    /// Start a shell in the machine that is up, or in a new one
    #[command(after_help = SHELL_EXAMPLES)]
    Shell(Box<MachineArguments>),
    /// Run a command in the machine that is up, or in a new one
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArguments>),
    /// End the machine that is up
    #[command(after_help = "Example:\n  rampart sim down")]
    Down,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
struct MachineArguments {
    /// Number of CPUs [default: 5, or all of a board with fewer]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<u32>,

    /// CPUs that its kernel isolates (isolcpus, nohz_full, rcu_nocbs,
    /// irqaffinity), or none [default: all but the first]
    #[arg(long, value_name = "CPUS", value_parser = real_time_cpus)]
    real_time_cpus: Option<CpuList>,

    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = USUAL_MEBIBYTES)]
    memory: u64,

    /// Two security states, as on a board with firmware at EL3 (aarch64)
    #[arg(long)]
    two_security_states: bool,

    /// A GICv2 as interrupt controller, instead of a GICv3 (aarch64)
    #[arg(long)]
    gicv2: bool,

    /// CPUs run in turn, and each instruction is one tick of their counter:
    /// times are counts of instructions in units of 16 ns (aarch64)
    #[arg(long)]
    count_instructions: bool,

    /// Arguments to add to its kernel command line
    #[arg(long, value_name = "WORDS")]
    append: Option<String>,

    /// File of a disk that outlives the machine, created if missing. It holds
    /// /var/lib/rampart and /boot/extlinux; `up` can then restart
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,

    /// Process 1: agent, which runs nothing else, or systemd
    #[arg(long, value_name = "INIT", value_parser = init, default_value_t)]
    init: Init,

    /// Forward a port of this machine's loopback to a port inside; repeatable
    #[arg(long, value_name = "HERE:THERE")]
    forward: Vec<Forward>,

    /// Copy a file of this machine to a path inside; repeatable
    #[arg(long, value_name = "HERE:THERE")]
    file: Vec<CopiedFile>,

    /// Boot a new machine even if one is up
    #[arg(long)]
    own: bool,

    /// Boot, instead of continuing from a saved machine with the same options
    #[arg(long)]
    no_snapshot: bool,

    /// Time to boot, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = USUAL_BOOT_TIMEOUT.as_secs())]
    boot_timeout: u64,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    machine: MachineArguments,

    /// Command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "COMMAND",
        help_heading = clap::builder::Resettable::Reset
    )]
    command: Vec<String>,
}

fn architecture(text: &str) -> Result<&'static Architecture, String> {
    Architecture::named(text).ok_or_else(|| {
        let names = Architecture::names().join(", ");
        format!("the simulated machines are {names}")
    })
}

/// Parses a list of CPUs, or `none`.
pub(super) fn real_time_cpus(text: &str) -> Result<CpuList, ParseCpuSetError> {
    match text {
        "none" => Ok(CpuList::default()),
        _ => text.parse(),
    }
}

/// Returns the CPUs of a list on a simulated machine with `cpus` CPUs.
pub(super) fn cpus_there(list: &CpuList, cpus: u32) -> Result<CpuSet, Failure> {
    let machine = (0..cpus).map(CpuId).collect();
    list.resolve(&machine).map_err(Failure::usage)
}

fn init(text: &str) -> Result<Init, String> {
    let known = [Init::Agent, Init::Systemd];
    let chosen = known.into_iter().find(|init| init.to_string() == text);
    chosen.ok_or_else(|| format!("unknown init `{text}`; write agent or systemd"))
}

impl MachineArguments {
    fn options(&self, architecture: &'static Architecture) -> Result<SimOptions, Failure> {
        let mut options = super::on::sim_options(architecture)?;
        let cpus = self.cpus.unwrap_or(options.cpus);
        options = options.with_cpus(cpus);
        if let Some(real_time) = &self.real_time_cpus {
            options.real_time = cpus_there(real_time, cpus)?;
        }
        options.mebibytes = self.memory;
        options.two_security_states = self.two_security_states;
        options.gicv2 = self.gicv2;
        options.count_instructions = self.count_instructions;
        options.append.clone_from(&self.append);
        options.disk.clone_from(&self.disk);
        options.init = self.init;
        options.forwards.clone_from(&self.forward);
        options.files.clone_from(&self.file);
        // A machine with a file that is being worked on would hardly be needed twice.
        options.snapshot = !self.no_snapshot && self.file.is_empty();
        options.boot_timeout = Duration::from_secs(self.boot_timeout);
        Ok(options)
    }

    /// Returns whether the options rule out joining a machine that is up.
    fn needs_own_machine(&self) -> bool {
        self.own
            || self.cpus.is_some_and(|cpus| cpus != USUAL_CPUS)
            || self.real_time_cpus.is_some()
            || self.memory != USUAL_MEBIBYTES
            || self.two_security_states
            || self.gicv2
            || self.count_instructions
            || self.no_snapshot
            || self.append.is_some()
            || self.disk.is_some()
            || self.init != Init::default()
            || !self.forward.is_empty()
            || !self.file.is_empty()
    }
}

/// Runs `rampart sim`.
pub(crate) fn run(arguments: &SimArguments) -> Result<std::process::ExitCode, Failure> {
    let architecture = match arguments.architecture {
        Some(architecture) => architecture,
        None => Architecture::of_this_machine()?,
    };
    match &arguments.action {
        Action::Build => build(architecture).map(Into::into),
        Action::Up(machine) => up(architecture, machine).map(Into::into),
        Action::Shell(machine) => {
            if !has_terminal() {
                return Err(Failure::usage(
                    "sim shell: standard input and output must be a terminal; fix: rampart sim \
                     run -- bash -c COMMANDS",
                ));
            }
            let entered = enter(architecture, machine)?;
            let argv = ["bash", "--login"].map(str::to_owned).to_vec();
            let status = run_with_standard_streams(entered.as_ref(), argv, true, output::eprint)?;
            Ok(code_of(status))
        }
        Action::Run(run) => {
            let entered = enter(architecture, &run.machine)?;
            let argv = run.command.clone();
            let status = run_with_standard_streams(entered.as_ref(), argv, false, output::eprint)?;
            Ok(code_of(status))
        }
        Action::Down => {
            Up::take_down(architecture)?;
            Ok(ExitCode::Success.into())
        }
    }
}

fn build(architecture: &'static Architecture) -> Result<ExitCode, Failure> {
    let image = Sim::build(architecture, &mut build_progress())?;
    output::print(&describe(&image))?;
    Ok(ExitCode::Success)
}

fn describe(image: &Image) -> String {
    let record = image.record();
    format!(
        "{}: Debian 12, Linux {}, {} packages (image.json has versions and hashes)",
        image.directory().display(),
        record.kernel_release,
        record.packages.len()
    )
}

fn up(
    architecture: &'static Architecture,
    machine: &MachineArguments,
) -> Result<ExitCode, Failure> {
    // Installed before the first thread, so that a signal during the boot ends the machine.
    let stop = signals::stop_flag()?;
    Up::refuse_second(architecture)?;
    while hold(architecture, machine, &stop)? == After::Restart {
        output::eprint("The simulated machine restarts.");
    }
    Ok(ExitCode::Success)
}

/// Action after the end of a machine.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// Boot it again, since it restarted and has a disk.
    Restart,
    Nothing,
}

/// Boots a machine and holds it until it ends or `stop` is set.
fn hold(
    architecture: &'static Architecture,
    machine: &MachineArguments,
    stop: &AtomicBool,
) -> Result<After, Failure> {
    let up = Up::hold(boot(architecture, machine, Some(stop))?)?;
    let option = architecture.option();
    output::eprint(&format!(
        "The simulated machine is up after {:.1} s{}: Linux {}. Enter it with `rampart sim \
         shell{option}`, end it with Ctrl-C or `rampart sim down{option}`.",
        up.sim().boot_time().as_secs_f64(),
        if up.sim().is_restored() {
            ", continued from a saved machine"
        } else {
            ""
        },
        up.sim().agent().hello().kernel_release
    ));
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(After::Nothing);
        }
        if up.sim().wait_lost(Duration::from_millis(100)).is_some() {
            return match up.sim().loss_error() {
                // A command inside powered it off.
                Some(SimError::Ended { how, .. }) if how == "guest-shutdown" => {
                    output::eprint("The simulated machine was powered off from inside.");
                    Ok(After::Nothing)
                }
                // Without a disk a restart loses everything.
                Some(SimError::Ended { how, .. })
                    if how == "guest-reset" && machine.disk.is_some() =>
                {
                    Ok(After::Restart)
                }
                Some(error) => Err(error.into()),
                None => Ok(After::Nothing),
            };
        }
    }
}

/// Joins the machine that is up, or boots a new one.
fn enter(
    architecture: &'static Architecture,
    machine: &MachineArguments,
) -> Result<Box<dyn BenchMachine>, Failure> {
    if !machine.needs_own_machine()
        && let Some(joined) = Joined::join(architecture)?
    {
        return Ok(Box::new(joined));
    }
    Ok(Box::new(boot(architecture, machine, None)?))
}

/// Boots a machine. A signal, or `stop`, ends the program and the machine.
fn boot(
    architecture: &'static Architecture,
    machine: &MachineArguments,
    stop: Option<&AtomicBool>,
) -> Result<Sim, Failure> {
    let mut options = machine.options(architecture)?;
    let image = super::on::image_for(architecture, &mut options)?;
    let sim = match stop {
        Some(stop) => Sim::boot_unless(stop, image, options)?,
        None => Sim::boot(image, &options)?,
    };
    print_notes(&sim);
    Ok(sim)
}

/// Prints what a person should know of the start of a machine.
pub(super) fn print_notes(sim: &Sim) {
    for note in sim.notes() {
        output::eprint(&format!("note: {note}"));
    }
}

/// Shows the steps of a build on standard error.
pub(super) fn build_progress() -> impl FnMut(BuildStep) {
    let style = progress::style(crate::arguments::ShowProgress::Auto);
    let bar = progress::bar(style, 1000);
    let mut printed = None;
    move |step| {
        let text = match step {
            BuildStep::Waiting => "waiting for another build",
            BuildStep::Lists => "fetching lists of packages",
            BuildStep::Fetch { .. } => "fetching packages",
            BuildStep::Unpack { .. } => "unpacking packages",
            BuildStep::Pack => "writing the root file system",
            BuildStep::UpToDate => "up to date",
        };
        // Fetching takes about half of the time of a build, unpacking a third.
        let share = |done: u64, total: u64, width: u64| done * width / total.max(1);
        let position = match step {
            BuildStep::Waiting | BuildStep::Lists => 0,
            BuildStep::Fetch { done, total } => 50 + share(done, total, 500),
            BuildStep::Unpack { done, total } => 550 + share(done as u64, total as u64, 300),
            BuildStep::Pack => 850,
            BuildStep::UpToDate => 1000,
        };
        bar.set_position(position);
        bar.set_message(text);
        if style == Style::Lines && printed != Some(text) {
            output::eprint(&format!("sim: {text}"));
        }
        printed = Some(text);
    }
}
