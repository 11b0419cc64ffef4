// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--on`: runs a command on another machine, with its output here.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use rampart_bench::sim::{Architecture, Sim, SimOptions, USUAL_CPUS, USUAL_MEBIBYTES};
use rampart_bench::{BenchSelection, Machine, Patience, Programs, Ssh, carry};
use rampart_model::{CpuSet, ExitCode, Nanos};

use crate::arguments::Command;
use crate::failure::Failure;
use crate::{output, signals};

/// Options that choose the machine of a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Another machine")]
pub(crate) struct On {
    #[arg(
        long,
        value_name = "BENCH",
        default_value = "local",
        help = "Machine to run on: local, sim (a simulated machine), sim:aarch64 (of another \
                architecture) or ssh:[USER@]HOST[:PORT]"
    )]
    pub(crate) on: BenchSelection,

    /// Number of CPUs of the simulated machine
    #[arg(long, value_name = "NUMBER", default_value_t = USUAL_CPUS)]
    pub(crate) sim_cpus: u32,

    /// Memory of the simulated machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = USUAL_MEBIBYTES)]
    pub(crate) sim_memory: u64,

    /// CPUs that its kernel isolates (isolcpus, nohz_full, rcu_nocbs,
    /// irqaffinity), or none [default: all but the first]
    #[arg(long, value_name = "CPUS", value_parser = super::sim::real_time_cpus)]
    pub(crate) sim_real_time_cpus: Option<CpuSet>,

    /// Arguments to add to its kernel command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub(crate) sim_append: Option<String>,
}

/// Another machine.
#[derive(Debug)]
pub(crate) enum Elsewhere {
    Sim(Box<Sim>),
    Ssh(Box<Ssh>),
}

impl Elsewhere {
    pub(crate) fn machine(&self) -> &dyn Machine {
        match self {
            Self::Sim(sim) => sim.as_ref(),
            Self::Ssh(ssh) => ssh.as_ref(),
        }
    }
}

impl On {
    pub(crate) fn is_local(&self) -> bool {
        self.on == BenchSelection::Local
    }

    /// Connects to the machine or boots it. Returns `None` if it is this one. `after_panic` is how
    /// long a simulated machine is watched after its kernel has panicked.
    pub(crate) fn connect(
        &self,
        stop: &AtomicBool,
        after_panic: Option<Duration>,
    ) -> Result<Option<Elsewhere>, Failure> {
        match &self.on {
            BenchSelection::Local => Ok(None),
            BenchSelection::Ssh(host) => {
                let ssh = Ssh::connect(host, &programs()?, stop)?;
                Ok(Some(Elsewhere::Ssh(Box::new(ssh))))
            }
            BenchSelection::Sim(_) => {
                let Some(architecture) = self.on.simulated()? else {
                    return Ok(None);
                };
                let mut options = sim_options(architecture)?.with_cpus(self.sim_cpus);
                options.mebibytes = self.sim_memory;
                if let Some(real_time) = &self.sim_real_time_cpus {
                    options.real_time.clone_from(real_time);
                }
                options.append.clone_from(&self.sim_append);
                if let Some(after_panic) = after_panic {
                    options.after_panic = after_panic;
                }
                let image = Sim::image(architecture, &mut super::sim::build_progress())?;
                options.hold_cells(&programs()?.hypervisor(), &image.kernel());
                if options.lacks_modules_for(&image.record().kernel_release) {
                    output::say(&format!(
                        "warning: no kernel module for {}, so a spinning thread injects the \
                         blocks; fix: rampart sim build{}",
                        image.record().kernel_release,
                        architecture.option()
                    ));
                }
                output::say(&format!(
                    "Booting the simulated machine: Linux {}, {} CPUs",
                    image.record().kernel_release,
                    options.cpus
                ));
                let sim = Sim::boot_unless(stop, image, options)?;
                Ok(Some(Elsewhere::Sim(Box::new(sim))))
            }
        }
    }
}

/// Returns the default options of a simulated machine, with the programs and modules of this one.
pub(super) fn sim_options(architecture: &'static Architecture) -> Result<SimOptions, Failure> {
    let programs = programs()?;
    let meter = programs.meter_for(architecture.name(), &architecture.bench_name())?;
    Ok(SimOptions::new(architecture, meter, programs.modules()))
}

/// Returns the programs that another machine needs.
pub(crate) fn programs() -> Result<Programs, Failure> {
    Ok(Programs {
        rampart: std::env::current_exe()?,
        meter: super::meter_program()?,
    })
}

/// Runs a command on the machine of its `--on` option. Returns `None` if the command is for this
/// machine or runs itself elsewhere, like `evaluate`.
pub(crate) fn elsewhere(command: &Command, colour: bool) -> Option<Result<ExitCode, Failure>> {
    let mut files: Vec<(&str, &Option<PathBuf>)> = Vec::new();
    // The third: the longest time without output.
    let (on, arguments, quiet) = match command {
        Command::Measure(measure) => {
            files.extend([("--hlog", &measure.hlog), ("--csv", &measure.csv)]);
            let quiet = measure.warm_up + measure.duration;
            (&measure.on, measure.remote_arguments(), quiet)
        }
        Command::Domains(domains) => (&domains.on, domains.remote_arguments(), Nanos::ZERO),
        Command::Release(release) => (&release.on, release.remote_arguments(), Nanos::ZERO),
        Command::Block(block) => (&block.on, block.remote_arguments(), block.blocks.longest()),
        Command::Blocktest(test) => (&test.on, test.remote_arguments(), test.blocks.longest()),
        _ => return None,
    };
    if on.is_local() {
        return None;
    }
    if let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) {
        return Some(Err(Failure::usage(format!(
            "{name}: no file is copied back from {}; fix: use --json; fix: rampart evaluate --on {}",
            on.on, on.on
        ))));
    }
    let patience = Patience::with_quiet(Duration::from_nanos(quiet.0));
    Some(relay(on, arguments, patience, colour))
}

/// Runs the command there, with its output and its exit code here.
fn relay(
    on: &On,
    arguments: Vec<String>,
    patience: Patience,
    colour: bool,
) -> Result<ExitCode, Failure> {
    let stop = signals::stop_flag()?;
    let Some(elsewhere) = on.connect(&stop, None)? else {
        return Ok(ExitCode::Success);
    };
    let machine = elsewhere.machine();
    let carried = carry(machine, &programs()?)?;
    let mut argv = vec![carried.rampart, "--color".to_owned()];
    argv.push(if colour { "always" } else { "never" }.to_owned());
    argv.extend(arguments);
    let copy = |mut stdout| rampart_bench::relay(&mut stdout, &mut io::stdout());
    let ended = rampart_bench::run(machine, &argv, patience, &stop, copy, output::say)?;
    Ok(ExitCode::from_status(ended.status?))
}
