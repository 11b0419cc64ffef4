// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explains why the kernel refused a request, with location, values and fix.
//!
//! The rules are those of the kernel's checks (kernel/sched/syscalls.c, `__sched_setscheduler`):
//! privilege first, then the real-time budget of the thread's group, then the rules of deadline
//! threads.

use std::io;
use std::path::{Path, PathBuf};

use rampart_model::{
    CpuId, CpuSet, Finding, GROUP_BUDGETS_OFF, Refusal, RefusalKind, SchedulingPolicy, Severity,
};

use super::files::{self, Group};
use super::privilege::{self, Capability, Resource};
use super::{cpus, memory_locking};

fn refusal(kind: RefusalKind, finding: Finding) -> Refusal {
    Refusal { kind, finding }
}

fn problem(location: impl Into<String>, what: impl Into<String>) -> Finding {
    Finding::new(Severity::Error, location, what)
}

/// Returns the refusal for a failure of an operation that should always succeed.
pub(crate) fn system(location: &str, what: &str, cause: &io::Error) -> Refusal {
    let finding = problem(location, format!("{what}: {cause}"));
    refusal(RefusalKind::System, finding)
}

/// Returns why a CPU of the plan cannot be used, or `None` if all can. Checks the program's
/// affinity only with `if_inside`: a caller that places the threads may widen it first.
pub(crate) fn unusable_cpu(wanted: &CpuSet, allowed: &CpuSet, if_inside: bool) -> Option<Refusal> {
    let online = cpus::online();
    wanted.iter().find_map(|cpu| match &online {
        Some(online) if !online.contains(cpu) => Some(offline(cpu, online)),
        _ if if_inside && !allowed.contains(cpu) => Some(outside(cpu, allowed)),
        _ => None,
    })
}

fn offline(cpu: CpuId, online: &CpuSet) -> Refusal {
    let exists = cpus::present().is_none_or(|present| present.contains(cpu));
    let finding = if exists {
        problem(format!("CPU {cpu}"), "the CPU is offline")
            .values("offline", "online")
            .fix(format!("echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"))
    } else {
        problem(format!("CPU {cpu}"), "this machine has no such CPU")
            .values("absent", format!("one of the online CPUs {online}"))
            .fix(format!("name CPUs from {online}"))
    };
    refusal(RefusalKind::CpuOffline, finding)
}

/// Returns the file with the CPUs of the program's cpuset, and these CPUs.
fn cpuset() -> Option<(PathBuf, CpuSet)> {
    let group = Group::of_controller("cpuset")?;
    // Read the effective CPUs of the nearest group that has the file: a v2 group without the
    // controller lacks it and uses those of its parent.
    group
        .outermost_first()
        .into_iter()
        .rev()
        .find_map(|directory| {
            let effective = if group.unified {
                "cpuset.cpus.effective"
            } else {
                "cpuset.effective_cpus"
            };
            let cpus: CpuSet = files::text(directory.join(effective))?.parse().ok()?;
            Some((directory.join("cpuset.cpus"), cpus))
        })
}

/// Returns the refusal for a CPU that is online but not available to the program.
pub(crate) fn outside(cpu: CpuId, allowed: &CpuSet) -> Refusal {
    let location = format!("CPU {cpu}");
    let finding = match cpuset() {
        Some((file, cpus)) if !cpus.contains(cpu) => problem(
            file.display().to_string(),
            format!("CPU {cpu} is outside the cpuset of this program"),
        )
        .values(cpus.to_string(), format!("a set with {cpu}"))
        .fix(format!(
            "echo {} > {} (and in the groups above it)",
            cpus.union(&CpuSet::single(cpu)),
            file.display()
        )),
        Some(_) => problem(
            location,
            "the program was started with an affinity that excludes this CPU, although its cpuset contains it",
        )
        .values(allowed.to_string(), format!("a set with {cpu}"))
        .fix(format!(
            "start it without taskset or CPUAffinity=\nstart it with taskset -c {}",
            allowed.union(&CpuSet::single(cpu))
        )),
        None => problem(
            location,
            "the affinity of the program (Cpus_allowed_list in /proc/self/status) excludes the CPU",
        )
        .values(allowed.to_string(), format!("a set with {cpu}"))
        .fix(format!(
            "give the program's cpuset or container CPU {cpu} (docker and podman: --cpuset-cpus={})",
            allowed.union(&CpuSet::single(cpu))
        )),
    };
    refusal(RefusalKind::CpuOutsideCpuset, finding)
}

/// Returns the refusal for a thread that is not bound to exactly its CPU.
pub(crate) fn affinity(thread: &str, cpu: CpuId, present: &CpuSet) -> Refusal {
    let mut finding = problem(
        format!("thread {thread}"),
        "the thread is not bound to exactly its CPU",
    )
    .values(present.to_string(), cpu.to_string());
    finding.fix = Some(match cpuset() {
        Some((file, cpus)) if !cpus.contains(cpu) => format!(
            "echo {} > {}, then taskset -cp {cpu} TID",
            cpus.union(&CpuSet::single(cpu)),
            file.display()
        ),
        _ => format!("taskset -cp {cpu} TID, before the request `go`"),
    });
    refusal(RefusalKind::AffinityNotEffective, finding)
}

/// Returns the refusal for a thread that is in another control group than before.
pub(crate) fn control_group(thread: &str, before: &str, present: &str) -> Refusal {
    let finding = problem(
        format!("thread {thread}"),
        "the thread is in another control group",
    )
    .values(present, before);
    refusal(RefusalKind::AffinityNotEffective, finding)
}

/// Returns the refusal for a thread whose placement changed during the measurement.
pub(crate) fn changed(refusal: Refusal) -> Refusal {
    let Refusal { kind, mut finding } = refusal;
    finding.what = format!("{}, since the measurement began", finding.what);
    finding.fix = Some(
        "keep other programs (a tuning daemon, the setup of a cpuset) from changing policies and affinities during a measurement".to_owned(),
    );
    Refusal { kind, finding }
}

/// Returns the refusal for a thread with another policy than requested, although no call failed.
pub(crate) fn other_policy(thread: &str, wanted: SchedulingPolicy, present: &str) -> Refusal {
    let command = match wanted {
        SchedulingPolicy::Other => "chrt -o -p 0 TID".to_owned(),
        SchedulingPolicy::Fifo(priority) => format!("chrt -f -p {priority} TID"),
        SchedulingPolicy::RoundRobin(priority) => format!("chrt -r -p {priority} TID"),
        SchedulingPolicy::Deadline {
            runtime,
            deadline,
            period,
        } => format!(
            "chrt -d --sched-runtime {} --sched-deadline {} --sched-period {} -p 0 TID",
            runtime.0, deadline.0, period.0
        ),
    };
    let finding = problem(
        format!("thread {thread}"),
        "the thread does not have the requested policy",
    )
    .values(present, wanted.to_string())
    .fix(format!("{command}, before the request `go`"));
    refusal(RefusalKind::PolicyNotEffective, finding)
}

/// Returns the refusal for a policy that the kernel rejected.
pub(crate) fn policy(wanted: SchedulingPolicy, cause: &io::Error) -> Refusal {
    let location = format!("scheduling policy {wanted}");
    let deadline = matches!(wanted, SchedulingPolicy::Deadline { .. });
    match cause.raw_os_error() {
        Some(libc::EPERM) => {
            if !deadline && let Some(refused) = no_budget(wanted) {
                return refused;
            }
            if let Some(refused) = no_privilege(wanted) {
                return refused;
            }
            if deadline {
                return refusal(RefusalKind::PolicyNotEffective, problem(
                    location,
                    "a deadline thread must be allowed on each CPU of its root domain, which needs a deadline budget; the affinity or cpuset of this thread excludes some CPUs",
                )
                .values(
                    super::scheduling::affinity().map_or_else(|_| "unknown".to_owned(), |cpus| cpus.to_string()),
                    "all CPUs of the root domain, and kernel.sched_rt_runtime_us not 0",
                )
                .fix("start the program without an affinity\nstart it in a cpuset of its own: v1 cpuset.cpu_exclusive=1 with sched_load_balance=0 in the root, v2 cpuset.cpus.partition=root"));
            }
            let seccomp = files::field("/proc/self/status", "Seccomp").as_deref() == Some("2");
            let finding = problem(
                location,
                "the kernel refuses the policy although the program has the privilege",
            )
            .values("EPERM", "permission");
            refusal(RefusalKind::PolicyNotEffective, if seccomp {
                finding.fix("allow sched_setattr in the seccomp filter of this container")
            } else {
                finding.fix("read dmesg and the audit log: a security module may forbid it")
            })
        }
        Some(libc::EBUSY) if deadline => {
            let runtime = files::text("/proc/sys/kernel/sched_rt_runtime_us");
            let period = files::text("/proc/sys/kernel/sched_rt_period_us");
            refusal(RefusalKind::PolicyNotEffective, problem(
                location,
                "admission control refuses: with this thread, deadline threads would reserve more than their share of the CPUs",
            )
            .values(
                format!(
                    "kernel.sched_rt_runtime_us {} of kernel.sched_rt_period_us {}",
                    runtime.as_deref().unwrap_or("unknown"),
                    period.as_deref().unwrap_or("unknown")
                ),
                "runtime ÷ period of all deadline threads together below that, for each CPU",
            )
            .fix("use a shorter runtime or a longer period, or end other deadline threads"))
        }
        Some(libc::EINVAL) if deadline => refusal(RefusalKind::PolicyNotEffective, problem(
            location,
            "the kernel does not accept these deadline parameters",
        )
        .values(
            wanted.to_string(),
            "a period within kernel.sched_deadline_period_min_us and _max_us (by default 100 µs and 4 s)",
        )
        .fix("choose another period, or change these two sysctls")),
        _ => system(&location, "cannot set it", cause),
    }
}

/// Returns a refusal if the program's control group has no real-time budget.
fn no_budget(wanted: SchedulingPolicy) -> Option<Refusal> {
    // Without a limit for the machine, groups are not limited either.
    if files::number("/proc/sys/kernel/sched_rt_runtime_us") == Some(-1) {
        return None;
    }
    let group = Group::of_controller("cpu")?;
    let also = match no_privilege(wanted) {
        Some(refused) => format!("; after that: {}", refused.finding),
        None => String::new(),
    };
    if group.unified {
        return no_budget_unified(&group, &also);
    }
    let file = |directory: &Path| directory.join("cpu.rt_runtime_us");
    let runtime = files::number(file(&group.directory))?;
    if runtime != 0 {
        return None;
    }
    // A group's budget is limited by its parent's, so start with the outermost group without one.
    let commands: Vec<String> = group
        .outermost_first()
        .iter()
        .map(|directory| file(directory))
        .filter(|file| files::number(file) == Some(0))
        .map(|file| format!("echo 10000 > {}", file.display()))
        .collect();
    let finding = problem(
        file(&group.directory).display().to_string(),
        "the kernel was built with RT_GROUP_SCHED, and this control group has no real-time budget, so no thread in it can have a real-time policy, whatever its capabilities",
    )
    .values("0", "more than 0")
    .fix(format!("{}{also}", commands.join(" && ")));
    Some(refusal(RefusalKind::NoRealTimeBudget, finding))
}

/// Returns the refusal under cgroup v2, which has no file to give a group a budget.
fn no_budget_unified(group: &Group, also: &str) -> Option<Refusal> {
    let has_controller =
        group.directory != group.mount && files::text(group.directory.join("cpu.max")).is_some();
    let disabled = files::text("/proc/cmdline")
        .is_some_and(|line| line.split(' ').any(|word| word == "rt_group_sched=0"));
    if !has_controller || disabled || super::kernel_config("CONFIG_RT_GROUP_SCHED")? != "y" {
        return None;
    }
    let finding = problem(
        group.directory.display().to_string(),
        "the kernel was built with RT_GROUP_SCHED, and under cgroup v2 only the root group has a real-time budget",
    )
    .values("a group with the cpu controller", "the root group, or a group without it")
    .fix(format!(
        "echo $$ > {}/cgroup.procs before starting{also}\nboot with {GROUP_BUDGETS_OFF}",
        group.mount.display()
    ));
    Some(refusal(RefusalKind::NoRealTimeBudget, finding))
}

/// Returns a refusal if the privilege for a policy is missing.
fn no_privilege(wanted: SchedulingPolicy) -> Option<Refusal> {
    if privilege::has(Capability::Nice) {
        return None;
    }
    let limit = privilege::limit(Resource::RealTimePriority).unwrap_or(0);
    let needed = match wanted {
        SchedulingPolicy::Other => return None,
        SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) => Some(priority),
        SchedulingPolicy::Deadline { .. } => None,
    };
    if needed.is_some_and(|needed| u64::from(needed) <= limit) {
        return None;
    }
    let namespace = if privilege::in_user_namespace() {
        " (a capability inside a user namespace does not count)"
    } else {
        ""
    };
    let location = format!("scheduling policy {wanted}");
    let finding = match needed {
        Some(needed) => problem(location, format!("the privilege is missing{namespace}"))
            .values(
                format!("RLIMIT_RTPRIO {limit}, no CAP_SYS_NICE"),
                format!("RLIMIT_RTPRIO of at least {needed}, or CAP_SYS_NICE"),
            )
            .fix(format!(
                "run as root\nprlimit --pid $$ --rtprio={needed} as root before (services: LimitRTPRIO={needed}; containers: --ulimit rtprio={needed} or --cap-add SYS_NICE)"
            )),
        None => problem(location, format!("the privilege is missing{namespace}"))
            .values("no CAP_SYS_NICE", "CAP_SYS_NICE (no limit replaces it)")
            .fix("run as root (containers: --cap-add SYS_NICE)"),
    };
    Some(refusal(RefusalKind::PolicyNotEffective, finding))
}

/// Returns the refusal for memory that cannot be locked.
pub(crate) fn memory_not_locked(cause: &io::Error) -> Refusal {
    let limit = privilege::limit(Resource::LockedMemory).unwrap_or(0);
    let size = memory_locking::size();
    let what = match cause.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN) => {
            "the limit does not allow the program to lock its memory".to_owned()
        }
        _ => format!("cannot lock memory: {cause}"),
    };
    let finding = problem("locked memory", what)
        .values(
            format!("RLIMIT_MEMLOCK {} KiB, no CAP_IPC_LOCK", limit / 1024),
            size.map_or_else(
                || "an unlimited RLIMIT_MEMLOCK, or CAP_IPC_LOCK".to_owned(),
                |size| {
                    format!(
                        "RLIMIT_MEMLOCK of at least {} KiB, or CAP_IPC_LOCK",
                        size.div_ceil(1024)
                    )
                },
            ),
        )
        .fix("prlimit --pid $$ --memlock=unlimited as root before (services: LimitMEMLOCK=infinity; containers: --ulimit memlock=-1 or --cap-add IPC_LOCK)\nmeasure without locking");
    refusal(RefusalKind::MemoryNotLocked, finding)
}
