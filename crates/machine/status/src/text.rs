// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders a status for a terminal, without colour.

use comfy_table::{ContentArrangement, Table, presets};
use rampart_model::{
    CpuStatus, DomainStatus, ProgramState, Status, StatusPlan, StatusSubject, clean, plural,
    wrapped,
};

/// Options of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Width in columns; values below 60 count as 60.
    pub width: u16,
}

/// Renders a status: plan, isolation, domains, CPUs and findings.
#[must_use]
pub fn terminal(status: &Status, options: TextOptions) -> String {
    let width = usize::from(options.width.max(60));
    let mut lines = Vec::new();
    let watched = format!("{}, watched for {}", status.host_name, status.interval);
    hanging(&mut lines, "", &watched, width);
    match &status.plan {
        Some(plan) => head(&mut lines, plan, width),
        None => hanging(
            &mut lines,
            "No plan is applied. ",
            "`rampart apply PLAN` applies one, `rampart plan propose` writes one.",
            width,
        ),
    }
    isolation(&mut lines, status, width);
    domains(&mut lines, &status.domains, width);
    cpus(&mut lines, &status.cpus, width);
    for (subject, title) in [
        (StatusSubject::Drift, "Drift from the plan"),
        (StatusSubject::Colocation, "Colocations that cause latency"),
        (StatusSubject::UnwantedActivity, "Unwanted activity"),
    ] {
        findings(&mut lines, status, subject, title, width);
    }
    if status.plan.is_some() && !status.has_drift() {
        lines.push(String::new());
        lines.push("No drift: the plan is in effect.".to_owned());
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn head(lines: &mut Vec<String>, plan: &StatusPlan, width: usize) {
    let applied = i64::try_from(plan.applied_at.0 / 1_000_000_000)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(|| "at an unknown time".to_owned(), |time| time.to_string());
    let text = format!(
        "{} {}, applied {applied}; housekeeping {}, real-time {}",
        plan.file,
        plan.state,
        plan.housekeeping.named(),
        plan.real_time.named()
    );
    hanging(lines, "Plan  ", &text, width);
    for finding in &plan.not_granted {
        hanging(
            lines,
            "differs from the plan  ",
            &finding.to_string(),
            width,
        );
    }
}

fn isolation(lines: &mut Vec<String>, status: &Status, width: usize) {
    let isolation = &status.isolation;
    let or_none = |text: String| {
        if text.is_empty() {
            "none".to_owned()
        } else {
            text
        }
    };
    let partitions: Vec<String> = isolation
        .partitions
        .iter()
        .map(|partition| {
            format!(
                "{} ({}, {})",
                partition.group,
                partition.kind,
                partition.cpus.named()
            )
        })
        .collect();
    let text = format!(
        "isolated CPUs {}; without a tick (nohz_full) {}; partitions {}",
        or_none(isolation.isolated.to_string()),
        or_none(isolation.nohz_full.to_string()),
        or_none(partitions.join(", "))
    );
    hanging(lines, "Isolation  ", &text, width);
}

fn domains(lines: &mut Vec<String>, domains: &[DomainStatus], width: usize) {
    if domains.is_empty() {
        return;
    }
    lines.push(String::new());
    let rows = domains.iter().map(|domain| {
        vec![
            domain.name.clone(),
            domain.kind.to_string(),
            domain.cpus.to_string(),
            if domain.isolation_valid {
                domain.isolation.to_string()
            } else {
                format!("BROKEN: {}", domain.isolation)
            },
            program(domain),
        ]
    });
    table(
        lines,
        width,
        &["domain", "kind", "CPUs", "isolation", "program"],
        rows,
    );
}

fn program(domain: &DomainStatus) -> String {
    let Some(program) = &domain.program else {
        return match domain.threads {
            0 => "no thread".to_owned(),
            threads => plural(threads, "thread"),
        };
    };
    let mut text = match (program.state, program.process) {
        (ProgramState::Running, Some(process)) => format!("running, process {process}"),
        (ProgramState::Running, None) => "running".to_owned(),
        (ProgramState::Restarting, _) => "restarting".to_owned(),
        (ProgramState::Stopped, _) => "stopped".to_owned(),
    };
    if program.restarts > 0 {
        text.push_str(&format!(", restarted {}", plural(program.restarts, "time")));
    }
    if let Some(exit) = program
        .last_exit
        .as_ref()
        .filter(|_| program.state != ProgramState::Running)
    {
        text.push_str(&format!(", last ended with {exit}"));
    }
    text
}

/// Returns the owner and the role of a CPU.
pub(crate) fn owner(cpu: &CpuStatus) -> String {
    let role = cpu.role.map(|role| role.to_string());
    match (&cpu.owner, role) {
        _ if !cpu.online => "offline".to_owned(),
        (Some(owner), Some(role)) => format!("{owner} ({role})"),
        (Some(owner), None) => owner.clone(),
        (None, Some(role)) => role,
        (None, None) => "–".to_owned(),
    }
}

/// Returns the busiest threads of a CPU.
pub(crate) fn running(cpu: &CpuStatus, shown: usize) -> String {
    let names: Vec<String> = cpu
        .threads
        .iter()
        .take(shown)
        .map(|thread| {
            let policy = thread
                .policy
                .filter(|policy| policy.is_real_time())
                .map_or_else(String::new, |policy| match policy {
                    rampart_model::SchedulingPolicy::Deadline { .. } => " deadline".to_owned(),
                    policy => format!(" {policy}"),
                });
            let name = if thread.kernel {
                format!("[{}]", thread.name)
            } else {
                format!("{} {}", thread.name, thread.thread)
            };
            format!("{name}{policy} {}", thread.cpu_time)
        })
        .collect();
    let mut text = names.join(", ");
    if cpu.threads.len() > shown {
        text.push_str(&format!(" and {} more", cpu.threads.len() - shown));
    }
    text
}

fn cpus(lines: &mut Vec<String>, cpus: &[CpuStatus], width: usize) {
    lines.push(String::new());
    let rows = cpus.iter().map(|cpu| {
        vec![
            cpu.cpu.to_string(),
            owner(cpu),
            format!("{:.0} %", 100.0 * cpu.busy),
            format!("{:.0}", cpu.interrupts_per_second),
            format!("{:.0}", cpu.softirqs_per_second),
            running(cpu, 3),
        ]
    });
    table(
        lines,
        width,
        &[
            "CPU",
            "owner",
            "busy",
            "irq/s",
            "softirq/s",
            "threads, CPU time",
        ],
        rows,
    );
}

fn findings(
    lines: &mut Vec<String>,
    status: &Status,
    subject: StatusSubject,
    title: &str,
    width: usize,
) {
    let mut some = status.of(subject).peekable();
    if some.peek().is_none() {
        return;
    }
    lines.push(String::new());
    lines.push(title.to_owned());
    for finding in some {
        let severity = finding.finding.severity;
        let text = format!("{} [{}]", finding.finding, finding.rule());
        hanging(lines, &format!("{severity:8}"), &text, width);
    }
}

fn table(
    lines: &mut Vec<String>,
    width: usize,
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .set_header(header.iter().copied())
        .force_no_tty();
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    lines.extend(table.lines().map(|line| line.trim_end().to_owned()));
}

/// Adds a text after a label, with a hanging indent. Removes control characters, since any process
/// chooses the names of its threads.
fn hanging(lines: &mut Vec<String>, label: &str, text: &str, width: usize) {
    let indent = " ".repeat(label.chars().count());
    let wrapped = wrapped(label, &indent, &clean(text), width);
    lines.extend(wrapped.iter().map(|line| line.trim_end().to_owned()));
}
