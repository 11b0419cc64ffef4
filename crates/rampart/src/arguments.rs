// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. Help, man pages and shell completions all come from these definitions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rampart_evaluate::DisturbanceRequest;
use rampart_model::{Condition, CpuList, DomainSelection, MeterKind, Nanos, SchedulingPolicy};

use crate::commands::recorded::RecordedMachine;

const AFTER_HELP: &str = "\
Values:
  CPUS    list of the kernel: 2, 1,4-7, 0-7:1/2 (every second), 2-N (to the
          last), all
  TIME, DURATION
          number with a unit: 100us, 1ms, 90s, 2m, 1h
  POLICY  other, fifo:80, rr:10 or deadline:RUNTIME/DEADLINE/PERIOD, also with
          the names of sched(7): SCHED_FIFO:80

Exit codes:
  0    everything requested was done
  1    an error of the environment, or a bug
  2    the arguments or the plan are invalid; nothing was changed or measured
  3    everything was measured, and a deadline that you gave was missed or is
       not decided
  4    something that the work needs is missing, the machine does not fit the
       plan, `check` found an error, or `status` found a difference from the
       plan; the message names it and the fix
  5    ended early, or a part failed; the results are kept
  6    the machine of --on panicked, hung, ended or did not boot
  130  interrupted a second time

Environment:
  RAMPART_METER          path of rampart-meter [default: beside rampart, or
                         in ../libexec/rampart from there]
  RAMPART_STATE_DIR      directory of saved values, which `release` restores
                         [default: /var/lib/rampart; without root
                         $XDG_STATE_HOME/rampart or ~/.local/state/rampart]
  RAMPART_GUEST_KERNEL   kernel of guests, or a directory that contains boot
                         and lib/modules [default: the kernel of this machine]
  RAMPART_GUEST_MODULES  directory of the modules of that kernel
  RAMPART_DEBIAN_MIRROR  mirror of the packages of the simulated machine: URL,
                         or URL and URL-OF-SECURITY-UPDATES
  XDG_CACHE_HOME         the simulated machine is kept in rampart/sim there
                         [default: ~/.cache]
  NO_COLOR               if set, output has no colour

Examples:
  rampart check                         check this machine for real-time work
  rampart evaluate                      measure all domains in 2 to 6 minutes
  rampart plan propose --out plan.toml  write a plan for this machine
  rampart apply plan.toml               apply it
  rampart evaluate --plan plan.toml     measure its domains";

/// Split a machine between real-time and ordinary work, and measure the split
#[derive(Debug, Parser)]
#[command(name = "rampart", version, after_help = AFTER_HELP, max_term_width = 80)]
pub(crate) struct Arguments {
    /// When to use colour
    #[arg(
        long,
        global = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Output"
    )]
    pub(crate) color: Color,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure and compare the domains of a machine, idle and under load
    Evaluate(Box<Evaluate>),
    /// Run one meter in one domain
    Measure(Box<Measure>),
    /// Stop CPUs for a set time
    Block(crate::commands::block::BlockArguments),
    /// Stop CPUs and measure which other CPUs are affected
    Blocktest(crate::commands::blocktest::BlocktestArguments),
    /// Show the results of an evaluation, also of one that was killed
    Report(Report),
    /// Check whether a machine is fit for real-time work, and list the fixes
    Check(Check),
    /// List the settings that `check` reads, or show one and its value here
    Knobs(Knobs),
    /// List the domains that this machine can host
    Domains(Domains),
    /// Write, check and show a plan: the domains of a machine and their CPUs
    Plan(crate::commands::plan::PlanArguments),
    /// Run a program in a domain of the active plan
    Run(crate::commands::run::RunArguments),
    /// Move running processes or threads into a domain of the active plan
    Move(crate::commands::moving::MoveArguments),
    /// Isolate CPUs without a plan file and run a program on them
    Shield(crate::commands::shield::ShieldArguments),
    /// Start and supervise the programs of the active plan
    Up(crate::commands::up::UpArguments),
    /// Stop the programs that `up` started
    Down(crate::commands::up::DownArguments),
    /// Apply a plan to this machine until `rampart release`
    Apply(crate::commands::apply::ApplyArguments),
    /// Show the CPUs, their programs, and differences from the active plan
    Status(crate::commands::status::StatusArguments),
    /// Partition an arm64 machine into cells under a hypervisor
    Cell(crate::commands::cell::CellArguments),
    /// List, take and give CPUs on which threads run detached from Linux
    Detach(crate::commands::detach::DetachArguments),
    /// Build and run the simulated machine
    Sim(crate::commands::sim::SimArguments),
    /// Show a measurement of rtla or cyclictest from its output
    Import(crate::commands::import::Import),
    /// Undo the active plan and the changes of killed runs
    Release(Release),
    /// Write a plan or a guest as configuration of another tool
    Export(crate::commands::export::Export),
    /// Print the JSON Schema of a document
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write the man pages into a directory
    Man(Man),
}

/// When and how progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowProgress {
    /// A bar on a terminal, otherwise a line for each run
    Auto,
    Bar,
    Lines,
    None,
}

const EVALUATE_EXAMPLES: &str = "\
Ctrl-C ends early and keeps every result; a second Ctrl-C ends at once.

Examples:
  rampart evaluate                            all domains in two to six minutes
  rampart evaluate --for 1h --deadline 100us  exit code 3 if it is not met
  rampart evaluate --loads idle,cpu@same,io   other loads and their CPUs
  rampart evaluate --meters wakeup,noise,loop
  rampart evaluate --for 5m --disturb block   which domains a block reaches
  rampart evaluate --domains host,container:podman
  rampart evaluate --plan plan.toml --before-after
                                              effects of applying a plan
  rampart evaluate --plan plan.toml --ablate  which of its changes matter
  rampart evaluate --on sim --for 5m          on a simulated machine
  rampart evaluate --on sim:aarch64           on a simulated arm64 machine
  rampart evaluate --on ssh:root@board        on another machine";

#[derive(Debug, Args)]
#[command(after_help = EVALUATE_EXAMPLES, next_help_heading = "Measurement")]
pub(crate) struct Evaluate {
    /// Total time [default: 2m, and up to 6m for comparisons that are not decided
    /// then; 4m on an emulated machine]
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<Nanos>,

    /// Measure on until all comparisons are decided, for at most this total
    /// time [default without a value: 30m; default with --for: not beyond --for]
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30m"
    )]
    pub(crate) until_decided: Option<Nanos>,

    /// Deadline to judge [default: none; the report names the round deadline that
    /// would have been met]
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<Nanos>,

    /// Domains: host, task, container, container:podman, container:docker, vm,
    /// vm:noisy (a noisy neighbour: loaded, not measured), vm:tcg (emulated),
    /// detached, cell; one named twice runs twice. With --plan also its domains
    /// [default: all that suit this machine; the report lists the others]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) domains: Vec<String>,

    /// Loads: idle, cpu, memory, cache, io, each with @same or @others for its
    /// CPUs; or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = loads)]
    pub(crate) loads: Vec<Loads>,

    /// Disturbances of one domain while the others are measured: block, cpu,
    /// memory, cache, io, in every domain or in one (block:host, cache:task,
    /// block:under:vm); crash:host at the end, on another machine; or none
    /// [default: block,cache,cpu; on an emulated machine block; none
    /// without real-time policies; with --on sim also crash:host]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) disturb: Option<Vec<DisturbArgument>>,

    /// Meters: wakeup, noise, fwq, loop; in a cell without an operating system
    /// also irq and mmio. The report begins with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) meters: Vec<MeterKind>,

    /// Real-time CPUs [default: the isolated ones, or the last cores: one, and
    /// with disturbances one for each domain but the host]
    #[arg(
        long,
        value_name = "CPUS",
        conflicts_with = "plan",
        help_heading = "How to measure"
    )]
    pub(crate) cpus: Option<CpuList>,

    /// Scheduling policy of the measuring threads: other, fifo:N, rr:N or
    /// deadline:RUNTIME/DEADLINE/PERIOD
    #[arg(long, value_name = "POLICY", help_heading = "How to measure")]
    pub(crate) policy: Option<SchedulingPolicy>,

    /// Period of wakeup and loop [default: 500us; 4ms on an emulated machine]
    #[arg(long, value_name = "TIME", help_heading = "How to measure")]
    pub(crate) interval: Option<Nanos>,

    /// Length of the quantum of fwq and of the work of loop
    #[arg(long, value_name = "TIME", help_heading = "How to measure")]
    pub(crate) work: Option<Nanos>,

    /// Seed of the order of runs and of the resampling [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "How to measure")]
    pub(crate) seed: Option<u64>,

    /// Find the causes of the worst samples in the kernel's trace (as root)
    #[arg(long, help_heading = "How to measure")]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) plan: crate::commands::evaluate_plan::PlanOptions,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,

    /// Allow crash:host on the machine of --on ssh:HOST
    #[arg(long, help_heading = "Another machine")]
    pub(crate) allow_crash: bool,

    /// Make the kernel of this machine panic at the end; set by `--on`
    #[arg(long, hide = true)]
    pub(crate) crash_host: bool,

    /// Number of real CPUs that run this emulated machine; set by `--on`
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) emulator_cpus: Option<u32>,

    /// Directory of the results; `-` writes a tar stream to standard output, in
    /// which a file is repeated each time it changes
    /// [default: rampart-results-TIME]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Print the evaluation document instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// How to show progress
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(crate) show_progress: ShowProgress,
}

/// One entry of `--disturb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DisturbArgument {
    Disturbance(DisturbanceRequest),
    /// Makes the kernel of the host panic.
    Crash,
}

impl std::str::FromStr for DisturbArgument {
    type Err = rampart_model::ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "crash:host" {
            Ok(Self::Crash)
        } else {
            text.parse().map(Self::Disturbance)
        }
    }
}

/// One entry of `--loads`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loads {
    One(Condition),
    All,
}

fn loads(text: &str) -> Result<Loads, rampart_model::ParseConditionError> {
    if text == "all" {
        Ok(Loads::All)
    } else {
        text.parse().map(Loads::One)
    }
}

const MEASURE_EXAMPLES: &str = "\
Examples:
  rampart measure wakeup               every usable CPU, FIFO 80, 1 ms, 10 s
  rampart measure wakeup --cpus 1 --interval 200us --for 1h --hlog wakeup.hlog
  rampart measure wakeup --cpus 2,3 --interval 250us,1ms
  rampart measure wakeup --explain     find the causes of the worst samples
  rampart measure wakeup --policy deadline:200us/1ms/1ms
  rampart measure wakeup --domain vm --cpus 1
                                       in a KVM guest on CPU 1
  rampart measure noise --cpus 1 --policy fifo:1
  rampart measure loop --interval 1ms --work 300us --deadline 500us
  rampart measure fwq --work 1ms --json";

#[derive(Debug, Args)]
#[command(after_help = MEASURE_EXAMPLES, next_help_heading = "Measurement")]
pub(crate) struct Measure {
    /// wakeup, noise, fwq or loop; irq or mmio with --domain cell
    #[arg(help_heading = clap::builder::Resettable::Reset)]
    pub(crate) meter: MeterKind,

    /// CPUs to measure [default: every usable CPU]
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuList>,

    /// CPUs of the other threads of the meter [default: CPUs not measured]
    #[arg(long, value_name = "CPUS")]
    pub(crate) housekeeping: Option<CpuList>,

    /// Domain to measure in: host, task, container, container:podman,
    /// container:docker, vm, vm:tcg (emulated), detached, cell
    #[arg(long, value_name = "DOMAIN", default_value = "host")]
    pub(crate) domain: DomainSelection,

    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    pub(crate) duration: Nanos,

    /// Length of the warm-up, which is reported separately
    #[arg(long, value_name = "DURATION", default_value = "500ms")]
    pub(crate) warm_up: Nanos,

    /// Scheduling policy: other, fifo:N, rr:N or
    /// deadline:RUNTIME/DEADLINE/PERIOD [default: fifo:80 for wakeup and loop,
    /// other for noise and fwq]
    #[arg(long, value_name = "POLICY", help_heading = "Meter")]
    pub(crate) policy: Option<SchedulingPolicy>,

    /// Period of wakeup and loop, at least 20us: one for all CPUs, or a list
    /// with one for each CPU
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        value_delimiter = ',',
        help_heading = "Meter"
    )]
    pub(crate) interval: Vec<Nanos>,

    /// Wake all threads at the same times
    #[arg(long, help_heading = "Meter")]
    pub(crate) aligned: bool,

    /// Shortest gap that noise records [default: calibrated]
    #[arg(long, value_name = "TIME", help_heading = "Meter")]
    pub(crate) threshold: Option<Nanos>,

    /// Length of the quantum of fwq and of the work of loop
    #[arg(
        long,
        value_name = "TIME",
        default_value = "100us",
        help_heading = "Meter"
    )]
    pub(crate) work: Nanos,

    /// Count samples above this; for loop its deadline [default: none; for loop
    /// its period]
    #[arg(long, value_name = "TIME", help_heading = "Meter")]
    pub(crate) deadline: Option<Nanos>,

    /// Number of worst samples to keep for each CPU
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 20,
        help_heading = "Meter"
    )]
    pub(crate) worst: u32,

    /// Find the causes of the worst samples in the kernel's trace (as root)
    #[arg(long, help_heading = "Meter")]
    pub(crate) explain: bool,

    /// Do not lock memory; page faults may then be measured
    #[arg(long, help_heading = "Meter")]
    pub(crate) no_memory_lock: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,

    /// Print the measurement as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Write a histogram log (HdrHistogram) with one interval each second
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) hlog: Option<PathBuf>,

    /// Write the distributions as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,

    /// How to show progress
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(crate) show_progress: ShowProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for this terminal
    Terminal,
    /// One self-contained HTML page
    Html,
    /// The evaluation document
    Json,
    /// JUnit XML with one test case for each verdict
    Junit,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart report rampart-results-20260101-120000
  rampart report DIR --format html --output page.html
  rampart report DIR --format junit > verdicts.xml")]
pub(crate) struct Report {
    /// Directory of `rampart evaluate`, or its evaluation.json
    pub(crate) results: PathBuf,

    /// Format of the report
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    pub(crate) format: Format,

    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart domains
  rampart domains --on sim:aarch64")]
pub(crate) struct Domains {
    /// Print the list as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  everything is restored
  4  programs of the plan are running (`rampart down` stops them), or another
     process is changing the machine
  5  something was not restored; the output names it

Examples:
  rampart release
  rampart release --on ssh:root@board")]
pub(crate) struct Release {
    /// Print the restored values as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// evaluation.json of `rampart evaluate`
    Evaluation,
    /// Output of `rampart measure --json`
    Measurement,
    /// Output of `rampart check --json`
    Check,
    /// Output of `rampart knobs --json`
    Knobs,
    /// Input of rampart-meter
    MeterRequest,
    /// Output of rampart-meter
    MeterEvent,
    /// Input of `rampart-meter block`
    BlockerRequest,
    /// Output of `rampart-meter block`
    BlockerEvent,
    /// Output of `rampart block --json`
    Block,
    /// Output of `rampart blocktest --json`
    Blocktest,
    /// domains/NAME.json in the state directory, written by `rampart up`
    SupervisedDomain,
    /// A plan, which is written in TOML
    Plan,
    /// Output of `rampart plan show --json`
    ResolvedPlan,
    /// Output of `rampart status --json`
    Status,
    /// Output of `rampart cell describe --json`
    CellDescription,
    /// An entry of `rampart cell list --json` and `rampart cell stats --json`
    Cell,
    /// An entry of `rampart detach --json`
    DetachedCpu,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command changes nothing.

Exit codes:
  0  no error, whatever the warnings and notes
  4  at least one error

Examples:
  rampart check                  with the CPUs that `evaluate` would measure
  rampart check --cpus 2-3 -v    these CPUs, also correct settings
  rampart check --on ssh:root@board
  rampart check --json > check.json")]
pub(crate) struct Check {
    /// Real-time CPUs [default: the isolated ones, or the last of the fastest
    /// cores]
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuList>,

    #[command(flatten)]
    pub(crate) recorded: RecordedMachine,

    /// Also show correct settings, and each location of a wrong one
    #[arg(short, long, help_heading = "Output")]
    pub(crate) verbose: bool,

    /// Print the check as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart knobs                      all settings by group
  rampart knobs timer-migration      one setting: its value on this machine, the
                                     expected one, reason, cost, source
  rampart knobs sched_rt_runtime_us  by the name of the kernel
  rampart knobs isolcpus --on ssh:root@board")]
pub(crate) struct Knobs {
    /// Setting to show in full: its name, or that of the kernel, such as a boot
    /// parameter, a sysctl, a file or a kernel thread
    pub(crate) name: Option<String>,

    /// Print the settings as JSON
    #[arg(long, conflicts_with = "markdown", help_heading = "Output")]
    pub(crate) json: bool,

    /// Print docs/knobs.md
    #[arg(long, conflicts_with = "name", help_heading = "Output")]
    pub(crate) markdown: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart schema                   of the evaluation document
  rampart schema plan > plan.schema.json")]
pub(crate) struct Schema {
    /// Document to describe
    #[arg(default_value = "evaluation")]
    pub(crate) document: Document,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rampart completions bash > /etc/bash_completion.d/rampart")]
pub(crate) struct Completions {
    /// Shell of the script
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rampart man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Directory of the pages
    pub(crate) directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Calls `visit` for a command and all its subcommands, with the name as typed.
    fn visit(name: &str, command: &mut clap::Command, check: &mut impl FnMut(&str, &str)) {
        check(name, &command.render_long_help().to_string());
        for subcommand in command.get_subcommands_mut() {
            if subcommand.get_name() != "help" {
                visit(
                    &format!("{name} {}", subcommand.get_name()),
                    subcommand,
                    check,
                );
            }
        }
    }

    #[test]
    fn help_fits_80_columns_and_ends_with_examples() {
        let mut root = Arguments::command();
        root.build();
        let mut wrong = Vec::new();
        visit("rampart", &mut root, &mut |name, help| {
            for line in help.lines().filter(|line| line.chars().count() > 80) {
                wrong.push(format!("{name}: wider than 80 columns: {line}"));
            }
            if let Some((_, examples)) = help.split_once("\nExample") {
                let indented = |line: &str| line.is_empty() || line.starts_with("  ");
                if !examples.lines().skip(1).all(indented) || !examples.contains(name) {
                    wrong.push(format!("{name}: does not end with examples"));
                }
            } else {
                wrong.push(format!("{name}: has no example"));
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn long_lists_of_options_are_grouped() {
        let mut root = Arguments::command();
        root.build();
        let mut pending = vec![&root];
        while let Some(command) = pending.pop() {
            let loose = command
                .get_opts()
                .filter(|option| option.get_help_heading().is_none() && !option.is_hide_set());
            let loose = loose.count();
            assert!(
                loose <= 7,
                "{}: {loose} options in one list",
                command.get_name()
            );
            pending.extend(command.get_subcommands());
        }
    }

    #[test]
    fn summaries_have_no_full_stop() {
        let mut root = Arguments::command();
        root.build();
        let mut pending = vec![&root];
        while let Some(command) = pending.pop() {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            assert!(!about.is_empty() && !about.ends_with('.'), "{about}");
            pending.extend(command.get_subcommands());
        }
    }
}
