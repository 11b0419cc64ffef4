// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart measure`: one meter, one run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rampart_evaluate::{MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{
    Batch, CpuId, CpuRecord, CpuSet, Distribution, ExitCode, Measurement, MeterDetail,
    MeterSettings, Nanos, Phase, Series, ThreadOutcome, plural,
};
use rampart_present::TerminalOptions;

use crate::arguments::Measure;
use crate::failure::Failure;
use crate::progress::{self, Style};
use crate::{output, signals};

pub(crate) fn run(arguments: &Measure, colour: bool) -> Result<ExitCode, Failure> {
    let program = super::meter_program()?;
    let topology = read_machine(&MachineRoot::system()).topology;
    let usable = topology.usable();
    let plan = plan(arguments, &usable);
    // A shield moves ordinary work there.
    let unmeasured = usable.difference(&plan.cpus);
    let housekeeping = arguments.housekeeping.as_ref().unwrap_or(&unmeasured);
    let context = MeasureContext {
        meter: &program,
        housekeeping,
        histogram_log: arguments.hlog.as_deref(),
        explain: arguments.explain,
        tool_version: super::VERSION,
    };
    let stop = signals::stop_flag()?;
    let domain = rampart_domain::domain(arguments.domain);
    let mut live = Live::new(progress::style(arguments.show_progress), &plan);
    let measurement = measure(
        domain.as_ref(),
        &plan,
        &context,
        &mut |batch| live.hear(batch),
        &stop,
    );
    live.bar.finish_and_clear();
    let measurement = measurement?;

    if let Some(path) = &arguments.csv {
        output::write(Some(path), &csv(&measurement))?;
    }
    if arguments.json {
        output::print_json(&measurement)?;
    } else {
        let options = TerminalOptions {
            width: output::terminal_width(),
            colour,
        };
        let started = measurement.started_monotonic;
        let causes = rampart_present::explained(&measurement.explained, started);
        let causes = rampart_present::terminal(&causes, options);
        output::print(&(text(&measurement) + &causes))?;
    }
    for finding in &measurement.findings {
        output::finding(finding);
    }
    Ok(ExitCode::of_work(!measurement.ended_early))
}

fn plan(arguments: &Measure, usable: &CpuSet) -> MeterSettings {
    let cpus = arguments.cpus.as_ref().unwrap_or(usable);
    let defaults = MeterSettings::new(arguments.meter, cpus.clone());
    MeterSettings {
        housekeeping: arguments.housekeeping.clone().unwrap_or_default(),
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

/// What a person sees while it runs: the worst so far on each CPU.
struct Live {
    style: Style,
    bar: ProgressBar,
    whole: Nanos,
    began: Instant,
    worst: BTreeMap<CpuId, Nanos>,
}

impl Live {
    fn new(style: Style, plan: &MeterSettings) -> Self {
        let whole = plan.duration + plan.warm_up;
        let bar = progress::bar(style, whole.0 / 1_000_000);
        Self {
            style,
            bar,
            whole,
            began: Instant::now(),
            worst: BTreeMap::new(),
        }
    }

    fn hear(&mut self, batch: Option<&Batch>) {
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
        // More CPUs than fit on a line: the worst of them.
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

/// The series as a person names it.
fn word(series: Series) -> &'static str {
    match series {
        Series::Lateness => "lateness",
        Series::Gap => "gap",
        Series::Excess => "excess",
        Series::StartJitter => "start jitter",
        Series::Response => "response",
        Series::PeriodLate => "period late",
        Series::PeriodEarly => "period early",
        Series::Delivery => "delivery",
        Series::TrappedAccess => "trapped access",
        Series::MappedAccess => "mapped access",
    }
}

/// Only quantiles that at least ten samples lie beyond: the rarer ones are the luck of the run.
fn quantiles(distribution: &Distribution) -> String {
    let mut text = String::new();
    for (name, quantile) in [
        ("p50", 0.5),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
    ] {
        let value = distribution
            .quantile(quantile)
            .filter(|_| distribution.samples as f64 * (1.0 - quantile) >= 10.0)
            .map_or_else(|| "–".to_owned(), |value| value.to_string());
        let _ = write!(text, "  {name} {value:>9}");
    }
    text
}

fn text(measurement: &Measurement) -> String {
    let mut text = format!(
        "{} in {}, {}, {} measured after {} of warm-up\n",
        measurement.plan.meter,
        measurement.domain,
        measurement.plan.policy,
        measurement
            .threads
            .iter()
            .map(|thread| thread.duration)
            .max()
            .unwrap_or_default(),
        measurement.plan.warm_up,
    );
    for cpu in &measurement.cpus {
        for series in &cpu.series {
            series_lines(
                &mut text,
                cpu,
                series.series,
                &series.seen,
                series.corrected.as_ref(),
            );
        }
        if let Some(thread) = measurement
            .threads
            .iter()
            .find(|thread| thread.cpu == cpu.cpu)
        {
            thread_lines(
                &mut text,
                thread,
                &measurement.plan,
                measurement.started_monotonic,
            );
        }
    }
    text
}

fn series_lines(
    text: &mut String,
    cpu: &CpuRecord,
    series: Series,
    seen: &Distribution,
    corrected: Option<&Distribution>,
) {
    let max = |distribution: &Distribution| {
        distribution
            .max
            .map_or_else(|| "–".to_owned(), |max| max.to_string())
    };
    let name = word(series);
    let _ = writeln!(
        text,
        "CPU {:<3} {name:<12}{}  max {:>9}  n {}",
        cpu.cpu.0,
        quantiles(seen),
        max(seen),
        seen.samples
    );
    if let Some(corrected) = corrected {
        let _ = writeln!(
            text,
            "        {:<12}{}  max {:>9}  n {}",
            "  corrected",
            quantiles(corrected),
            max(corrected),
            corrected.samples
        );
    }
}

fn thread_lines(text: &mut String, thread: &ThreadOutcome, plan: &MeterSettings, started: Nanos) {
    let mut line = |part: String| {
        let _ = writeln!(text, "        {part}");
    };
    match &thread.detail {
        MeterDetail::Wakeup {} | MeterDetail::Irq {} => {
            line(format!("missed periods {}", thread.missed))
        }
        MeterDetail::Noise {
            turns,
            shortest_turn,
            mean_turn_picos,
            threshold,
            stolen,
        } => {
            let part = 100.0 * stolen.0 as f64 / thread.duration.0.max(1) as f64;
            line(format!(
                "{} gaps of {threshold} or more took {stolen} ({part:.3} % of the time); \
                 {turns} turns, one takes {:.1} ns (shortest {shortest_turn})",
                thread.samples,
                *mean_turn_picos as f64 / 1000.0,
            ));
        }
        MeterDetail::Fwq {
            turns,
            shortest,
            lowered,
        } => {
            let excess = thread
                .worst
                .first()
                .map(|worst| worst.value)
                .unwrap_or_default();
            line(format!(
                "shortest quantum {shortest} ({turns} turns, lowered by {lowered} while measuring); \
                 worst excess {excess} = {:.3} %",
                100.0 * excess.0 as f64 / shortest.0.max(1) as f64,
            ));
        }
        MeterDetail::Loop {
            deadline,
            deadlines_missed,
            worst_early,
            worst_late,
            worst_start,
            ..
        } => {
            line(format!(
                "deadline {deadline} missed {deadlines_missed} times, periods missed {}; period at \
                 worst {worst_early} early, {worst_late} late; latest start {worst_start}",
                thread.missed
            ));
        }
        MeterDetail::Mmio {
            accesses,
            trapped,
            mapped,
        } => line(format!(
            "trapped: {trapped}; mapped: {mapped}; each the mean of {accesses} reads; missed periods {}",
            thread.missed
        )),
    }
    if let Some(deadline) = plan.deadline {
        line(format!(
            "over {deadline}: {} of {}",
            thread.over_deadline, thread.samples
        ));
    }
    if let Some(max) = thread.warm_up.max {
        line(format!(
            "warm-up: worst {max} in {} samples, not mixed in",
            thread.warm_up.samples
        ));
    }
    let worst: Vec<String> = thread
        .worst
        .iter()
        .take(5)
        .map(|event| {
            format!(
                "{} at {:.3} s",
                event.value,
                event.at.saturating_sub(started).as_secs_f64()
            )
        })
        .collect();
    if !worst.is_empty() {
        line(format!("worst: {}", worst.join(", ")));
    }
    let counters = &thread.counters;
    let steal = counters
        .steal
        .map_or_else(|| "unknown".to_owned(), |steal| steal.to_string());
    line(format!(
        "ran as {} on {}; switched away against its will {}, page faults {}, steal {steal}",
        thread.placement.policy,
        thread.placement.cpus_seen.named(),
        plural(counters.involuntary_switches, "time"),
        counters.minor_faults + counters.major_faults,
    ));
}

fn csv(measurement: &Measurement) -> String {
    let mut text = String::from("cpu,series,view,lowest_ns,highest_ns,count\n");
    for cpu in &measurement.cpus {
        for series in &cpu.series {
            let views = [
                ("seen", Some(&series.seen)),
                ("corrected", series.corrected.as_ref()),
            ];
            for (view, distribution) in views {
                for bucket in distribution
                    .into_iter()
                    .flat_map(|distribution| &distribution.buckets)
                {
                    let highest = rampart_model::Bucket::highest(bucket.0);
                    let _ = writeln!(
                        text,
                        "{},{},{view},{},{},{}",
                        cpu.cpu,
                        word(series.series).replace(' ', "-"),
                        bucket.0.0,
                        highest.0,
                        bucket.1
                    );
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_quantiles_are_not_shown() {
        let thousand = Distribution::from_values((1..=1000).map(Nanos));
        let shown: Vec<String> = quantiles(&thousand)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(shown.join(" "), "p50 500 ns p99 990 ns p99.9 – p99.99 –");
    }
}
