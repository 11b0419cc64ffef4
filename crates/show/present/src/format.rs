// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures and facts as text, shared by the renderings.

use rampart_model::{
    Bench, CpuRecord, Distribution, Evaluation, EvaluationState, Exposure, GuestReport, Machine,
    MeasuredPlan, Nanos, PreemptionModel, Record, Series,
};

/// A count with its thousands apart, or in three figures where that would be wide.
pub(crate) fn count(value: u64) -> String {
    match value {
        0..1_000_000 => grouped(value),
        1_000_000..1_000_000_000 => scaled(value as f64 / 1e6, "M"),
        1_000_000_000..1_000_000_000_000 => scaled(value as f64 / 1e9, "G"),
        _ => scaled(value as f64 / 1e12, "T"),
    }
}

/// A count with every digit, its thousands apart.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{a0}');
        }
        text.push(digit);
    }
    text
}

fn scaled(value: f64, unit: &str) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}\u{a0}{unit}")
}

/// A time, its unit kept on the same line.
pub(crate) fn time(value: Nanos) -> String {
    value.to_string().replace(' ', "\u{a0}")
}

/// A time, or a dash where there is none.
pub(crate) fn time_or_dash(value: Option<Nanos>) -> String {
    value.map_or_else(|| "–".to_owned(), time)
}

/// A quantile as the field writes it: `p50`, `p99.9`.
pub(crate) fn quantile_name(quantile: f64) -> String {
    // Six decimals of a percentage, without trailing zeros: 0.99999 × 100 is not exact.
    let text = format!("{:.6}", quantile * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A ratio or factor: two decimals, fewer where they would mean nothing.
pub(crate) fn ratio(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// The primary series of a record over all its CPUs, as seen.
pub(crate) fn primary(record: &Record) -> Distribution {
    all_cpus(record, record.plan.meter.primary_series())
}

/// A series of a record over all its CPUs, as seen.
pub(crate) fn all_cpus(record: &Record, series: Series) -> Distribution {
    let mut all = Distribution::default();
    for cpu in &record.cpus {
        for of_cpu in cpu.series.iter().filter(|one| one.series == series) {
            all.merge(&of_cpu.seen);
        }
    }
    all
}

/// Samples of a record over the deadline, all CPUs together.
pub(crate) fn over_deadline(record: &Record) -> u64 {
    let each = record.cpus.iter().map(|cpu: &CpuRecord| cpu.over_deadline);
    each.fold(0, u64::saturating_add)
}

/// Counts as a stretch: `20`, or `17–20`.
pub(crate) fn span(counts: &[u64]) -> String {
    match (counts.iter().min(), counts.iter().max()) {
        (Some(low), Some(high)) if low != high => format!("{}–{}", grouped(*low), grouped(*high)),
        (Some(low), _) => grouped(*low),
        _ => "no".to_owned(),
    }
}

/// What the figures rest on, in words.
pub(crate) fn exposure(exposure: &Exposure) -> String {
    let plural = |count: u32, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    format!(
        "{} samples in {} of {} on {}, {} missed",
        grouped(exposure.samples),
        time(exposure.duration),
        plural(exposure.runs, "run", "runs"),
        plural(exposure.cpus, "CPU", "CPUs"),
        grouped(exposure.missed),
    )
}

/// How far the evaluation came: a sentence, and whether it deserves a warning.
pub(crate) fn state(evaluation: &Evaluation) -> (String, bool) {
    let (made, planned) = evaluation.runs;
    match evaluation.state {
        EvaluationState::Complete if made == planned => {
            (format!("Complete: {made} of {planned} runs."), false)
        }
        EvaluationState::Complete => (
            format!("Complete, but only {made} of {planned} runs were made."),
            true,
        ),
        EvaluationState::EndedEarly => (
            format!(
                "ENDED EARLY on request: {made} of {planned} runs. Everything below rests on these alone."
            ),
            true,
        ),
        EvaluationState::Running => (
            format!(
                "KILLED HALF-WAY (or still running): {made} of {planned} runs. Everything below rests on these alone."
            ),
            true,
        ),
    }
}

/// What must be known before any figure of an emulated machine is read.
pub(crate) const EMULATED: &str = "EMULATED MACHINE: its CPUs are software, so its microseconds mean nothing. \
     Only the structure of disturbances, who reaches whom, can be read from this report.";

/// What is real on a simulated machine, and what is not.
pub(crate) const SIMULATED: &str = "Real here: the kernel with its scheduler and locks, containers, KVM where it has one, and \
     so who can disturb whom. Not real: microseconds. Verdicts rest on whether a disturbance of known length is seen elsewhere.";

/// Whether the times of a record are those of software that plays a processor.
pub(crate) fn is_emulated(evaluation: &Evaluation, record: &Record) -> bool {
    record.emulated || matches!(evaluation.bench, Bench::Sim { .. })
}

/// Where it ran, in a line.
pub(crate) fn bench(bench: &Bench) -> String {
    match bench {
        Bench::Local => "local".to_owned(),
        Bench::Ssh { host } => format!("ssh:{host}"),
        Bench::Sim {
            emulator, kernel, ..
        } => format!("sim: {emulator}, Linux {kernel}"),
    }
}

/// The last report on the guest that this domain is; none where it is none.
pub(crate) fn guest<'a>(evaluation: &'a Evaluation, domain: &str) -> Option<&'a GuestReport> {
    let of_runs = evaluation
        .records
        .iter()
        .filter(|record| record.domain == domain)
        .flat_map(|record| &record.runs)
        .filter_map(|run| run.guest.as_ref());
    let of_rounds = evaluation
        .transfers
        .iter()
        .flat_map(|round| &round.watched)
        .filter(|watched| watched.domain == domain)
        .filter_map(|watched| watched.guest.as_ref());
    of_runs.chain(of_rounds).last()
}

/// The kernel's preemption model in the words of its configuration.
pub(crate) const fn preemption(model: PreemptionModel) -> &'static str {
    match model {
        PreemptionModel::None => "PREEMPT_NONE",
        PreemptionModel::Voluntary => "PREEMPT_VOLUNTARY",
        PreemptionModel::Full => "PREEMPT",
        PreemptionModel::Lazy => "PREEMPT_LAZY",
        PreemptionModel::RealTime => "PREEMPT_RT",
        PreemptionModel::Dynamic => "PREEMPT_DYNAMIC",
        PreemptionModel::Unknown => "preemption unknown",
    }
}

/// The machine in one line. A simulated one may not know itself that it is.
pub(crate) fn machine(evaluation: &Evaluation) -> String {
    let machine: &Machine = &evaluation.machine;
    let cpus = machine.topology.online.len();
    let mut parts = vec![
        machine.host_name.clone(),
        format!(
            "{}, {cpus} {}",
            machine.processor,
            if cpus == 1 { "CPU" } else { "CPUs" }
        ),
        format!(
            "Linux {} {}",
            machine.kernel_release,
            preemption(machine.preemption)
        ),
    ];
    parts.extend(machine.distribution.clone());
    parts.push(
        match (
            &machine.virtualisation.hypervisor,
            machine.virtualisation.emulated,
        ) {
            _ if matches!(evaluation.bench, Bench::Sim { .. }) => "simulated".to_owned(),
            (Some(hypervisor), true) => format!("emulated ({hypervisor})"),
            (None, true) => "emulated".to_owned(),
            (Some(hypervisor), false) => format!("a guest of {hypervisor}"),
            (None, false) => "bare metal".to_owned(),
        },
    );
    parts.join(" · ")
}

/// A small probability as people can weigh it: one in so many.
pub(crate) fn chance(probability: f64) -> String {
    if probability.is_nan() || probability <= 0.0 {
        return "0".to_owned();
    }
    if probability >= 0.1 {
        return format!("{:.0}\u{a0}%", probability * 100.0);
    }
    // Rounded down, so that the chance is never said to be smaller than it is; two figures.
    let inverse = (1.0 / probability).min(1e18);
    let scale = 10f64.powi((inverse.log10().floor() as i32 - 1).max(0));
    format!("1 in {}", count(((inverse / scale).floor() * scale) as u64))
}

/// Which plan was measured, and whether it stood.
pub(crate) fn measured_plan(evaluation: &Evaluation, measured: &MeasuredPlan) -> String {
    let how = if !evaluation.plan.variants.is_empty() {
        "applied and taken back in turn"
    } else if measured.stands {
        "which stood applied"
    } else {
        "which was not applied: each domain had a wall for its runs, and no knob was set"
    };
    let own: Vec<String> = evaluation
        .plan
        .domains
        .iter()
        .filter_map(|domain| Some(format!("{} {}", domain.name, time(domain.deadline?))))
        .collect();
    let own = if own.is_empty() {
        String::new()
    } else {
        format!(" Deadlines of its domains: {}.", own.join(", "))
    };
    format!("Measured by the plan {}, {how}.{own}", measured.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_their_digits_up_to_a_million() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1 000"),
            (999_999, "999 999"),
            (1_230_000, "1.23 M"),
            (1_000_000_000, "1.00 G"),
            (u64::MAX, "18446744 T"),
        ] {
            assert_eq!(count(value).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn a_chance_is_never_said_to_be_smaller_than_it_is() {
        for (probability, text) in [
            (0.0, "0"),
            (f64::NAN, "0"),
            (0.5, "50 %"),
            (0.01, "1 in 100"),
            (2.9957e-5, "1 in 33 000"),
            (1e-300, "1 in 1000000 T"),
        ] {
            assert_eq!(chance(probability).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn quantiles_are_named_as_in_the_field() {
        for (quantile, name) in [
            (0.5, "p50"),
            (0.99, "p99"),
            (0.999, "p99.9"),
            (0.99999, "p99.999"),
        ] {
            assert_eq!(quantile_name(quantile), name);
        }
    }
}
