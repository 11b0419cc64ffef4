// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came to the domains' CPUs with the plan and without: counts of the kernel, which hold where
//! times are emulated, too.

use comfy_table::Cell;
use rampart_model::{Nanos, PlanChange, PlanEffect, PlanEffects, PlanVariant, UnwantedActivity};

use super::text::Page;
use crate::format;

const FIGURES: [&str; 7] = [
    "interrupts",
    "softirqs",
    "calls",
    "timers",
    "kernel threads",
    "programs",
    "watched",
];

/// Those of the whole plan, one row a comparison.
pub(super) fn of_plan(page: &mut Page, effects: &PlanEffects) {
    let rows: Vec<(String, (UnwantedActivity, UnwantedActivity))> = effects
        .effects
        .iter()
        .filter(|effect| effect.variant == PlanVariant::Before)
        .filter_map(|effect| Some((name(effect), effect.unwanted_activity?)))
        .collect();
    table(
        page,
        "What came to the domains' CPUs in each second: with the plan / without it",
        "domain, condition",
        &rows,
    );
}

/// Those of each change, over all its comparisons.
pub(super) fn of_changes(page: &mut Page, effects: &PlanEffects) {
    let sum = |change: &PlanChange| {
        effects
            .effects
            .iter()
            .filter(
                |effect| matches!(&effect.variant, PlanVariant::Without(other) if other == change),
            )
            .filter_map(|effect| effect.unwanted_activity)
            .reduce(|one, other| (one.0.and(other.0), one.1.and(other.1)))
    };
    let rows: Vec<(String, (UnwantedActivity, UnwantedActivity))> = effects
        .changes
        .iter()
        .filter_map(|change| Some((change.to_string(), sum(change)?)))
        .collect();
    table(
        page,
        "What came to the domains' CPUs in each second: with the plan / without each change",
        "change",
        &rows,
    );
}

fn name(effect: &PlanEffect) -> String {
    format!("{}, {}", effect.domain, effect.condition)
}

fn table(
    page: &mut Page,
    heading: &str,
    first: &str,
    rows: &[(String, (UnwantedActivity, UnwantedActivity))],
) {
    if rows.is_empty() {
        return;
    }
    page.heading(heading);
    let cells = rows.iter().map(|(name, (with, without))| {
        let counted = |count: fn(&UnwantedActivity) -> u64| {
            let one = |of: &UnwantedActivity| rate(of.per_second(count(of)));
            format!("{} / {}", one(with), one(without))
        };
        let timed = |time: fn(&UnwantedActivity) -> Nanos| {
            let one = |of: &UnwantedActivity| share(of, time(of));
            format!("{} / {}", one(with), one(without))
        };
        let figures = [
            counted(|of| of.device_interrupts),
            counted(|of| of.device_softirqs),
            counted(|of| of.cross_calls),
            counted(|of| of.timer_interrupts),
            timed(|of| of.kernel_threads),
            timed(|of| of.programs),
            format!(
                "{} + {}",
                format::time(with.watched),
                format::time(without.watched)
            ),
        ];
        [name]
            .into_iter()
            .chain(&figures)
            .map(|text| page.cell(text))
            .collect()
    });
    let cells: Vec<Vec<Cell>> = cells.collect();
    page.named(&[&[first], &FIGURES[..]].concat(), cells);
    page.paragraph(
        "Counted by the kernel, all CPUs of a domain together: interrupts and softirqs of devices, calls \
         of other CPUs, the CPUs' own timers, CPU time of kernel threads and of programs. What the \
         evaluation itself runs there is left out, but for the timers that the meter asks for.",
        0,
    );
}

fn rate(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// CPU time of each second.
fn share(of: &UnwantedActivity, time: Nanos) -> String {
    if time == Nanos::ZERO {
        return "0".to_owned();
    }
    format::time(Nanos(
        (time.0 as f64 / of.watched.as_secs_f64().max(f64::MIN_POSITIVE)) as u64,
    ))
}
