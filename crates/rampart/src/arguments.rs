// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. Help, man pages and shell completions all come from these definitions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rampart_evaluate::DisturbanceRequest;
use rampart_model::{Condition, CpuSet, DomainSelection, MeterKind, Nanos, SchedulingPolicy};

use crate::commands::recorded::RecordedMachine;

const EXIT_CODES_AND_ENVIRONMENT: &str = "\
Exit codes:
  0    all that was asked was done
  1    an error of the environment, or a bug
  2    the arguments or the plan make no sense; nothing was changed or measured
  3    everything was measured, and the deadline given with --deadline does not hold
  4    something that the work needs is missing, this machine does not fit the plan, `check` found a
       problem, or `status` drift from the plan; the message names it and the fix
  5    ended early, or part of it failed; what was measured is kept
  6    the machine of --on panicked, hung, ended, was lost or never came up
  130  interrupted a second time

Environment:
  RAMPART_METER          the program rampart-meter; without it the one beside this program
  RAMPART_STATE_DIR      where old values wait to be restored; without it /var/lib/rampart, and
                         for others than root $XDG_STATE_HOME/rampart or ~/.local/state/rampart
  RAMPART_GUEST_KERNEL   the kernel of guests, or a directory with boot and lib/modules; without
                         it this machine's
  RAMPART_GUEST_MODULES  the directory of that kernel's modules
  RAMPART_DEBIAN_MIRROR  where packages of the simulated machine come from: URL, or URL and
                         URL-OF-SECURITY-UPDATES
  XDG_CACHE_HOME         the simulated machine is kept in rampart/sim there; without it ~/.cache
  NO_COLOR               set: no colour";

/// Measure, compare and prove how well a Linux machine is split between real-time and ordinary
/// work
#[derive(Debug, Parser)]
#[command(name = "rampart", version, after_help = EXIT_CODES_AND_ENVIRONMENT, max_term_width = 100)]
pub(crate) struct Arguments {
    /// When to use colour; it never carries meaning alone
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
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
    /// Measure and compare the domains of this machine, idle and under load
    Evaluate(Box<Evaluate>),
    /// Run one meter
    Measure(Box<Measure>),
    /// Stop CPUs for a known time
    Block(crate::commands::block::BlockArguments),
    /// Stop CPUs and see who notices
    Blocktest(crate::commands::blocktest::BlocktestArguments),
    /// Render the results of an evaluation again, even of one that was killed
    Report(Report),
    /// Say whether this machine is fit for real-time work, and what would make it so
    Check(Check),
    /// List everything about a machine that is known to matter for real-time work
    Knobs(Knobs),
    /// List the domains that this machine can host, and for the rest why not
    Domains(Domains),
    /// Write, check and show the plan of a machine: who owns which CPU
    Plan(crate::commands::plan::PlanArguments),
    /// Run a program in a domain of the active plan
    Run(crate::commands::run::RunArguments),
    /// Move running processes or threads into a domain of the active plan
    Move(crate::commands::moving::MoveArguments),
    /// Put a wall around CPUs by hand, and run a program behind it
    Shield(crate::commands::shield::ShieldArguments),
    /// Start what the domains of the active plan run, and watch over it
    Up(crate::commands::up::UpArguments),
    /// End what `up` started
    Down(crate::commands::up::DownArguments),
    /// Make a plan real on this machine, until `rampart release`
    Apply(crate::commands::apply::ApplyArguments),
    /// Say what is true now: who owns which CPU, what runs there, what of the plan does not hold
    Status(crate::commands::status::StatusArguments),
    /// Split this arm64 machine: cells under a partitioning hypervisor
    Cell(crate::commands::cell::CellArguments),
    /// Build, boot and enter the simulated machine
    Sim(crate::commands::sim::SimArguments),
    /// Tell what rtla or cyclictest measured, read from its output
    Import(crate::commands::import::Import),
    /// Take the applied plan back, and what a killed run left changed
    Release(Release),
    /// Write a plan, or a guest, in the words of another tool
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
    /// A bar on a terminal, a line a run elsewhere
    Auto,
    Bar,
    Lines,
    None,
}

const EVALUATE_EXAMPLES: &str = "\
Examples:
  rampart evaluate                              two minutes, all domains, idle and under load
  rampart evaluate --for 1h --deadline 100us    an hour, with a deadline; exit code 3 if it fails
  rampart evaluate --loads idle,cpu@same,io     other loads, on the measured CPU or the others
  rampart evaluate --meters wakeup,noise,loop   more meters
  rampart evaluate --for 5m --disturb block     who is stopped when another domain's CPUs are
  rampart evaluate --domains host,container:podman
  rampart evaluate --plan plan.toml --before-after   what applying the plan changes
  rampart evaluate --plan plan.toml --ablate    which of its changes matter, and which backfire
  rampart evaluate --on sim --for 5m            on a simulated PREEMPT_RT machine
  rampart evaluate --on sim:aarch64             on a simulated arm64 one
  rampart evaluate --on ssh:root@board          on another machine; the results come here

Ctrl-C ends early and keeps everything; a second Ctrl-C ends at once.";

#[derive(Debug, Args)]
#[command(after_help = EVALUATE_EXAMPLES)]
pub(crate) struct Evaluate {
    /// Total time; without it 2m, and 4m on an emulated machine
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<Nanos>,

    /// The limit that verdicts use; without it the meter's own period
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<Nanos>,

    /// Domains: host, task, container, container:podman, container:docker, vm, vm:noisy (a
    /// neighbour, loaded and not measured), vm:tcg (emulated); one named twice is there twice. With
    /// --plan also names of its domains
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) domains: Vec<String>,

    #[command(flatten)]
    pub(crate) plan: crate::commands::evaluate_plan::PlanOptions,

    /// Loads: idle, cpu, memory, cache, io, each with @same or @others for its place, or `all`
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = loads)]
    pub(crate) loads: Vec<Loads>,

    /// What is done to one domain while the others are watched: block, cpu, memory, cache, io, in
    /// every domain, or in one, as in block:host, cache:task, block:under:vm; crash:host, at the
    /// end, on another machine; or `none`. Without it block, cache and cpu (block and cache on an
    /// emulated machine), where real-time policies are granted, and on `sim` crash:host
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) disturb: Option<Vec<Wish>>,

    /// Meters: wakeup, noise, fwq, loop, and in a cell without an operating system irq and mmio;
    /// the page leads with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) meters: Vec<MeterKind>,

    /// The real-time CPUs; without it those that are isolated, or the last cores: one, and where
    /// domains are disturbed one for each of them beside the host
    #[arg(long, value_name = "CPUS", conflicts_with = "plan")]
    pub(crate) cpus: Option<CpuSet>,

    /// Policy of the measuring threads: other, fifo:N, rr:N, deadline:RUNTIME/DEADLINE/PERIOD
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<SchedulingPolicy>,

    /// Period of `wakeup` and `loop`; without it 500us, and 4ms on an emulated machine
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<Nanos>,

    /// Length of the quantum of `fwq` and of the work of `loop`
    #[arg(long, value_name = "TIME")]
    pub(crate) work: Option<Nanos>,

    /// Seed of the order of runs and of the resampling
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Name the causes of the worst samples of each run, from the kernel's own trace (as root)
    #[arg(long)]
    pub(crate) explain: bool,

    /// Directory for the results; without it one named after the time, here. `-`: a tar stream on
    /// standard output, in which every file comes each time it is written
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,

    /// Allow crash:host on the machine named with --on ssh:HOST
    #[arg(long, help_heading = "Another machine")]
    pub(crate) allow_crash: bool,

    /// Make the kernel of this machine panic at the end; the near side of --on says it
    #[arg(long, hide = true)]
    pub(crate) crash_host: bool,

    /// Print the evaluation document instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// How to show progress
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) show_progress: ShowProgress,
}

/// One entry of `--disturb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Disturbance(DisturbanceRequest),
    /// The kernel of the host panics.
    Crash,
}

impl std::str::FromStr for Wish {
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
  rampart measure wakeup                          every usable CPU, FIFO 80, 1 ms, 10 s
  rampart measure wakeup --cpus 1 --interval 200us --for 1h --hlog wakeup.hlog
  rampart measure wakeup --cpus 2,3 --interval 250us,1ms
  rampart measure wakeup --explain                what caused the ten worst
  rampart measure wakeup --policy deadline:200us/1ms/1ms
  rampart measure wakeup --domain vm --cpus 1     in a KVM guest on CPU 1
  rampart measure noise --cpus 1 --policy fifo:1
  rampart measure loop --interval 1ms --work 300us --deadline 500us
  rampart measure fwq --work 1ms --json";

#[derive(Debug, Args)]
#[command(after_help = MEASURE_EXAMPLES)]
pub(crate) struct Measure {
    /// wakeup, noise, fwq or loop; irq or mmio with --domain cell
    pub(crate) meter: MeterKind,

    /// Measure on these CPUs; without it on all that may be used
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuSet>,

    /// Keep the rest of the program on these CPUs; without it on those not measured
    #[arg(long, value_name = "CPUS")]
    pub(crate) housekeeping: Option<CpuSet>,

    /// Measure inside a domain: host, task, container, container:podman, container:docker, vm,
    /// vm:tcg (emulated)
    #[arg(long, value_name = "DOMAIN", default_value = "host")]
    pub(crate) domain: DomainSelection,

    /// other, fifo:N, rr:N or deadline:RUNTIME/DEADLINE/PERIOD; without it fifo:80 for wakeup and
    /// loop, other for noise and fwq
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<SchedulingPolicy>,

    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    pub(crate) duration: Nanos,

    /// How long to run before; shown, not mixed in
    #[arg(long, value_name = "DURATION", default_value = "500ms")]
    pub(crate) warm_up: Nanos,

    /// Period of `wakeup` and `loop`, from 20us; one for all CPUs, or one for each, with commas
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        value_delimiter = ','
    )]
    pub(crate) interval: Vec<Nanos>,

    /// Wake all threads at the same moments
    #[arg(long)]
    pub(crate) aligned: bool,

    /// Shortest gap that `noise` keeps
    #[arg(long, value_name = "TIME")]
    pub(crate) threshold: Option<Nanos>,

    /// Length of the quantum of `fwq` and of the work of `loop`
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub(crate) work: Nanos,

    /// Count samples over this; for `loop` the deadline (its period if not given)
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<Nanos>,

    /// How many of the worst samples to keep for each CPU
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub(crate) worst: u32,

    /// Name the causes of the worst samples, from the kernel's own trace (as root)
    #[arg(long)]
    pub(crate) explain: bool,

    /// Do not lock memory; page faults may then be measured
    #[arg(long)]
    pub(crate) no_memory_lock: bool,

    /// Print the measurement as a JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a histogram log (HdrHistogram), one interval a second, while measuring
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,

    /// Write the distributions as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// How to show progress
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) show_progress: ShowProgress,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for this terminal
    Terminal,
    /// One self-contained page
    Html,
    /// The evaluation document
    Json,
    /// JUnit XML, a test case a verdict
    Junit,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rampart report rampart-results-20260101-120000\n  rampart report DIR --format html --output page.html\n  rampart report DIR --format junit > verdicts.xml"
)]
pub(crate) struct Report {
    /// Directory that `rampart evaluate` made, or its evaluation.json
    pub(crate) results: PathBuf,

    /// What to render
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    pub(crate) format: Format,

    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Domains {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: crate::commands::on::On,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Print what was restored as JSON
    #[arg(long)]
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
    /// What rampart-meter reads
    MeterRequest,
    /// What rampart-meter writes
    MeterEvent,
    /// What `rampart-meter block` reads
    BlockerRequest,
    /// What `rampart-meter block` writes
    BlockerEvent,
    /// Output of `rampart block --json`
    Block,
    /// Output of `rampart blocktest --json`
    Blocktest,
    /// domains/NAME.json in the state directory: what `rampart up` keeps of a domain
    SupervisedDomain,
    /// A plan; it is TOML, and its values are those of JSON
    Plan,
    /// Output of `rampart plan show --json`
    ResolvedPlan,
    /// Output of `rampart status --json`
    Status,
    /// Output of `rampart cell describe --json`
    CellDescription,
    /// One entry of `rampart cell list --json` and `rampart cell stats --json`
    Cell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart check                     this machine, with the CPUs that `evaluate` would take
  rampart check --cpus 2-3 -v       with these CPUs, and all that is as it should be
  rampart check --json > check.json

It changes nothing. Exit codes: 0 no problem, whatever the advice; 4 at least one problem.")]
pub(crate) struct Check {
    /// The real-time CPUs; without it those that are isolated, or the last of the strongest cores
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuSet>,

    /// Print the check as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) recorded: RecordedMachine,

    /// Show what is as wanted too, and each place that is not
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart knobs                     all, by group
  rampart knobs timer-migration     one in full")]
pub(crate) struct Knobs {
    /// The one to show in full
    pub(crate) name: Option<String>,

    /// Print them as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,

    /// Print the page docs/knobs.md
    #[arg(long, conflicts_with = "name")]
    pub(crate) markdown: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Which document
    #[arg(default_value = "evaluation")]
    pub(crate) document: Document,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rampart completions bash > /etc/bash_completion.d/rampart")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rampart man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The directory
    pub(crate) directory: PathBuf,
}
