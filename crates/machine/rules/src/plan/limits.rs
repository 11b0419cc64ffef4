// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of what the machine permits: limits, budgets of control groups, other tuning software.

use rampart_model::{Nanos, PlanFinding, SchedulingPolicy, Severity};

use super::{PLAN_RULE, PlanContext};
use crate::Rule;

pub(super) const RESOURCE_LIMITS: Rule = Rule {
    id: "resource-limits",
    severity: Severity::Error,
    title: "The process that starts the domains may use their priorities and lock their memory",
    reason: "The kernel refuses a policy above the limit, and page faults are part of the latency of memory that is not locked. Without a plan nothing requests them yet, and a limit is a warning (locked-memory-limit, real-time-priority-limit).",
    source: "sched(7), getrlimit(2)",
    ..PLAN_RULE
};

pub(super) const OTHER_MANAGERS: Rule = Rule {
    id: "other-managers",
    severity: Severity::Warning,
    title: "No other software tunes the machine",
    reason: "tuned, irqbalance and the like overwrite the settings of the plan.",
    source: "tuned and irqbalance, as observed",
    ..PLAN_RULE
};

pub(super) const GROUP_BUDGET: Rule = Rule {
    id: "group-budget",
    severity: Severity::Error,
    title: "Control groups have a real-time budget if the kernel requires one",
    reason: "With CONFIG_RT_GROUP_SCHED the kernel refuses real-time policies in a group without budget, even to root, so the domains that request them do not start. Without a plan the option is a warning (real-time-group-scheduling).",
    source: "Linux Documentation/scheduler/sched-rt-group.rst; moby#22380, runc#2431",
    ..PLAN_RULE
};

/// The least memory that must be lockable: a small program with its libraries.
const LEAST_LOCKED: u64 = 64 << 20;

pub(super) fn resources(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    for domain in context.domains() {
        let planned = domain.planned;
        let highest = planned
            .highest_policy()
            .filter(|policy| policy.is_real_time());
        let guest = planned.vcpus.is_some();
        if highest.is_none() && !guest {
            continue;
        }
        let Some(limits) = &context.environment.limits else {
            findings.push(RESOURCE_LIMITS.not_decided_for(
                planned,
                "the limits of the starting process cannot be read",
                "a priority limit of 99, unlimited locked memory, or root",
                "run as root, where /proc/self/limits can be read",
            ));
            continue;
        };
        match highest {
            Some(policy @ SchedulingPolicy::Deadline { .. }) if !limits.may_schedule => findings
                .push(
                    RESOURCE_LIMITS
                        .of_domain(planned, "SCHED_DEADLINE requires CAP_SYS_NICE")
                        .values(format!("{policy} without CAP_SYS_NICE"), "CAP_SYS_NICE")
                        .fix("start as root"),
                ),
            Some(policy)
                if !limits.may_schedule
                    && limits.real_time_priority < u64::from(policy.precedence()) =>
            {
                findings.push(
                    RESOURCE_LIMITS
                        .of_domain(
                            planned,
                            "its priority is above the limit of the starting process",
                        )
                        .values(
                            format!("{policy}, limit {}", limits.real_time_priority),
                            format!(
                                "a limit of {} (RLIMIT_RTPRIO), or root",
                                policy.precedence()
                            ),
                        )
                        .fix("start as root"),
                );
            }
            _ => {}
        }
        // QEMU locks much more than the guest's memory (490 MiB for a guest of 64 MiB), so no
        // size of the limit is enough.
        if let Some(bytes) = limits.locked_memory.filter(|_| !limits.may_lock)
            && (guest || bytes < LEAST_LOCKED)
        {
            findings.push(
                RESOURCE_LIMITS
                    .of_domain(
                        planned,
                        "it may not lock its memory, so page faults are part of its latency",
                    )
                    .values(
                        format!("{} KiB (RLIMIT_MEMLOCK)", bytes >> 10),
                        if guest {
                            "no limit"
                        } else {
                            "no limit, or at least 64 MiB"
                        },
                    )
                    .fix("start as root"),
            );
        }
    }
    findings
}

pub(super) fn managers(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let Some(managers) = &context.environment.managers else {
        return vec![OTHER_MANAGERS.not_decided(
            "/proc",
            "it is not known whether other software tunes the machine",
            "no irqbalance, tuned or the like",
            "run this command outside of containers, where /proc shows the machine's processes",
        )];
    };
    managers
        .iter()
        // stalld changes no settings, and the rule `priority-ladder` relies on it.
        .filter(|name| *name != "stalld")
        .map(|name| {
            OTHER_MANAGERS
                .of_machine(
                    name.clone(),
                    "it tunes the machine too, and may overwrite settings of the plan",
                )
                .values(
                    "running",
                    "stopped, or configured not to use the real-time CPUs",
                )
                .fix(format!("systemctl disable --now {name}"))
        })
        .collect()
}

pub(super) fn group_budget(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let throttling = &context.machine.throttling;
    // Without a limit the kernel requires no budget of groups (kernel/sched/core.c).
    if throttling.group_scheduling != Some(true) || throttling.runtime.is_none() {
        return Vec::new();
    }
    let option = "CONFIG_RT_GROUP_SCHED";
    let needed = "a budget in cpu.rt_runtime_us";
    let fix = "sysctl kernel.sched_rt_runtime_us=-1";
    context
        .domains()
        .filter(|domain| !domain.planned.kind.is_housekeeping())
        .filter(|domain| {
            domain.planned.policies().any(|policy| {
                matches!(
                    policy,
                    SchedulingPolicy::Fifo(_) | SchedulingPolicy::RoundRobin(_)
                )
            })
        })
        .filter_map(|domain| {
            let planned = domain.planned;
            if context.machine.control_groups == "v2" {
                return Some(
                    GROUP_BUDGET
                        .of_domain(planned, "the kernel refuses real-time policies in control groups, and cgroup v2 has no real-time budgets")
                        .values(format!("{option} on, cgroup v2"), "no limit, or no budgets")
                        .fix(fix),
                );
            }
            match context.environment.group_budget {
                Some(Nanos(0)) => Some(
                    GROUP_BUDGET
                        .of_domain(planned, "the kernel refuses real-time policies in control groups without a budget, and no budget is left")
                        .values(format!("{option} on, no real-time budget left"), needed)
                        .fix(fix),
                ),
                Some(_) => None,
                None => Some(
                    GROUP_BUDGET
                        .not_decided_for(planned, "real-time policies need a budget in its control group, and it is not known whether one is left", needed, fix)
                        .values(format!("{option} on"), needed),
                ),
            }
        })
        .collect()
}
