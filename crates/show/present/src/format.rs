// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures and facts as text.

use rampart_model::{
    Bench, BlockKind, CpuRecord, Evaluation, EvaluationState, Exposure, IsolationMechanism,
    Machine, MeasuredPlan, Nanos, PreemptionModel, Record, Series,
};
pub(crate) use rampart_model::{factor, quantile_name};

/// Returns a count with its thousands apart, or in three figures if that would be wide.
pub(crate) fn count(value: u64) -> String {
    match value {
        0..1_000_000 => grouped(value),
        1_000_000..999_500_000 => scaled(value as f64 / 1e6, "M"),
        999_500_000..999_500_000_000 => scaled(value as f64 / 1e9, "G"),
        _ => scaled(value as f64 / 1e12, "T"),
    }
}

/// Returns a count with every digit, its thousands apart and on one line.
pub(crate) fn grouped(value: u64) -> String {
    rampart_model::grouped(value).replace(' ', "\u{a0}")
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

/// Returns a time with its unit on the same line.
pub(crate) fn time(value: Nanos) -> String {
    value.to_string().replace(' ', "\u{a0}")
}

/// Returns a time, or a dash for `None`.
pub(crate) fn time_or_dash(value: Option<Nanos>) -> String {
    value.map_or_else(|| "–".to_owned(), time)
}

/// Returns a confidence as a percentage, with as many digits as it takes to differ from 100 %: one that
/// is corrected for many comparisons is close to it.
pub(crate) fn confidence(value: f64) -> String {
    let nines = -(1.0 - value).max(1e-12).log10() - 1e-9;
    let digits = (nines.ceil() as usize).saturating_sub(2);
    // Cut off, not rounded, which could give 100.
    let scale = 10_f64.powi(digits as i32);
    let percent = (value * 100.0 * scale + 1e-6).floor() / scale;
    format!("{percent:.digits$}\u{a0}%")
}

/// Returns the samples of a record over the deadline, all CPUs together.
pub(crate) fn over_deadline(record: &Record) -> u64 {
    let each = record.cpus.iter().map(|cpu: &CpuRecord| cpu.over_deadline);
    each.fold(0, u64::saturating_add)
}

/// Returns counts as a range: `20`, or `17–20`.
pub(crate) fn span(counts: &[u64]) -> String {
    match (counts.iter().min(), counts.iter().max()) {
        (Some(low), Some(high)) if low != high => format!("{}–{}", grouped(*low), grouped(*high)),
        (Some(low), _) => grouped(*low),
        _ => "no".to_owned(),
    }
}

/// Returns the exposure of figures in words.
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

/// Returns what makes blocks, and what is off meanwhile.
pub(crate) const fn block_kind(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Module => "by the kernel module blocksys, interrupts and preemption off",
        BlockKind::Spin => "by a spinning thread of FIFO 99, which interrupts still preempt",
        BlockKind::Cell => "by the measuring program itself, without interrupts",
    }
}

/// Returns a mechanism that isolates CPUs.
pub(crate) const fn isolation(mechanism: IsolationMechanism) -> &'static str {
    match mechanism {
        IsolationMechanism::None => "none",
        IsolationMechanism::AffinityOnly => "affinity only",
        IsolationMechanism::CpusetV1 => "cpuset (cgroup v1)",
        IsolationMechanism::IsolatedPartition => "isolated partition (cgroup v2)",
        IsolationMechanism::Cell => "cell (hypervisor)",
        IsolationMechanism::Detached => "detached (taken from Linux)",
    }
}

/// Returns the progress of the evaluation.
pub(crate) fn state(evaluation: &Evaluation) -> String {
    let (made, planned) = evaluation.runs;
    match evaluation.state {
        EvaluationState::Complete if made == planned => {
            format!("Complete: {made} of {planned} runs.")
        }
        EvaluationState::Complete => format!("Only {made} of {planned} runs were made."),
        EvaluationState::EndedEarly => format!("Ended early on request: {made} of {planned} runs."),
        EvaluationState::Running => format!("Killed, or still running: {made} of {planned} runs."),
    }
}

/// Returns whether the CPUs of a record were emulated.
pub(crate) fn is_emulated(evaluation: &Evaluation, record: &Record) -> bool {
    record.emulated || matches!(evaluation.bench, Bench::Sim { .. })
}

/// Returns where the evaluation ran.
pub(crate) fn bench(bench: &Bench) -> String {
    match bench {
        Bench::Local => "local".to_owned(),
        Bench::Ssh { host } => format!("ssh:{host}"),
        Bench::Sim {
            emulator, kernel, ..
        } => format!("sim: {emulator}, Linux {kernel}"),
    }
}

/// Returns the kernel's preemption model as its configuration option.
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

/// Returns the machine in one line, without its name.
pub(crate) fn machine(evaluation: &Evaluation) -> String {
    let machine: &Machine = &evaluation.machine;
    let cpus = machine.topology.online.len();
    let mut parts = vec![
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
    parts.push(virtualisation(machine, &evaluation.bench));
    parts.join(" · ")
}

/// Returns the kind of the machine: simulated, emulated, a guest or bare metal. A simulated machine
/// may not detect its kind itself, so the bench decides.
pub(crate) fn virtualisation(machine: &Machine, bench: &Bench) -> String {
    let of = &machine.virtualisation;
    match (&of.hypervisor, of.emulated) {
        _ if matches!(bench, Bench::Sim { .. }) => "simulated".to_owned(),
        (Some(hypervisor), true) => format!("emulated ({hypervisor})"),
        (None, true) => "emulated".to_owned(),
        (Some(hypervisor), false) => format!("guest of {hypervisor}"),
        (None, false) => "bare metal".to_owned(),
    }
}

/// Returns a part of a whole as a percentage with as many figures as it needs.
pub(crate) fn percent(part: f64) -> String {
    let value = part * 100.0;
    let text = match value {
        0.0 => "0".to_owned(),
        99.995.. => "100".to_owned(),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    };
    let text = if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    format!("{text}\u{a0}%")
}

/// Returns a part of a block; a part that rounds to nothing has no sign.
pub(crate) fn fraction(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let zero = text.chars().all(|digit| matches!(digit, '0' | '.'));
    if value < 0.0 && !zero {
        format!("−{text}")
    } else {
        text
    }
}

/// Returns a size in the binary units of the kernel.
pub(crate) fn bytes(value: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if value >> shift > 0 {
            let scaled = value as f64 / (1u64 << shift) as f64;
            let decimals = if scaled >= 100.0 {
                0
            } else if scaled >= 10.0 {
                1
            } else {
                2
            };
            let text = format!("{scaled:.decimals$}");
            let text = if decimals > 0 {
                text.trim_end_matches('0').trim_end_matches('.')
            } else {
                &text
            };
            return format!("{text}\u{a0}{unit}");
        }
    }
    format!("{value}\u{a0}B")
}

/// Returns a command line that a shell reads back as the same words.
pub(crate) fn shell(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns a sentence of the document with its numbers on one line with their units.
pub(crate) fn prose(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split(' ').collect();
    let mut text = String::with_capacity(sentence.len());
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            let number = words[index - 1].ends_with(|c: char| c.is_ascii_digit());
            let unit = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
            let unit = matches!(unit, "ns" | "µs" | "ms" | "s" | "min" | "h" | "%");
            text.push(if number && unit { '\u{a0}' } else { ' ' });
        }
        text.push_str(word);
    }
    text
}

/// Returns a time after `started` in UTC, to the second or, if `fine`, to the millisecond.
pub(crate) fn moment(started: &str, after: Nanos, fine: bool) -> String {
    let Ok(at) = started.parse::<jiff::Timestamp>() else {
        return started.to_owned();
    };
    let Ok(at) = at.checked_add(std::time::Duration::from(after)) else {
        return started.to_owned();
    };
    let digits = if fine {
        "%Y-%m-%d %H:%M:%S%.3f"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    format!("{}\u{a0}UTC", at.strftime(digits))
}

/// Returns a series in words.
pub(crate) const fn series_words(series: Series) -> &'static str {
    match series {
        Series::Lateness => "lateness of a wake-up",
        Series::Gap => "gap in a spinning loop",
        Series::Excess => "excess of a work quantum",
        Series::StartJitter => "start jitter",
        Series::Response => "response time",
        Series::PeriodLate => "period too long by",
        Series::PeriodEarly => "period too short by",
        Series::Delivery => "timer to handler",
        Series::TrappedAccess => "one read of a register, page trapped",
        Series::MappedAccess => "one read of a register, page mapped",
    }
}

/// Returns a small probability as one in so many.
pub(crate) fn chance(probability: f64) -> String {
    if probability.is_nan() || probability <= 0.0 {
        return "0".to_owned();
    }
    if probability >= 0.1 {
        return format!("{:.0}\u{a0}%", probability * 100.0);
    }
    // Rounded down to two figures, so that the chance is never shown too small.
    let inverse = (1.0 / probability).min(1e18);
    let scale = 10f64.powi((inverse.log10().floor() as i32 - 1).max(0));
    format!(
        "1\u{a0}in\u{a0}{}",
        count(((inverse / scale).floor() * scale) as u64)
    )
}

/// Returns which plan was measured, and whether it was applied.
pub(crate) fn measured_plan(evaluation: &Evaluation, measured: &MeasuredPlan) -> String {
    let how = if !evaluation.settings.variants.is_empty() {
        "applied and released in turn"
    } else if measured.active {
        "which was applied"
    } else {
        "which was not applied: each domain was isolated for its runs only, and no setting was changed"
    };
    let own: Vec<String> = evaluation
        .settings
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
            (999_700_000, "1.00 G"),
            (1_000_000_000, "1.00 G"),
            (u64::MAX, "18446744 T"),
        ] {
            assert_eq!(count(value).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn never_states_a_chance_smaller_than_it_is() {
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
    fn a_shell_reads_the_words_back() {
        let words = ["echo", "it's", "$HOME", "", "a b", "--cpus=1-2,4", "µs"];
        let words = words.map(str::to_owned);
        assert_eq!(
            shell(&words),
            r"echo 'it'\''s' '$HOME' '' 'a b' --cpus=1-2,4 'µs'"
        );
        let command = format!("printf '%s\n' {}", shell(&words));
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .output()
            .expect("sh");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            words.join("\n") + "\n"
        );
    }

    #[test]
    fn a_confidence_is_never_shown_as_certainty() {
        for (value, text) in [
            (0.95, "95 %"),
            (0.99, "99 %"),
            (0.995, "99.5 %"),
            (0.9996, "99.96 %"),
            (0.999_996, "99.9996 %"),
        ] {
            assert_eq!(confidence(value).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn prose_keeps_a_number_with_its_unit() {
        let text = prose("In 20 ms, 3 of 4 CPUs waited 1.5 µs (95 %). A minute has 60 s.");
        let expected = "In 20~ms, 3 of 4 CPUs waited 1.5~µs (95~%). A minute has 60~s.";
        assert_eq!(text.replace('\u{a0}', "~"), expected);
        assert_eq!(prose("in ms and s"), "in ms and s");
    }

    #[test]
    fn sizes_are_in_binary_units() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            ((1 << 30) + (1 << 28), "1.25 GiB"),
            (200 << 30, "200 GiB"),
            (3 << 40, "3 TiB"),
        ] {
            assert_eq!(bytes(value).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn the_part_of_a_block_that_rounds_to_nothing_has_no_sign() {
        assert_eq!(fraction(-0.004, 2), "0.00");
        assert_eq!(fraction(-0.25, 2), "−0.25");
        assert_eq!(fraction(1.0, 2), "1.00");
    }
}
