// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine lets be done: limits, budgets of control groups, and who else is at work.

use rampart_model::{DomainProgram, Nanos, PlanFinding, SchedulingPolicy, Severity};

use super::{Context, Say, about, machine, unknown, unknown_of};
use crate::resolve::{policies, precedence};

pub(super) fn resources(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "resource-limits";
    let mut findings = Vec::new();
    for each in context.domains() {
        let domain = each.planned;
        let highest = policies(domain)
            .into_iter()
            .max_by_key(|policy| precedence(*policy));
        let highest = highest.filter(|policy| policy.is_real_time());
        let guest = domain.kind.program() == DomainProgram::Guest;
        if highest.is_none() && !guest {
            continue;
        }
        let Some(limits) = &context.environment.limits else {
            findings.push(unknown_of(
                rule,
                domain,
                "what its starter is allowed is not known",
                "a priority limit of 99, unlimited locked memory, or root",
                "run as root, where /proc/self/limits is to be read",
            ));
            continue;
        };
        match highest {
            Some(policy @ SchedulingPolicy::Deadline { .. }) if !limits.may_schedule => findings
                .push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "SCHED_DEADLINE is given to the privileged only",
                    )
                    .values(format!("{policy} without CAP_SYS_NICE"), "CAP_SYS_NICE")
                    .fix("start as root, or with `setpriv --ambient-caps +sys_nice`"),
                ),
            Some(policy)
                if !limits.may_schedule
                    && limits.real_time_priority < u64::from(precedence(policy)) =>
            {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "its priority is above the limit of who starts it",
                    )
                    .values(
                        format!("{policy}, limit {}", limits.real_time_priority),
                        format!("a limit of {} (RLIMIT_RTPRIO), or root", precedence(policy)),
                    )
                    .fix("start as root, or raise rtprio in /etc/security/limits.d"),
                );
            }
            _ => {}
        }
        // QEMU locks far more than the guest's memory: of a guest of 64 MiB some 490 MiB were
        // locked, so that no size of the limit can be named.
        if let Some(bytes) = limits.locked_memory.filter(|_| !limits.may_lock) {
            let enough = !guest && bytes >= LEAST_LOCKED;
            if !enough {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "it may not lock its memory, so page faults are part of its latencies",
                    )
                    .values(
                        format!("{} KiB (RLIMIT_MEMLOCK)", bytes >> 10),
                        if guest {
                            "no limit"
                        } else {
                            "no limit, or 64 MiB at least"
                        },
                    )
                    .fix("start as root, or write memlock unlimited in /etc/security/limits.d"),
                );
            }
        }
    }
    findings
}

/// With less than this not even a small program with its libraries can be locked.
const LEAST_LOCKED: u64 = 64 << 20;

pub(super) fn managers(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "other-managers";
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let Some(managers) = &context.environment.managers else {
        return vec![unknown(
            rule,
            "/proc",
            "whether other programs tune the machine is not known",
            "no irqbalance, tuned or the like",
            "run it outside of containers, where /proc shows the machine's programs",
        )];
    };
    managers
        .iter()
        // It is the relief of another rule, and moves nothing.
        .filter(|name| *name != "stalld")
        .map(|name| {
            machine(
                rule,
                Severity::Warning,
                name.clone(),
                "it tunes the machine too, and may undo what the plan sets",
            )
            .values(
                "running",
                "stopped, or told to leave the real-time CPUs alone",
            )
            .fix(format!("systemctl disable --now {name}"))
        })
        .collect()
}

pub(super) fn group_budget(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "group-budget";
    let throttling = &context.machine.throttling;
    // Without a limit the kernel asks no group for a budget (kernel/sched/core.c).
    if throttling.group_scheduling != Some(true) || throttling.runtime.is_none() {
        return Vec::new();
    }
    let file = "CONFIG_RT_GROUP_SCHED";
    context
        .domains()
        .filter(|each| !each.planned.kind.is_housekeeping())
        .filter(|each| {
            policies(each.planned)
                .iter()
                .any(|policy| matches!(policy, SchedulingPolicy::Fifo(_) | SchedulingPolicy::RoundRobin(_)))
        })
        .filter_map(|each| {
            let domain = each.planned;
            let fix = "sysctl kernel.sched_rt_runtime_us=-1, or boot with rt_group_sched=0 (from 6.15)";
            if context.machine.control_groups == "v2" {
                return Some(
                    about(rule, domain, Severity::Error, "the kernel refuses real-time policies in control groups, to root too, and cgroup v2 has no budget to give")
                        .values(format!("{file} on, cgroup v2"), "no limit, or no budgets")
                        .fix(fix),
                );
            }
            match context.environment.group_budget {
                Some(Nanos(0)) => Some(
                    about(rule, domain, Severity::Error, "the kernel refuses real-time policies in control groups without a budget, and none is left")
                        .values(format!("{file} on, no real-time time left"), "a budget in cpu.rt_runtime_us")
                        .fix(format!("lower cpu.rt_runtime_us of other groups, or {fix}")),
                ),
                Some(_) => None,
                None => Some(
                    about(rule, domain, Severity::Note, "real-time policies need a budget in its control group, and whether one is left is not known")
                        .values(format!("{file} on"), "a budget in cpu.rt_runtime_us")
                        .fix(fix),
                ),
            }
        })
        .collect()
}
