// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart measure`: one meter, one run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rampart_evaluate::{MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{Batch, CpuId, CpuSet, ExitCode, MeterSettings, Nanos, Phase};

use crate::arguments::Measure;
use crate::failure::Failure;
use crate::progress::{self, Style};
use crate::{output, signals};

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
