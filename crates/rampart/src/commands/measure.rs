// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart measure`: one meter, one run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use rampart_evaluate::{MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{
    Batch, CpuId, CpuList, CpuSet, DomainSelection, ExitCode, MeterKind, MeterSettings, Nanos,
    Phase, SchedulingPolicy,
};

use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::progress::{self, Style};
use crate::{output, signals};

const EXAMPLES: &str = "\
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
#[command(after_help = EXAMPLES, next_help_heading = "Measurement")]
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
    pub(crate) on: super::on::On,

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

pub(crate) fn run(arguments: &Measure) -> Result<ExitCode, Failure> {
    let program = super::meter_program()?;
    let topology = read_machine(&MachineRoot::system()).topology;
    let usable = topology.usable();
    let cpus = super::cpus_here(arguments.cpus.as_ref())?.unwrap_or_else(|| usable.clone());
    let asked = super::cpus_here(arguments.housekeeping.as_ref())?;
    let settings = settings(arguments, cpus, asked.clone());
    // A shield moves ordinary work there.
    let unmeasured = usable.difference(&settings.cpus);
    let housekeeping = asked.as_ref().unwrap_or(&unmeasured);
    let context = MeasureContext {
        meter: &program,
        housekeeping,
        histogram_log: arguments.hlog.as_deref(),
        explain: arguments.explain,
        tool_version: super::VERSION,
    };
    let stop = signals::stop_flag()?;
    let domain = rampart_domain::domain(arguments.domain);
    let mut live = LiveWorst::new(progress::style(arguments.show_progress), &settings);
    let measurement = measure(
        domain.as_ref(),
        &settings,
        &context,
        &mut |batch| live.add(batch),
        &stop,
    );
    live.bar.finish_and_clear();
    let measurement = measurement?;

    if let Some(path) = &arguments.csv {
        output::write(Some(path), &rampart_present::measurement_csv(&measurement))?;
    }
    if arguments.json {
        output::print_json(&measurement)?;
    } else {
        output::print_text(&rampart_present::measurement(&measurement))?;
    }
    for finding in &measurement.findings {
        output::finding(finding);
    }
    Ok(ExitCode::of_work(!measurement.ended_early))
}

fn settings(arguments: &Measure, cpus: CpuSet, housekeeping: Option<CpuSet>) -> MeterSettings {
    let defaults = MeterSettings::new(arguments.meter, cpus);
    MeterSettings {
        housekeeping: housekeeping.unwrap_or_default(),
        policy: arguments.policy.unwrap_or(defaults.policy),
        duration: arguments.duration,
        warm_up: arguments.warm_up,
        interval: arguments
            .interval
            .first()
            .copied()
            .unwrap_or(defaults.interval),
        intervals: if arguments.interval.len() > 1 {
            arguments.interval.clone()
        } else {
            Vec::new()
        },
        aligned: arguments.aligned,
        threshold: arguments.threshold,
        work: arguments.work,
        deadline: arguments.deadline,
        worst: arguments.worst,
        lock_memory: !arguments.no_memory_lock,
        ..defaults
    }
}

/// Shows the remaining time and the worst sample of each CPU so far.
struct LiveWorst {
    style: Style,
    bar: ProgressBar,
    whole: Nanos,
    began: Instant,
    worst: BTreeMap<CpuId, Nanos>,
}

impl LiveWorst {
    fn new(style: Style, settings: &MeterSettings) -> Self {
        let whole = settings.duration + settings.warm_up;
        let bar = progress::bar(style, whole.0 / 1_000_000);
        Self {
            style,
            bar,
            whole,
            began: Instant::now(),
            worst: BTreeMap::new(),
        }
    }

    /// Adds a batch of samples; without one only the time is updated.
    fn add(&mut self, batch: Option<&Batch>) {
        if let Some(batch) = batch.filter(|batch| batch.phase == Phase::Measured) {
            let max = batch
                .series
                .first()
                .and_then(|series| series.seen.max)
                .unwrap_or_default();
            let worst = self.worst.entry(batch.cpu).or_default();
            *worst = max.max(*worst);
        }
        if self.style != Style::Bar {
            return;
        }
        let elapsed = Nanos::from(self.began.elapsed()).min(self.whole);
        self.bar.set_position(elapsed.0 / 1_000_000);
        // The line has space for four CPUs.
        let mut shown: Vec<(CpuId, Nanos)> = self
            .worst
            .iter()
            .map(|(cpu, worst)| (*cpu, *worst))
            .collect();
        shown.sort_by_key(|(_, worst)| std::cmp::Reverse(*worst));
        let words: Vec<String> = shown
            .iter()
            .take(4)
            .map(|(cpu, worst)| format!("CPU {cpu} {worst}"))
            .collect();
        let remaining = Duration::from(self.whole.saturating_sub(elapsed));
        self.bar.set_message(format!(
            "{} left, worst: {}",
            progress::whole_seconds(remaining),
            words.join(", ")
        ));
    }
}
