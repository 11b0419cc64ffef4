// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time budgets of control groups, and why a real-time policy is refused
//! (Documentation/scheduler/sched-rt-group.rst, sched(7)).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rampart_model::{Finding, Nanos, Severity};

use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::groups::{self, Hierarchies};
use crate::kernel::{Kernel, RunningKernel};
use crate::kernel_config::KernelConfig;
use crate::root::MachineRoot;

const RUNTIME: &str = "cpu.rt_runtime_us";
const PERIOD: &str = "cpu.rt_period_us";
const GLOBAL_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// `CAP_SYS_NICE` of include/uapi/linux/capability.h.
const MAY_SCHEDULE: u32 = 23;

/// The real-time budget of a process's control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealTimeBudget {
    /// The group, relative to the `cpu` controller's root; none where no budget is needed.
    pub group: Option<String>,
    /// Time granted in each period; none where there is no limit.
    pub runtime: Option<Nanos>,
    /// Length of the period; none where there is no limit.
    pub period: Option<Nanos>,
    /// What is weaker than asked.
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

/// Grants `wanted` in each period, or what is left of it, to the group of a process.
pub(crate) fn grant(
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
    let mut effective_settings = (0, 0);
    // A child's share is part of its parent's, so the parents come first.
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let parent = group.clone();
        group.push(name);
        let period = number(&*kernel, &group.join(PERIOD)).unwrap_or(1_000_000);
        let present = number(&*kernel, &group.join(RUNTIME)).unwrap_or(0);
        let asked = i64::try_from(wanted.0 / 1_000)
            .unwrap_or(i64::MAX)
            .min(period);
        effective_settings = (present, period);
        if present >= asked {
            continue;
        }
        let available = available(&*kernel, &parent, &group, period);
        let runtime = asked.min(available);
        let file = group.join(RUNTIME);
        if runtime <= present {
            if present > 0 {
                findings.push(less(&file, present, asked));
                continue;
            }
            return Err(HostError::Request {
                location: file.display().to_string(),
                what: "no real-time budget is left for this group, so real-time policies are refused in it".to_owned(),
                present: format!("{present} µs of {period} µs; left in {}: {available} µs", parent.display()),
                needed: format!("{asked} µs"),
                fix: format!("lower {RUNTIME} of the groups beside it, or `sysctl kernel.sched_rt_runtime_us=-1`"),
            });
        }
        if runtime < asked {
            findings.push(less(&file, runtime, asked));
        }
        let answers = changes.set(&[Setting::text(&file, runtime.to_string())])?;
        let answer = answers.into_iter().next().unwrap_or(Ok(String::new()));
        if let Err(cause) = answer.map(|_| ()).or_else(|cause| {
            // The change is in the journal by now.
            write_once_free(&*kernel, &file, runtime, cause)
        }) {
            return Err(HostError::file(
                "grant a real-time budget",
                &file,
                cause,
                "lower the budgets of the groups beside it, or `sysctl kernel.sched_rt_runtime_us=-1`",
            ));
        }
        effective_settings = (runtime, period);
    }
    let micros = |value: i64| Nanos::from_micros(u64::try_from(value).unwrap_or(0));
    Ok(RealTimeBudget {
        group: Some(path),
        runtime: Some(micros(effective_settings.0)),
        period: Some(micros(effective_settings.1)),
        findings,
    })
}

/// The kernel goes on counting the budget of a removed group until it has buried the last task
/// in it, and refuses until then (EINVAL) what is free by the groups that are left.
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

fn less(file: &Path, got: i64, asked: i64) -> Finding {
    Finding::new(
        Severity::Warning,
        file.display().to_string(),
        "the group gets less real-time budget than asked; real-time threads in it pause when it is used up",
    )
    .values(format!("{got} µs"), format!("{asked} µs"))
    .fix(format!("lower {RUNTIME} of the groups beside it"))
}

/// Microseconds of `period` that the parent has not given to other children.
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
    // Rounded down: the kernel adds the shares up exactly.
    ((share(parent) - taken).max(0.0) * period as f64 + 1e-6).floor() as i64
}

/// Mount point of the `cpu` controller and the group of a thread in it, where real-time budgets
/// belong to groups and the thread is in another than the root.
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

/// Mount point of the `cpu` controller and the group of a thread in it, where that has no
/// real-time budget and needs one.
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

/// Whether the limit is off, in which case the kernel asks no group for a budget.
fn is_unlimited(kernel: &dyn Kernel) -> bool {
    number(kernel, Path::new(GLOBAL_RUNTIME)) == Some(-1)
}

fn number(kernel: &dyn Kernel, path: &Path) -> Option<i64> {
    kernel.read(path).ok()?.trim().parse().ok()
}

/// Time in each second that the kernel would still grant a new control group directly below the
/// root of the `cpu` controller; none where groups need no budget.
#[must_use]
pub fn free_real_time_budget() -> Option<Nanos> {
    let kernel = &RunningKernel;
    let hierarchies = Hierarchies::of(kernel);
    let root = hierarchies.legacy_with("cpu")?;
    if is_unlimited(kernel) || !kernel.exists(&root.join(RUNTIME)) {
        return None;
    }
    let micros = available(
        kernel,
        root,
        &root.join("a group that is not there"),
        1_000_000,
    );
    Some(Nanos::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Why the kernel refuses (EPERM) a real-time policy for a thread; none where it would not, or
/// where the thread is gone.
///
/// The kernel asks for a budget of the thread's group first (`CONFIG_RT_GROUP_SCHED`), for root
/// too, and then for `CAP_SYS_NICE` in the first user namespace or a limit of real-time
/// priorities above zero (sched(7)).
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
                "echo 10000 > {}, or move the thread to the root group: echo {thread} > {}",
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
            "the kernel gives real-time budgets to groups (CONFIG_RT_GROUP_SCHED) and cgroup v2 cannot set them, so real-time policies are refused outside the root group, for root too",
        )
        .fix("sysctl kernel.sched_rt_runtime_us=-1, or start the kernel with rt_group_sched=0 (from 6.15), or use one without CONFIG_RT_GROUP_SCHED")
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
    if effective & (1 << MAY_SCHEDULE) != 0 || limit != "0" {
        return None;
    }
    Some(
        Finding::new(
            Severity::Error,
            format!("/proc/{thread}"),
            "the thread may not choose a real-time policy",
        )
        .values(
            "no CAP_SYS_NICE, RLIMIT_RTPRIO 0",
            "CAP_SYS_NICE, or RLIMIT_RTPRIO of at least the priority",
        )
        .fix("run as root, or `ulimit -r 99` from a line `rtprio 99` in /etc/security/limits.conf"),
    )
}
