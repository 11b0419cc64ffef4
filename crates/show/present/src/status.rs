// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A status: the owners of CPUs, their programs, and findings.

use rampart_model::{
    CpuStatus, DomainStatus, ProgramState, SchedulingPolicy, Status, StatusPlan, StatusSubject,
    plural,
};

use crate::element::{Element, Pair};
use crate::plan_picture::{item, lines_table};

/// Returns a status: whether the plan is in effect, domains and CPUs, then the findings.
#[must_use]
pub fn status(status: &Status) -> Vec<Element> {
    let mut elements = vec![Element::Heading {
        level: 1,
        id: String::new(),
        text: format!("{}, observed for {}", status.host_name, status.interval).into(),
        name: String::new(),
    }];
    elements.push(Element::paragraph(answer(status)));
    let mut pairs = Vec::new();
    if let Some(plan) = &status.plan {
        pairs.push(Pair::new("plan", plan_line(plan)));
        for finding in &plan.not_effective {
            pairs.push(Pair::new("differs from the plan", finding.to_string()));
        }
    }
    pairs.push(Pair::new("isolation", isolation(status)));
    elements.push(Element::Pairs { pairs });
    if !status.domains.is_empty() {
        elements.push(Element::heading(2, "Domains"));
        let rows = status.domains.iter().map(|domain| {
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
        elements.push(lines_table(
            &["domain", "kind", "CPUs", "isolation", "program"],
            rows,
        ));
    }
    elements.push(Element::heading(2, "CPUs"));
    let rows = status.cpus.iter().map(|cpu| {
        let threads = [busiest_threads(cpu, 3)];
        cpu_entries(cpu).into_iter().chain(threads).collect()
    });
    elements.push(lines_table(
        &[
            "CPU",
            "owner",
            "busy",
            "irq/s",
            "softirq/s",
            "threads, CPU time",
        ],
        rows,
    ));
    for (subject, title) in [
        (StatusSubject::Drift, "Differences from the plan"),
        (StatusSubject::Colocation, "Colocations that cause latency"),
        (StatusSubject::UnwantedActivity, "Unwanted activity"),
    ] {
        findings(&mut elements, status, subject, title);
    }
    elements
}

/// Returns whether the machine is as its plan, or without one as its settings, intend.
fn answer(status: &Status) -> String {
    let drift = status.of(StatusSubject::Drift).count();
    match (&status.plan, &status.division) {
        (Some(_), _) if drift > 0 => format!(
            "The plan is no longer fully in effect: {}.",
            plural(drift, "difference")
        ),
        // The kernel or the machine refused them when the plan was applied.
        (Some(plan), _) if !plan.not_effective.is_empty() => format!(
            "The plan is in effect as it was applied, with {} from its text.",
            plural(plan.not_effective.len(), "difference")
        ),
        (Some(_), _) => "No drift: the plan is in effect.".to_owned(),
        (None, Some(division)) => {
            let cpus = format!(
                "No plan is active. {} {} kept for real-time work ({})",
                division.real_time.named(),
                if division.real_time.len() == 1 {
                    "is"
                } else {
                    "are"
                },
                division.chosen_by
            );
            match status.problems() {
                0 => format!("{cpus}, and nothing was found that disturbs it."),
                count => format!("{cpus}: {} below.", plural(count, "problem")),
            }
        }
        (None, None) => "No plan is active, and no setting keeps CPUs for real-time work. \
             `rampart plan propose` writes a plan, `rampart apply PLAN` applies it."
            .to_owned(),
    }
}

fn plan_line(plan: &StatusPlan) -> String {
    let applied = i64::try_from(plan.applied_at.0 / 1_000_000_000)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(|| "at an unknown time".to_owned(), |time| time.to_string());
    format!(
        "{} {}, applied {applied}; housekeeping {}, real-time {}",
        plan.file,
        plan.state,
        plan.housekeeping.named(),
        plan.real_time.named()
    )
}

fn isolation(status: &Status) -> String {
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
    format!(
        "isolated CPUs {}; without a tick (nohz_full) {}; partitions {}",
        or_none(isolation.isolated.to_string()),
        or_none(isolation.nohz_full.to_string()),
        or_none(partitions.join(", "))
    )
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

/// Returns the number of a CPU, its owner, its load, interrupts and softirqs.
pub(crate) fn cpu_entries(cpu: &CpuStatus) -> [String; 5] {
    [
        cpu.cpu.to_string(),
        cpu_owner(cpu),
        format!("{:.0} %", 100.0 * cpu.busy),
        format!("{:.0}", cpu.interrupts_per_second),
        format!("{:.0}", cpu.softirqs_per_second),
    ]
}

/// Returns the owner of a CPU with its role.
fn cpu_owner(cpu: &CpuStatus) -> String {
    let role = cpu.role.map(|role| role.to_string());
    match (&cpu.owner, role) {
        _ if !cpu.online => "offline".to_owned(),
        (Some(owner), Some(role)) => format!("{owner} ({role})"),
        (Some(owner), None) => owner.clone(),
        (None, Some(role)) => role,
        (None, None) => "–".to_owned(),
    }
}

/// Returns the busiest threads of a CPU with their CPU time, at most `shown`.
pub(crate) fn busiest_threads(cpu: &CpuStatus, shown: usize) -> String {
    let names: Vec<String> = cpu
        .threads
        .iter()
        .take(shown)
        .map(|thread| {
            let policy = thread
                .policy
                .filter(|policy| policy.is_real_time())
                .map_or_else(String::new, |policy| match policy {
                    SchedulingPolicy::Deadline { .. } => " deadline".to_owned(),
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

fn findings(elements: &mut Vec<Element>, status: &Status, subject: StatusSubject, title: &str) {
    let items: Vec<_> = status
        .of(subject)
        .map(|finding| {
            let text = format!("{} [{}]", finding.finding, finding.rule());
            item(finding.finding.severity.name(), text)
        })
        .collect();
    if !items.is_empty() {
        elements.push(Element::heading(2, title));
        elements.push(Element::List { items });
    }
}
