// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unwanted activity on the domains' CPUs, with the plan and without: counts of the kernel, which
//! are right on emulated machines too.

use rampart_model::{Nanos, PlanChange, PlanEffect, PlanEffects, PlanVariant, UnwantedActivity};

use super::Report;
use crate::element::{Column, ColumnKind, Element, Entry, Row, Table, TableStyle, Text};
use crate::format;

type Compared = (UnwantedActivity, UnwantedActivity);

/// Returns one row for each comparison of the whole plan with no plan.
pub(super) fn of_plan(report: &Report<'_>, effects: &[&PlanEffect]) -> Vec<Element> {
    let rows = effects.iter().filter_map(|effect| {
        let name = format!(
            "{}, {}",
            report.name(&effect.domain).plain(),
            effect.condition
        );
        Some((name.into(), effect.unwanted_activity?))
    });
    section(
        "with the plan / without it",
        "domain, condition",
        rows.collect(),
    )
}

/// Returns one row for each change, over all comparisons of the plan with and without it.
pub(super) fn of_changes(effects: &PlanEffects) -> Vec<Element> {
    let sum = |change: &PlanChange| {
        let without = |effect: &&PlanEffect| matches!(&effect.variant, PlanVariant::Without(other) if other == change);
        let all = effects.effects.iter().filter(without);
        all.filter_map(|effect| effect.unwanted_activity)
            .reduce(|one, other| (one.0.and(other.0), one.1.and(other.1)))
    };
    let rows = effects.changes.iter();
    let rows = rows.filter_map(|change| Some((change.to_string().into(), sum(change)?)));
    section(
        "with the plan / without each change",
        "change",
        rows.collect(),
    )
}

fn section(compared: &str, first: &str, rows: Vec<(Text, Compared)>) -> Vec<Element> {
    if rows.is_empty() {
        return Vec::new();
    }
    let title = format!("Unwanted activity on the domains' CPUs in each second: {compared}");
    let mut columns = vec![Column::new(ColumnKind::Name, first)];
    let figures = [
        "interrupts",
        "softirqs",
        "calls",
        "timers",
        "kernel threads",
        "programs",
        "watched",
    ];
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    let rows = rows.into_iter().map(|(name, (with, without))| {
        let counted = |count: fn(&UnwantedActivity) -> u64| {
            let one = |of: &UnwantedActivity| rate(of.per_second(count(of)));
            Entry::from(format!("{} / {}", one(&with), one(&without)))
        };
        let timed = |time: fn(&UnwantedActivity) -> Nanos| {
            let one = |of: &UnwantedActivity| share(of, time(of));
            Entry::from(format!("{} / {}", one(&with), one(&without)))
        };
        Row::new(vec![
            name.into(),
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
            )
            .into(),
        ])
    });
    let table = Table::new(TableStyle::Lines, title.clone(), columns, rows.collect());
    vec![
        Element::heading(3, title),
        Element::Table(table),
        Element::remark(
            "Counted by the kernel, all CPUs of a domain together: interrupts and softirqs of devices, calls \
             of other CPUs, the CPUs' own timers, CPU time of kernel threads and of programs. The evaluation's \
             own activity is not counted, except the timers that the meter sets.",
        ),
    ]
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

/// Returns the CPU time in each second.
fn share(of: &UnwantedActivity, time: Nanos) -> String {
    if time == Nanos::ZERO {
        return "0".to_owned();
    }
    let seconds = of.watched.as_secs_f64().max(f64::MIN_POSITIVE);
    format::time(Nanos((time.0 as f64 / seconds) as u64))
}
