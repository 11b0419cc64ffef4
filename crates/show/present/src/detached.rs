// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that are taken from Linux for detached threads.

use rampart_model::{DetachedCpu, DetachedHolder, Finding};

use crate::element::{Column, ColumnKind, Element, Entry, Row, Table, TableStyle};

/// Returns the taken CPUs with their holders and counts, and why none can be taken, if the driver is missing.
#[must_use]
pub fn detached_cpus(cpus: &[DetachedCpu], missing: Option<&Finding>) -> Vec<Element> {
    if cpus.is_empty() {
        let mut elements = vec![Element::paragraph("No CPU is taken.")];
        elements.extend(missing.map(|finding| Element::paragraph(finding.to_string())));
        return elements;
    }
    let columns = [
        (ColumnKind::Figure, "CPU"),
        (ColumnKind::Name, "state"),
        (ColumnKind::Text, "held by"),
        (ColumnKind::Text, "thread"),
        (ColumnKind::Figure, "system calls"),
        (ColumnKind::Figure, "faults"),
        (ColumnKind::Figure, "kicks"),
        (ColumnKind::Figure, "flushes"),
        (ColumnKind::Figure, "interrupts"),
    ];
    let rows = cpus.iter().map(|cpu| {
        let holders = match &cpu.holders[..] {
            [] => "not visible".to_owned(),
            all => all.iter().map(named).collect::<Vec<_>>().join(", "),
        };
        let mut entries = vec![
            Entry::from(cpu.cpu.to_string()),
            Entry::from(cpu.state.word()),
            Entry::from(holders),
            Entry::from(cpu.thread.as_ref().map(named).unwrap_or_default()),
        ];
        entries.extend(match cpu.counts {
            Some(counts) => [
                counts.system_calls,
                counts.faults,
                counts.kicks,
                counts.flushes,
                counts.interrupts,
            ]
            .map(|count| Entry::from(count.to_string())),
            None => std::array::from_fn(|_| Entry::from("")),
        });
        Row::new(entries)
    });
    vec![Element::Table(Table::new(
        TableStyle::Figures,
        "CPUs taken from Linux",
        columns.map(|(kind, name)| Column::new(kind, name)).into(),
        rows.collect(),
    ))]
}

fn named(holder: &DetachedHolder) -> String {
    format!("{} ({})", holder.name, holder.process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TerminalOptions, terminal};
    use rampart_model::{CpuId, DetachedCounts, DetachedState, Severity};

    fn text(cpus: &[DetachedCpu], missing: Option<&Finding>) -> String {
        let options = TerminalOptions {
            width: u16::MAX,
            colour: false,
        };
        terminal(&detached_cpus(cpus, missing), options)
    }

    #[test]
    fn lists_holders_and_counts() {
        let holder = |process, name: &str| DetachedHolder {
            process,
            name: name.to_owned(),
        };
        let cpus = [
            DetachedCpu {
                cpu: CpuId(2),
                state: DetachedState::Running,
                holders: vec![holder(70, "loop"), holder(71, "child")],
                thread: Some(holder(77, "control")),
                counts: Some(DetachedCounts {
                    system_calls: 5,
                    faults: 1,
                    kicks: 9,
                    flushes: 3,
                    interrupts: 0,
                }),
            },
            DetachedCpu {
                cpu: CpuId(3),
                state: DetachedState::Taken,
                holders: Vec::new(),
                thread: None,
                counts: None,
            },
        ];
        let shown = text(&cpus, None);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .collect()
            })
            .collect();
        assert!(
            lines.contains(&vec![
                "2",
                "running",
                "loop (70), child (71)",
                "control (77)",
                "5",
                "1",
                "9",
                "3",
                "0"
            ]),
            "{shown}"
        );
        assert!(
            lines.contains(&vec!["3", "taken", "not visible"]),
            "{shown}"
        );
        let what = "the driver is not loaded";
        let missing = Finding::new(Severity::Error, "module detach", what);
        assert!(!text(&[], None).contains(what));
        assert!(text(&[], Some(&missing)).contains(what));
    }
}
