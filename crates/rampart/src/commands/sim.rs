// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart sim`: builds, boots and enters the simulated machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use rampart_bench::sim::{
    Architecture, BuildStep, CarriedFile, Forward, Image, Init, Joined, Sim, SimError, SimOptions,
    USUAL_CPUS, USUAL_MEBIBYTES, USUAL_PATIENCE, Up,
};
use rampart_model::{CpuSet, ExitCode};

use super::sim_program::{Entered, run_program, run_shell};
use crate::failure::Failure;
use crate::progress::Style;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
Examples:
  rampart sim build                     make the image, or renew it where packages are newer
  rampart sim shell                     a shell inside; the machine ends with it
  rampart sim run -- uname -a           one command, its streams and its exit status
  rampart sim run --cpus 3 -- cyclictest -m -p 80 -t 1 -D 5
  tar c DIR | rampart sim run -- tar xC /tmp
  rampart sim up                        hold a machine; `run` and `shell` elsewhere join it
  rampart sim up --forward 2222:22 &    with a port for ssh
  rampart sim run --disk state.img -- ls /var/lib/rampart
  rampart sim shell --init systemd      where systemd keeps house, with slices and services
  rampart sim up --disk state.img       `reboot` inside starts it again, with what it wrote
  rampart sim down                      end the machine that is up
  rampart sim --architecture aarch64 run -- uname -m
  rampart sim run --file blocksys.ko:/tmp/blocksys.ko -- insmod /tmp/blocksys.ko

Packages come from deb.debian.org, or the mirror that this machine's own apt uses for bookworm, or
RAMPART_DEBIAN_MIRROR. They are kept with the image in ~/.cache/rampart/sim (XDG_CACHE_HOME).

Exit codes of `run` and `shell`: the command's own, 128 plus the signal that ended it; 6 if the
machine panicked, hung, ended or never came up, with the last lines of its console.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArguments {
    /// What the machine simulates, x86_64 or aarch64; without it what this machine is. Another
    /// architecture's programs are made by `make build ARCH=ARCHITECTURE`
    #[arg(long, value_name = "ARCHITECTURE", value_parser = architecture, global = true)]
    architecture: Option<&'static Architecture>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch packages and make the image; renew it where packages are newer
    Build,
    /// Boot a machine and hold it until Ctrl-C or `rampart sim down`
    Up(Box<MachineArguments>),
    /// A shell inside: in the machine that is up, else in one of its own
    Shell(Box<MachineArguments>),
    /// Run a command inside: in the machine that is up, else in one of its own
    Run(Box<RunArguments>),
    /// End the machine that is up
    Down,
}

#[derive(Debug, Args)]
struct MachineArguments {
    /// How many CPUs the machine has
    #[arg(long, value_name = "NUMBER", default_value_t = USUAL_CPUS)]
    cpus: u32,

    /// CPUs that its kernel keeps free (isolcpus, nohz_full, rcu_nocbs, irqaffinity); without it
    /// all but the first, `none` for none
    #[arg(long, value_name = "CPUS", value_parser = real_time_cpus)]
    real_time_cpus: Option<CpuSet>,

    /// Memory of the machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = USUAL_MEBIBYTES)]
    memory: u64,

    /// Give its processors two security states, as those of boards with firmware at EL3 have
    /// (aarch64)
    #[arg(long)]
    two_security_states: bool,

    /// More words for its kernel's command line
    #[arg(long, value_name = "WORDS")]
    append: Option<String>,

    /// A disk that outlives the machine, in a file that is made where there is none: it holds
    /// /var/lib/rampart and /boot/extlinux, whose `append` line the machine is started with. With
    /// `up` the machine may restart
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,

    /// What its process 1 is: `agent`, beside which nothing runs, or `systemd`, as on a real one
    #[arg(long, value_name = "INIT", value_parser = init, default_value_t)]
    init: Init,

    /// A port of this machine's loopback that leads to a port inside; may be repeated
    #[arg(long, value_name = "HERE:THERE")]
    forward: Vec<Forward>,

    /// A file of this machine that is inside, too, under a whole path; may be repeated
    #[arg(long, value_name = "HERE:THERE")]
    file: Vec<CarriedFile>,

    /// Boot a machine of its own even if one is up
    #[arg(long)]
    own: bool,

    /// How long it may take to come up, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = USUAL_PATIENCE.as_secs())]
    patience: u64,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    machine: MachineArguments,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn architecture(text: &str) -> Result<&'static Architecture, String> {
    Architecture::named(text).ok_or_else(|| {
        let names = Architecture::names().join(" and ");
        format!("there are simulated machines of {names}")
    })
}

/// A list of CPUs, or `none`.
pub(super) fn real_time_cpus(text: &str) -> Result<CpuSet, String> {
    if text == "none" {
        return Ok(CpuSet::default());
    }
    text.parse()
        .map_err(|error: rampart_model::ParseCpuSetError| error.to_string())
}

fn init(text: &str) -> Result<Init, String> {
    let known = [Init::Agent, Init::Systemd];
    let chosen = known.into_iter().find(|init| init.to_string() == text);
    chosen.ok_or_else(|| format!("`{text}` is no process 1; write agent or systemd"))
}

impl MachineArguments {
    fn options(&self, architecture: &'static Architecture) -> Result<SimOptions, Failure> {
        let mut options = super::on::sim_options(architecture)?.with_cpus(self.cpus);
        if let Some(real_time) = &self.real_time_cpus {
            options.real_time = real_time.clone();
        }
        options.mebibytes = self.memory;
        options.two_security_states = self.two_security_states;
        options.append.clone_from(&self.append);
        options.disk.clone_from(&self.disk);
        options.init = self.init;
        options.forwards.clone_from(&self.forward);
        options.files.clone_from(&self.file);
        options.patience = Duration::from_secs(self.patience);
        Ok(options)
    }

    /// Whether it asks for a machine that another one cannot stand for.
    fn is_particular(&self) -> bool {
        self.own
            || self.cpus != USUAL_CPUS
            || self.real_time_cpus.is_some()
            || self.memory != USUAL_MEBIBYTES
            || self.two_security_states
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
            let entered = enter(architecture, machine)?;
            run_shell(&entered)
        }
        Action::Run(run) => {
            let entered = enter(architecture, &run.machine)?;
            run_program(&entered, &run.command)
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
    // Before the first thread: a signal while it boots ends the machine too.
    let stop = signals::stop_flag()?;
    Up::refuse_second(architecture)?;
    while hold(architecture, machine, &stop)? == After::Restart {
        output::say("rampart: the simulated machine restarts");
    }
    Ok(ExitCode::Success)
}

/// What follows when a machine has ended.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// It asked for a restart, and has what it needs to go on.
    Restart,
    Nothing,
}

/// Boots a machine and holds it until it is not needed any longer, or has ended.
fn hold(
    architecture: &'static Architecture,
    machine: &MachineArguments,
    stop: &AtomicBool,
) -> Result<After, Failure> {
    let up = Up::hold(boot(architecture, machine, Some(stop))?)?;
    let option = architecture.option();
    output::say(&format!(
        "rampart: the simulated machine is up after {:.1} s: Linux {}; enter it with `rampart sim \
         shell{option}`, end it with Ctrl-C or `rampart sim down{option}`",
        up.sim().boot_time().as_secs_f64(),
        up.sim().agent().hello().kernel_release
    ));
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(After::Nothing);
        }
        if up.sim().wait_lost(Duration::from_millis(100)).is_some() {
            return match up.sim().loss_error() {
                // Somebody inside switched it off.
                Some(SimError::Ended { how, .. }) if how == "guest-shutdown" => {
                    output::say("rampart: the simulated machine was switched off from inside");
                    Ok(After::Nothing)
                }
                // Without a disk it would come up as if nothing had been.
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

/// The machine that is up, or one of its own.
fn enter(
    architecture: &'static Architecture,
    machine: &MachineArguments,
) -> Result<Entered, Failure> {
    if !machine.is_particular()
        && let Some(joined) = Joined::join(architecture)?
    {
        return Ok(Entered::Joined(joined));
    }
    Ok(Entered::Own(Box::new(boot(architecture, machine, None)?)))
}

/// Boots a machine; a signal meanwhile, or `stop`, ends the program, and with it the machine.
fn boot(
    architecture: &'static Architecture,
    machine: &MachineArguments,
    stop: Option<&AtomicBool>,
) -> Result<Sim, Failure> {
    let options = machine.options(architecture)?;
    let image = Sim::image(architecture, &mut build_progress())?;
    Ok(match stop {
        Some(stop) => Sim::boot_unless(stop, image, options)?,
        None => Sim::boot(image, &options)?,
    })
}

/// Shows the steps of a build on standard error.
pub(super) fn build_progress() -> impl FnMut(BuildStep) {
    let style = progress::style(crate::arguments::ShowProgress::Auto);
    let bar = progress::bar(style, 1000);
    let mut told = None;
    move |step| {
        let text = match step {
            BuildStep::Waiting => "waiting for another build to end",
            BuildStep::Lists => "lists of packages",
            BuildStep::Fetch { .. } => "fetching packages",
            BuildStep::Unpack { .. } => "unpacking packages",
            BuildStep::Pack => "writing the root file system",
            BuildStep::UpToDate => "up to date",
        };
        // Of the time of a build: fetching half, unpacking a third.
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
        if style == Style::Lines && told != Some(text) {
            output::say(&format!("rampart sim: {text}"));
        }
        told = Some(text);
    }
}
