// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time budgets of control groups, and reasons why the kernel refuses a real-time policy
//! (Documentation/scheduler/sched-rt-group.rst, sched(7)).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rampart_model::{Finding, GROUP_BUDGETS_OFF, Nanos, Severity};

use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::groups::{self, Hierarchies};
use crate::kernel::{Kernel, RunningKernel};
use crate::kernel_config::KernelConfig;
use crate::root::MachineRoot;

const RUNTIME: &str = "cpu.rt_runtime_us";
const PERIOD: &str = "cpu.rt_period_us";
const GLOBAL_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const FREE_BUDGET: &str =
    "lower cpu.rt_runtime_us of its sibling groups\nsysctl kernel.sched_rt_runtime_us=-1";
/// `CAP_SYS_NICE` of include/uapi/linux/capability.h.
const CAP_SYS_NICE: u32 = 23;

/// The real-time budget of a process's control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealTimeBudget {
    /// The group, relative to the `cpu` controller's root; `None` if it needs no budget.
    pub group: Option<String>,
    /// Time in each period; `None` without a limit.
    pub runtime: Option<Nanos>,
    /// Length of the period; `None` without a limit.
    pub period: Option<Nanos>,
    /// Deviations from the requested budget.
    pub findings: Vec<Finding>,
}

impl RealTimeBudget {
    const UNLIMITED: Self = Self {
        group: None,
        runtime: None,
        period: None,
        findings: Vec::new(),
    };
}

/// Sets the budget of a process's group to `wanted` in each period, or to the part of it that is free.
pub(crate) fn set_budget(
    changes: &mut Changes,
    hierarchies: &Hierarchies,
    process: u32,
    wanted: Nanos,
) -> Result<RealTimeBudget, HostError> {
    let kernel = changes.kernel();
    let Some((root, path)) = group_with_budget(&*kernel, hierarchies, process) else {
        return Ok(RealTimeBudget::UNLIMITED);
    };
    if is_unlimited(&*kernel) {
        return Ok(RealTimeBudget::UNLIMITED);
    }
    let mut group = root.clone();
    let mut findings = Vec::new();
    let mut budget = (0, 0);
    // A child's share is a part of its parent's, so the parents come first.
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let parent = group.clone();
        group.push(name);
        let period = number(&*kernel, &group.join(PERIOD)).unwrap_or(1_000_000);
        let present = number(&*kernel, &group.join(RUNTIME)).unwrap_or(0);
        let requested = i64::try_from(wanted.0 / 1_000)
            .unwrap_or(i64::MAX)
            .min(period);
        budget = (present, period);
        if present >= requested {
            continue;
        }
        let available = available(&*kernel, &parent, &group, period);
        let runtime = requested.min(available);
        let file = group.join(RUNTIME);
        if runtime <= present {
            if present > 0 {
                findings.push(smaller_budget(&file, present, requested));
                continue;
            }
            return Err(HostError::Request {
                location: file.display().to_string(),
                what: "no real-time budget is free for this group, so the kernel refuses real-time policies in it".to_owned(),
                found: format!("{present} µs of {period} µs; free in {}: {available} µs", parent.display()),
                expected: format!("{requested} µs"),
                fix: FREE_BUDGET.to_owned(),
            });
        }
        if runtime < requested {
            findings.push(smaller_budget(&file, runtime, requested));
        }
        let answers = changes.set(&[Setting::text(&file, runtime.to_string())])?;
        let answer = answers.into_iter().next().unwrap_or(Ok(String::new()));
        if let Err(cause) = answer.map(|_| ()).or_else(|cause| {
            // The change is in the journal already.
            write_once_free(&*kernel, &file, runtime, cause)
        }) {
            let action = "set the real-time budget";
            return Err(HostError::file(action, &file, cause, FREE_BUDGET));
        }
        budget = (runtime, period);
    }
    let micros = |value: i64| Nanos::from_micros(u64::try_from(value).unwrap_or(0));
    Ok(RealTimeBudget {
        group: Some(path),
        runtime: Some(micros(budget.0)),
        period: Some(micros(budget.1)),
        findings,
    })
}

/// Writes a budget again while the kernel refuses it (EINVAL): it counts the budget of a removed group
/// until the last task in it has been freed.
fn write_once_free(
    kernel: &dyn Kernel,
    file: &Path,
    runtime: i64,
    first: io::Error,
) -> io::Result<()> {
    let mut answer = Err(first);
    for _ in 0..150 {
        match &answer {
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                std::thread::sleep(Duration::from_millis(20));
                answer = kernel.write(file, &runtime.to_string());
            }
            _ => break,
        }
    }
    answer
}

fn smaller_budget(file: &Path, runtime: i64, requested: i64) -> Finding {
    Finding::new(
        Severity::Warning,
        file.display().to_string(),
        "the real-time budget of the group is smaller than requested; its real-time threads pause when it is used up",
    )
    .values(format!("{runtime} µs"), format!("{requested} µs"))
    .fix(FREE_BUDGET)
}

/// Returns the microseconds of `period` that no other child of the parent has.
fn available(kernel: &dyn Kernel, parent: &Path, group: &Path, period: i64) -> i64 {
    let share = |group: &Path| {
        let runtime = number(kernel, &group.join(RUNTIME)).unwrap_or(0);
        let period = number(kernel, &group.join(PERIOD)).unwrap_or(0);
        if runtime > 0 && period > 0 {
            runtime as f64 / period as f64
        } else {
            0.0
        }
    };
    let taken: f64 = kernel
        .names(parent)
        .into_iter()
        .map(|name| parent.join(name))
        .filter(|other| other != group && kernel.is_directory(other))
        .map(|other| share(&other))
        .sum();
    // Rounded down, because the kernel adds the shares exactly.
    ((share(parent) - taken).max(0.0) * period as f64 + 1e-6).floor() as i64
}

/// Returns the mount point of the `cpu` controller and the group of a thread in it, or `None` if
/// groups have no real-time budgets or the thread is in the root group.
fn group_with_budget(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
) -> Option<(PathBuf, String)> {
    let root = hierarchies.legacy_with("cpu")?;
    let text = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/cgroup")))
        .ok()?;
    let path = groups::group_in(&text, "cpu").filter(|path| path != "/")?;
    let file = root.join(path.trim_start_matches('/')).join(RUNTIME);
    kernel.exists(&file).then(|| (root.to_owned(), path))
}

/// Returns the mount point of the `cpu` controller and the group of a thread in it if that group needs
/// a real-time budget and has none.
pub(crate) fn group_without_budget(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
) -> Option<(PathBuf, String)> {
    if is_unlimited(kernel) {
        return None;
    }
    let (root, path) = group_with_budget(kernel, hierarchies, thread)?;
    let file = root.join(path.trim_start_matches('/')).join(RUNTIME);
    (number(kernel, &file) == Some(0)).then_some((root, path))
}

/// Returns whether real-time time is unlimited, so that groups need no budget.
fn is_unlimited(kernel: &dyn Kernel) -> bool {
    number(kernel, Path::new(GLOBAL_RUNTIME)) == Some(-1)
}

fn number(kernel: &dyn Kernel, path: &Path) -> Option<i64> {
    kernel.read(path).ok()?.trim().parse().ok()
}

/// Returns the real-time budget for each second that is free for a new control group directly below
/// the root of the `cpu` controller, or `None` if groups need no budget.
#[must_use]
pub fn free_real_time_budget() -> Option<Nanos> {
    let kernel = &RunningKernel;
    let hierarchies = Hierarchies::of(kernel);
    let root = hierarchies.legacy_with("cpu")?;
    if is_unlimited(kernel) || !kernel.exists(&root.join(RUNTIME)) {
        return None;
    }
    let micros = available(kernel, root, &root.join("a new group"), 1_000_000);
    Some(Nanos::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Returns the reason why the kernel refuses (EPERM) a real-time policy for a thread, or `None` if it
/// does not refuse or the thread has ended.
///
/// The kernel first requires a budget of the thread's group (`CONFIG_RT_GROUP_SCHED`), for root
/// too, and then `CAP_SYS_NICE` in the initial user namespace or a limit of real-time priorities
/// above zero (sched(7)).
#[must_use]
pub fn diagnose_real_time_policy(thread: u32) -> Option<Finding> {
    let config = KernelConfig::read(&MachineRoot::system());
    diagnose(&RunningKernel, thread, &config)
}

fn diagnose(kernel: &dyn Kernel, thread: u32, config: &KernelConfig) -> Option<Finding> {
    let status = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/status")))
        .ok()?;
    budget_missing(kernel, thread, config).or_else(|| privilege_missing(kernel, thread, &status))
}

fn budget_missing(kernel: &dyn Kernel, thread: u32, config: &KernelConfig) -> Option<Finding> {
    if is_unlimited(kernel) {
        return None;
    }
    let hierarchies = Hierarchies::of(kernel);
    if let Some((root, path)) = group_with_budget(kernel, &hierarchies, thread) {
        let file = root.join(path.trim_start_matches('/')).join(RUNTIME);
        return (number(kernel, &file) == Some(0)).then(|| {
            Finding::new(
                Severity::Error,
                file.display().to_string(),
                "the thread's control group has no real-time budget (CONFIG_RT_GROUP_SCHED), so the kernel refuses real-time policies in it, for root too",
            )
            .values("0", "more than 0, in its parents first")
            .fix(format!(
                "echo 10000 > {}\necho {thread} > {}",
                file.display(),
                root.join("tasks").display()
            ))
        });
    }
    // cgroup v2 has no file for the budget, and a group outside the root has none.
    let root = hierarchies.unified.filter(|root| {
        hierarchies
            .legacy
            .iter()
            .all(|(_, controllers)| !controllers.iter().any(|name| name == "cpu"))
            && kernel.is_directory(root)
    })?;
    let text = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/cgroup")))
        .ok()?;
    let path = groups::group_in(&text, "").filter(|path| path != "/")?;
    let controlled = kernel.exists(&root.join(path.trim_start_matches('/')).join("cpu.weight"));
    (controlled && config.is_set("CONFIG_RT_GROUP_SCHED") == Some(true)).then(|| {
        Finding::new(
            Severity::Error,
            path,
            "groups need a real-time budget (CONFIG_RT_GROUP_SCHED), which cgroup v2 cannot set, so the kernel refuses real-time policies outside the root group, for root too",
        )
        .fix(format!("sysctl kernel.sched_rt_runtime_us=-1\nstart the kernel with {GROUP_BUDGETS_OFF}\nuse a kernel without CONFIG_RT_GROUP_SCHED"))
    })
}

fn privilege_missing(kernel: &dyn Kernel, thread: u32, status: &str) -> Option<Finding> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())?;
    let limits = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/limits")))
        .unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime priority"))
        .and_then(|line| line.split_whitespace().next().map(str::to_owned))
        .unwrap_or_else(|| "0".to_owned());
    if effective & (1 << CAP_SYS_NICE) != 0 || limit != "0" {
        return None;
    }
    Some(
        Finding::new(
            Severity::Error,
            format!("/proc/{thread}"),
            "the thread may not use a real-time policy",
        )
        .values(
            "no CAP_SYS_NICE, RLIMIT_RTPRIO 0",
            "CAP_SYS_NICE, or RLIMIT_RTPRIO of at least the priority",
        )
        .fix("run as root\nallow `rtprio 99` in /etc/security/limits.conf and run `ulimit -r 99`"),
    )
}
