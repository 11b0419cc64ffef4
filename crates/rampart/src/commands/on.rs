// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--on`: runs a command on another machine, with its output here.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use rampart_agent::AgentOutput;
use rampart_bench::sim::{
    Architecture, Image, Joined, Sim, SimOptions, USUAL_CPUS, USUAL_MEBIBYTES,
};
use rampart_bench::{
    BenchMachine, BenchSelection, EvaluationBench, Programs, SilenceLimits, Ssh, TrackedStream,
    copy_programs, has_terminal, run_with_standard_streams,
};
use rampart_model::{CpuList, ExitCode, Nanos, ResolvedPlan};

use super::plan::{Action, refuse_existing, write_page, write_plan};
use super::plan_argument::PlanArgument;
use super::recorded::RecordedMachine;
use crate::arguments::Command;
use crate::failure::{Failure, code_of};
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
                architecture), sim:imx8mp (a board) or ssh:[USER@]HOST[:PORT]"
    )]
    pub(crate) on: BenchSelection,

    /// Number of CPUs of the simulated machine [default: 5, or all of a board
    /// with fewer]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sim_cpus: Option<u32>,

    /// Memory of the simulated machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = USUAL_MEBIBYTES)]
    pub(crate) sim_memory: u64,

    /// CPUs that its kernel isolates (isolcpus, nohz_full, rcu_nocbs,
    /// irqaffinity), or none [default: all but the first]
    #[arg(long, value_name = "CPUS", value_parser = super::sim::real_time_cpus)]
    pub(crate) sim_real_time_cpus: Option<CpuList>,

    /// Arguments to add to its kernel command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub(crate) sim_append: Option<String>,
}

impl On {
    pub(crate) fn is_local(&self) -> bool {
        self.on == BenchSelection::Local
    }

    /// Returns whether the options describe a simulated machine other than the usual one.
    fn describes_a_machine(&self) -> bool {
        self.sim_cpus.is_some_and(|cpus| cpus != USUAL_CPUS)
            || self.sim_memory != USUAL_MEBIBYTES
            || self.sim_real_time_cpus.is_some()
            || self.sim_append.is_some()
    }

    /// Connects to the machine or boots it. Returns `None` if it is this one. `after_panic` is how
    /// long a simulated machine is watched after its kernel has panicked.
    pub(crate) fn connect(
        &self,
        stop: &AtomicBool,
        after_panic: Option<Duration>,
    ) -> Result<Option<Box<dyn EvaluationBench>>, Failure> {
        match &self.on {
            BenchSelection::Local => Ok(None),
            BenchSelection::Ssh(host) => {
                let ssh = Ssh::connect(host, &programs()?, stop)?;
                Ok(Some(Box::new(ssh)))
            }
            BenchSelection::Sim(_) => {
                let Some(architecture) = self.on.simulated()? else {
                    return Ok(None);
                };
                let cpus = self.sim_cpus.unwrap_or(architecture.usual_cpus());
                let mut options = sim_options(architecture)?.with_cpus(cpus);
                options.mebibytes = self.sim_memory;
                if let Some(real_time) = &self.sim_real_time_cpus {
                    options.real_time = super::sim::cpus_there(real_time, cpus)?;
                }
                options.append.clone_from(&self.sim_append);
                if let Some(after_panic) = after_panic {
                    options.after_panic = after_panic;
                }
                let image = image_for(architecture, &mut options)?;
                if options.lacks_modules_for(&image.record().kernel_release) {
                    output::eprint(&format!(
                        "warning: no kernel module for {}, so a spinning thread injects the \
                         blocks; fix: rampart sim build{}",
                        image.record().kernel_release,
                        architecture.option()
                    ));
                }
                output::eprint(&format!(
                    "Booting the simulated machine: Linux {}, {} CPUs",
                    image.record().kernel_release,
                    options.cpus
                ));
                let sim = Sim::boot_unless(stop, image, options)?;
                super::sim::print_notes(&sim);
                Ok(Some(Box::new(sim)))
            }
        }
    }
}

/// Returns the default options of a simulated machine, with the programs and modules of this one.
pub(super) fn sim_options(architecture: &'static Architecture) -> Result<SimOptions, Failure> {
    let programs = programs()?;
    let meter = programs.meter_for(architecture.processor(), &architecture.bench_name())?;
    let firmware = programs.firmware();
    Ok(SimOptions {
        firmware,
        ..SimOptions::new(architecture, meter, programs.modules())
    })
}

/// Returns the image of a simulated machine, with the machine prepared for cells, as every command that boots one has
/// it. Builds the image if there is none.
pub(super) fn image_for(
    architecture: &'static Architecture,
    options: &mut SimOptions,
) -> Result<Image, Failure> {
    let image = Sim::image(architecture, &mut super::sim::build_progress())?;
    options.hold_cells(&programs()?.hypervisor(), &image.kernel());
    Ok(image)
}

/// Returns the programs that another machine needs.
pub(crate) fn programs() -> Result<Programs, Failure> {
    Ok(Programs {
        rampart: std::env::current_exe()?,
        meter: super::meter_program()?,
    })
}

/// A command on another machine.
#[derive(Debug)]
struct Remote<'a> {
    on: &'a On,
    /// Its command line there.
    arguments: Vec<String>,
    /// The longest time without output.
    quiet: Duration,
    result: CommandResult<'a>,
    /// Whether what it changes there is lost with a machine that is booted for it.
    needs_lasting_machine: bool,
}

/// What a command does with its standard output.
#[derive(Debug)]
enum CommandResult<'a> {
    Printed,
    /// It is a view on this terminal.
    View,
    /// A proposed plan, for a file here.
    Plan(&'a Path),
    /// A resolved plan, for a page here.
    Page {
        page: &'a Path,
        plan: &'a PlanArgument,
        json: bool,
    },
}

/// Returns the `--on` options of a command that only needs to be started there; `None` if it has
/// none or runs itself elsewhere, like `evaluate`.
fn options(command: &Command) -> Option<&On> {
    match command {
        Command::Measure(measure) => Some(&measure.on),
        Command::Domains(domains) => Some(&domains.on),
        Command::Release(release) => Some(&release.on),
        Command::Block(block) => Some(&block.on),
        Command::Blocktest(test) => Some(&test.on),
        Command::Check(check) => Some(&check.on),
        Command::Knobs(knobs) => Some(&knobs.on),
        Command::Apply(apply) => Some(&apply.on),
        Command::Status(status) => Some(&status.on),
        Command::Plan(plan) => Some(plan.on()),
        _ => None,
    }
}

/// Runs a command on the machine of its `--on` option. Returns `None` if the command is for this
/// machine or runs itself elsewhere, like `evaluate`.
pub(crate) fn elsewhere(
    command: &Command,
    colour: bool,
) -> Option<Result<std::process::ExitCode, Failure>> {
    let on = options(command)?;
    if on.is_local() {
        return None;
    }
    Some(Remote::of(command, on).and_then(|remote| remote.run(colour)))
}

impl<'a> Remote<'a> {
    fn of(command: &'a Command, on: &'a On) -> Result<Self, Failure> {
        let mut remote = Self {
            on,
            arguments: Vec::new(),
            quiet: Duration::ZERO,
            result: CommandResult::Printed,
            needs_lasting_machine: false,
        };
        let mut files: Vec<(&str, &Option<PathBuf>)> = Vec::new();
        let mut recorded = None;
        let quiet = |time: Nanos| Duration::from_nanos(time.0);
        remote.arguments = match command {
            Command::Measure(measure) => {
                files.extend([("--hlog", &measure.hlog), ("--csv", &measure.csv)]);
                remote.quiet = quiet(measure.warm_up + measure.duration);
                measure.remote_arguments()
            }
            Command::Domains(domains) => domains.remote_arguments(),
            Command::Release(release) => release.remote_arguments(),
            Command::Block(block) => {
                remote.quiet = quiet(block.blocks.longest());
                block.remote_arguments()
            }
            Command::Blocktest(test) => {
                remote.quiet = quiet(test.blocks.longest());
                test.remote_arguments()
            }
            Command::Check(check) => {
                recorded = Some(&check.recorded);
                check.remote_arguments()
            }
            Command::Knobs(knobs) => knobs.remote_arguments(),
            Command::Apply(apply) => {
                recorded = Some(&apply.recorded);
                remote.needs_lasting_machine = !apply.dry_run;
                apply.remote_arguments()?
            }
            Command::Status(status) => {
                files.push(("--out", &status.out));
                // Without a scrape `--serve` prints nothing.
                remote.quiet = match &status.serve {
                    Some(_) => Duration::MAX,
                    None => quiet(status.interval),
                };
                if status.watch {
                    remote.result = CommandResult::View;
                }
                status.remote_arguments()
            }
            Command::Plan(plan) => {
                recorded = Some(plan.recorded());
                match &plan.action {
                    Action::Propose(propose) => {
                        if let Some(file) = &propose.out {
                            refuse_existing(file)?;
                            remote.result = CommandResult::Plan(file);
                        }
                        propose.remote_arguments()
                    }
                    Action::Check(check) => check.remote_arguments()?,
                    Action::Show(show) => {
                        if let Some(page) = &show.html {
                            let (plan, json) = (&show.plan, show.json);
                            remote.result = CommandResult::Page { page, plan, json };
                        }
                        show.remote_arguments()?
                    }
                }
            }
            _ => Vec::new(),
        };
        if let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) {
            return Err(Failure::usage(format!(
                "{name}: no file is copied back from {}; fix: use --json; fix: rampart evaluate \
                 --on {}",
                on.on, on.on
            )));
        }
        if recorded.is_some_and(RecordedMachine::is_given) {
            return Err(Failure::usage(format!(
                "--machine: a recorded machine is read here, not on {}; fix: leave out --on",
                on.on
            )));
        }
        Ok(remote)
    }

    /// Runs the command there, with its output and its exit code here.
    fn run(&self, colour: bool) -> Result<std::process::ExitCode, Failure> {
        if matches!(self.result, CommandResult::View) {
            if !has_terminal() {
                return Err(super::status::needs_terminal());
            }
            let machine = self.machine(&AtomicBool::new(false))?;
            let argv = self.command_line(machine.as_ref(), colour)?;
            let status = run_with_standard_streams(machine.as_ref(), argv, true, output::eprint)?;
            return Ok(code_of(status));
        }
        let stop = signals::stop_flag()?;
        let machine = self.machine(&stop)?;
        let argv = self.command_line(machine.as_ref(), colour)?;
        let limits = SilenceLimits::with_quiet(self.quiet);
        let is_printed = matches!(self.result, CommandResult::Printed);
        let read = |mut stdout: TrackedStream<AgentOutput>| {
            let mut document = Vec::new();
            let read = match is_printed {
                true => rampart_bench::relay(&mut stdout, &mut io::stdout()),
                false => stdout.read_to_end(&mut document).map(|_| ()),
            };
            read.map(|()| document)
        };
        let ended =
            rampart_bench::run(machine.as_ref(), &argv, limits, &stop, read, output::eprint)?;
        let code = ExitCode::from_status(ended.status?);
        if !is_printed {
            self.keep(code, &ended.output?)?;
        }
        Ok(code.into())
    }

    fn command_line(
        &self,
        machine: &dyn BenchMachine,
        colour: bool,
    ) -> Result<Vec<String>, Failure> {
        let copied = copy_programs(machine, &programs()?)?;
        let colour = if colour { "always" } else { "never" };
        let mut argv = vec![copied.rampart, "--color".to_owned(), colour.to_owned()];
        argv.extend_from_slice(&self.arguments);
        Ok(argv)
    }

    /// Writes a document that the command printed there into its file here.
    fn keep(&self, code: ExitCode, document: &[u8]) -> Result<(), Failure> {
        match self.result {
            CommandResult::Plan(file) if code == ExitCode::Success => {
                let text = String::from_utf8_lossy(document);
                write_plan(file, &text, &format!(" --on {}", self.on.on))
            }
            // Without a document the error is on standard error.
            CommandResult::Page { page, plan, json } if !document.is_empty() => {
                let resolved: ResolvedPlan = serde_json::from_slice(document)?;
                write_page(page, &resolved, plan)?;
                if json {
                    output::print_json(&resolved)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Connects to the machine. A simulated one is that of `rampart sim up`; without one, or if
    /// options describe another, it is booted for this command.
    fn machine(&self, stop: &AtomicBool) -> Result<Box<dyn BenchMachine>, Failure> {
        if let Some(architecture) = self.on.on.simulated()? {
            if !self.on.describes_a_machine()
                && let Some(joined) = Joined::join(architecture)?
            {
                return Ok(Box::new(joined));
            }
            if self.needs_lasting_machine {
                return Err(Failure::precondition(format!(
                    "--on {}: the simulated machine would end with this command, and its plan \
                     too; fix: rampart sim up{}{}; fix: add --dry-run",
                    self.on.on,
                    architecture.option(),
                    if self.on.describes_a_machine() {
                        ", which takes the options of the machine without `sim-`"
                    } else {
                        ""
                    }
                )));
            }
        }
        match self.on.connect(stop, None)? {
            Some(machine) => Ok(machine),
            None => Err(Failure::usage("--on local: no other machine is named")),
        }
    }
}
