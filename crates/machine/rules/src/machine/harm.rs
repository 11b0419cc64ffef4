// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which deviations of a machine harm latencies.

use std::cmp::Reverse;

use rampart_model::{Finding, Severity};

/// The rules of [`crate::FIGURE_RULES`] by the latency that their deviation can cause, the largest
/// first, each with its deviation as a clause. First what no setting repairs (the kernel, an
/// emulator, a container, a hypervisor), then what delays each wakeup or stops a thread for
/// milliseconds, then what interrupts for microseconds, last what only weakens Rampart's isolation.
pub const HARM: [(&str, &str); 23] = [
    (
        "preempt-rt",
        "the kernel is not built with PREEMPT_RT, so nothing bounds the delay of a woken thread",
    ),
    (
        "not-emulated",
        "the processor is emulated, so measured times are not real",
    ),
    (
        "enough-cpus",
        "no CPU is left for ordinary work, which then runs on the real-time CPUs",
    ),
    (
        "not-in-a-container",
        "Rampart runs in a container and cannot isolate CPUs there",
    ),
    (
        "not-a-guest",
        "the machine is a guest, and its hypervisor can take the CPUs at any time",
    ),
    (
        "real-time-group-scheduling",
        "control groups without a budget cannot run real-time threads",
    ),
    (
        "real-time-throttling",
        "the kernel stops a real-time thread that does not sleep in each period",
    ),
    (
        "fair-server",
        "the kernel takes up to 50 ms of each second from real-time threads",
    ),
    (
        "stalld",
        "stalld takes CPU time from real-time threads that starve others",
    ),
    (
        "idle-states",
        "the CPUs enter idle states that take long to wake from",
    ),
    (
        "sibling-threads",
        "real-time CPUs share a core with other work",
    ),
    ("governor", "the CPUs slow down while they are idle"),
    (
        "clock-source",
        "the kernel reads a slow clock at each wakeup",
    ),
    (
        "boot-lists-agree",
        "the CPU lists of the kernel command line differ",
    ),
    (
        "one-kind-of-core",
        "the real-time CPUs are cores of different speeds",
    ),
    (
        "transparent-huge-pages",
        "the kernel merges and splits pages in the background",
    ),
    (
        "numa-balancing",
        "the kernel unmaps pages to move memory between nodes",
    ),
    ("irqbalance", "irqbalance moves interrupts between CPUs"),
    ("tuned", "tuned changes settings that Rampart compares"),
    (
        "nohz-full",
        "the tick interrupts busy real-time CPUs 100 to 1000 times a second",
    ),
    (
        "config-no-hz-full",
        "the kernel cannot stop the tick on busy CPUs",
    ),
    (
        "nmi-watchdog",
        "the NMI watchdog interrupts every CPU every few seconds",
    ),
    (
        "control-group-version",
        "control groups of version 1 have no isolated partitions",
    ),
];

/// Returns what a deviation from a rule means for latencies, as a clause; `None` for other rules.
#[must_use]
pub fn harm(rule: &str) -> Option<&'static str> {
    let mut all = HARM.into_iter();
    all.find(|(id, _)| *id == rule).map(|(_, words)| words)
}

/// Returns the errors and warnings, what harms latencies most first: by severity, then by the order
/// of [`HARM`]. Findings of other rules or of none follow, in their order.
#[must_use]
pub fn by_harm<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Vec<&'a Finding> {
    let mut all: Vec<&Finding> = findings
        .into_iter()
        .filter(|finding| finding.severity > Severity::Note)
        .collect();
    all.sort_by_key(|finding| {
        let order = harm_order(finding.rule.as_deref());
        (Reverse(finding.severity), order)
    });
    all
}

/// Returns the index of a rule in [`HARM`], or its length for others.
pub(crate) fn harm_order(rule: Option<&str>) -> usize {
    let known = HARM.iter().position(|(id, _)| Some(*id) == rule);
    known.unwrap_or(HARM.len())
}
