// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Terms, provenance and repetition of the report, on the page only.

use rampart_model::{Nanos, TransferSettings, plural};

use super::Report;
use crate::element::{Element, Pair, SpanStyle, Text};
use crate::{format, transfer_matrix};

/// Returns the terms of the report.
pub(super) fn reading(report: &Report<'_>) -> Vec<Element> {
    let mut words = vec![
        (
            "✓ holds",
            "The deadline is met, or the domain is isolated from the load, as far as the exposure shows. A longer run may find \
             what this one did not.",
        ),
        (
            "≈ leaks",
            "A load or a block elsewhere affects this domain by more than the tolerance, even at the favourable end of the \
             interval.",
        ),
        (
            "✗ fails",
            "The deadline was missed, or the domain is slower than the host by more than the tolerance, or it ended with its \
             host.",
        ),
        (
            "? inconclusive",
            "There is not enough data. Measure longer.",
        ),
        (
            "exposure",
            "The samples, time and runs behind a figure. Ten times the time gives a bound on the time between bursts that is ten times as long. Sampling \
             faster does not lengthen the time between misses.",
        ),
        (
            "as seen, corrected",
            "A thread that is delayed for several periods yields one late sample and no others. Corrected adds one for each \
             missed period, as late as a wake-up at its time would have been.",
        ),
        (
            "maximum",
            "The latest sample is a lower bound of the worst case, and the noisiest of all figures. Compare quantiles, and \
             judge by deadlines.",
        ),
        (
            "interval",
            "Comparisons: from the spread between visits, because successive samples depend on each other. Blocks and effects \
             of a plan: by resampling.",
        ),
    ];
    if !transfer_matrix::disturbances(report.evaluation).is_empty() {
        words.extend([
            (
                "block",
                "One CPU is stopped for a known time, repeatedly at random moments. A domain that shares the CPU with the \
                 blocked domain, or needs a lock that the domain held, is late by the same time.",
            ),
            (
                "transfer τ",
                "Median of the worst latencies of windows with a block, minus that of windows without, divided by the length of \
                 the blocks. Near 1: not isolated. Near 0 with a tight interval: isolated.",
            ),
            (
                "control window",
                "As long as a window with a block, but without one. A latency that is as long in these has another cause.",
            ),
            (
                "emulated",
                "The CPU is emulated in software. Which domains are stopped together is real. Times are not.",
            ),
        ]);
    }
    let pairs = words.into_iter().map(|(word, text)| Pair::new(word, text));
    vec![Element::detail(vec![
        Element::section("reading", "How to read this page", "Reading"),
        Element::Pairs {
            pairs: pairs.collect(),
        },
    ])]
}

/// Returns the provenance of the report and the command that repeats it.
pub(super) fn provenance(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let plan = &evaluation.settings;
    let domains: Vec<&str> = plan
        .domains
        .iter()
        .map(|domain| domain.name.as_str())
        .collect();
    let conditions: Vec<String> = plan.conditions.iter().map(ToString::to_string).collect();
    let meters: Vec<&str> = plan.meters.iter().map(|meter| meter.meter.word()).collect();
    let mut pairs = vec![
        Pair::new(
            "command",
            Text::of(SpanStyle::Code, format::shell(&evaluation.command)),
        ),
        Pair::new(
            "version",
            format!(
                "rampart {}, document version {}",
                evaluation.tool_version, evaluation.schema_version
            ),
        ),
        Pair::new("seed", plan.seed.to_string()),
        Pair::lines(
            "settings",
            vec![
                format!(
                    "{}: {}",
                    plural(domains.len(), "domain"),
                    domains.join(", ")
                )
                .into(),
                format!(
                    "{}: {}",
                    plural(conditions.len(), "condition"),
                    conditions.join(", ")
                )
                .into(),
                format!("{}: {}", plural(meters.len(), "meter"), meters.join(", ")).into(),
                format!(
                    "{} of {} each, in turn; {} in all",
                    plural(plan.repetitions, "repetition"),
                    format::time(plan.run_duration),
                    format::time(plan.total)
                )
                .into(),
                format!("housekeeping on {}", plan.housekeeping.named()).into(),
            ],
        ),
    ];
    pairs.extend(plan.transfer.as_ref().map(disturbances));
    let moment = |text: &str| format::moment(text, Nanos::ZERO, false);
    pairs.push(Pair::lines(
        "began, written",
        vec![
            moment(&evaluation.started).into(),
            moment(&evaluation.written).into(),
        ],
    ));
    vec![Element::detail(vec![
        Element::section("again", "How to repeat it", "Repeat"),
        Element::Pairs { pairs },
    ])]
}

fn disturbances(plan: &TransferSettings) -> Pair {
    let count: usize = plan
        .groups
        .iter()
        .map(|group| group.disturbances.len())
        .sum();
    let mut lines = vec![plural(count, "disturbance").into()];
    lines.extend(plan.groups.iter().map(|group| {
        let all = group.participants.iter();
        let all = all.map(|one| format!("{} on {}", one.domain, one.cpus.named()));
        Text::from(all.collect::<Vec<_>>().join(", "))
    }));
    lines.push(
        format!(
            "{} a round, {} times as long as the worst quiet latency and at least {}",
            plural(plan.blocks, "block"),
            plan.block_factor,
            format::time(plan.shortest_block)
        )
        .into(),
    );
    lines.push(
        format!(
            "loads for {}; wakeup every {}, {}",
            format::time(plan.loaded),
            format::time(plan.interval),
            plan.policy
        )
        .into(),
    );
    Pair::lines("disturbances", lines)
}
