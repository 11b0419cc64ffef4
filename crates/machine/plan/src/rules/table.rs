// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules as a table: `docs/plan.md` repeats it, and a test compares the two.

use std::fmt;

use rampart_model::{PlanFinding, Severity};

use super::{
    Context, boot, caches, cells, cores, guests, host, isolation, limits, memory, owners,
    priorities,
};

/// A rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name, which does not change.
    pub name: &'static str,
    /// How much breaking it matters; single findings of it can be milder.
    pub severity: Severity,
    /// Whether a plan may waive it.
    pub waivable: bool,
    /// What it demands.
    pub demand: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    pub(crate) check: fn(&Context<'_>) -> Vec<PlanFinding>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("severity", &self.severity)
            .field("waivable", &self.waivable)
            .finish_non_exhaustive()
    }
}

const E: Severity = Severity::Error;
const W: Severity = Severity::Warning;

macro_rules! rule {
    ($name:literal, $severity:expr, $waivable:expr, $check:path, $demand:literal, $source:literal) => {
        Rule {
            name: $name,
            severity: $severity,
            waivable: $waivable,
            demand: $demand,
            source: $source,
            check: $check,
        }
    };
}

/// Every rule, in the order in which they are checked.
pub const RULES: [Rule; 27] = [
    rule!(
        "same-machine",
        E,
        false,
        owners::same_machine,
        "The machine has the topology of the plan's fingerprint",
        "CPU numbers move when threads of cores are switched (openshift-docs#28436)"
    ),
    rule!(
        "kind-not-built",
        E,
        false,
        owners::kind_not_built,
        "Rampart can host the kind of each domain",
        "Rampart"
    ),
    rule!(
        "cell-machine",
        E,
        false,
        cells::machine,
        "Cells have an arm64 machine and a kernel without VHE; CPU 0 is none of theirs",
        "Rampart: docs/hypervisor.md"
    ),
    rule!(
        "selector",
        E,
        false,
        owners::selector,
        "There are CPUs with the properties that a domain asks for",
        "Rampart"
    ),
    rule!(
        "cpu-exists",
        E,
        false,
        owners::cpu_exists,
        "Every CPU that is named is there and online",
        "tuned (assert2), ACRN cpu_assignment.xsd"
    ),
    rule!(
        "housekeeping",
        E,
        true,
        owners::housekeeping,
        "Housekeeping has at least one CPU, the boot CPU among them, and none of a domain's; no CPU is forgotten",
        "OpenShift performance profile; Linux Documentation/timers/no_hz.rst"
    ),
    rule!(
        "one-owner",
        E,
        true,
        owners::one_owner,
        "Each real-time CPU belongs to one domain",
        "ACRN cpu_assignment.xsd"
    ),
    rule!(
        "virtual-cpu-placement",
        E,
        true,
        guests::placement,
        "Each virtual CPU has a CPU of its own, and the emulator is on no real-time CPU",
        "libvirt kbase kvm-realtime; SEAPATH ansible#438, #439"
    ),
    rule!(
        "guest-housekeeping",
        E,
        true,
        guests::housekeeping,
        "A real-time guest has two virtual CPUs, or a named place for its emulator",
        "libvirt kbase kvm-realtime; OpenStack Nova real-time"
    ),
    rule!(
        "virtual-cpu-range",
        E,
        false,
        guests::range,
        "Numbers of virtual CPUs are below their count",
        "libvirt formatdomain (its own example breaks it)"
    ),
    rule!(
        "whole-core",
        W,
        true,
        cores::whole_core,
        "Threads beside a real-time CPU are idle, offline or the same domain's",
        "OpenShift performance profile creator; openshift-docs#28436, #58610"
    ),
    rule!(
        "one-node",
        E,
        true,
        memory::one_node,
        "CPUs, memory and devices of a domain are on one memory node",
        "KubeVirt realtime; libvirt kbase kvm-realtime"
    ),
    rule!(
        "huge-pages",
        E,
        true,
        memory::huge_pages,
        "The huge pages of a guest are free, of a size that the processor has, on its node",
        "OpenShift performance profile; Linux Documentation/admin-guide/mm/hugetlbpage.rst"
    ),
    rule!(
        "priority-ladder",
        E,
        true,
        priorities::ladder,
        "A domain's priority is below that of the kernel's own threads on its CPUs, or something keeps them from starving",
        "tuned realtime-virtual-host; OpenShift node tuning operator"
    ),
    rule!(
        "kernel-command-line",
        E,
        true,
        boot::line,
        "isolcpus=, nohz_full= and rcu_nocbs= name the real-time CPUs, all the same, with managed interrupts off",
        "Linux kernel/sched/isolation.c: a mismatch is silent"
    ),
    rule!(
        "core-kind",
        W,
        true,
        cores::kind,
        "CPUs of a domain are of one kind of core",
        "ACRN cpu_assignment.xsd"
    ),
    rule!(
        "kernel-option",
        E,
        true,
        boot::kernel_options,
        "The kernel is built with what the plan needs",
        "Linux Documentation/timers/no_hz.rst, admin-guide/cgroup-v2.rst, filesystems/resctrl.rst"
    ),
    rule!(
        "dedicated-hint",
        W,
        true,
        guests::dedicated_hint,
        "A guest that keeps its CPUs when idle, or is told that they are its own, has them for itself",
        "Linux Documentation/virt/kvm/api.rst (KVM_CAP_X86_DISABLE_EXITS), virt/kvm/x86/cpuid.rst"
    ),
    rule!(
        "resource-limits",
        E,
        true,
        limits::resources,
        "Who starts the domains may use their priorities and lock their memory",
        "sched(7), getrlimit(2)"
    ),
    rule!(
        "guest-kernel",
        W,
        true,
        guests::kernel,
        "The kernel of a real-time guest is built for real time",
        "ocp-virt-cookbook#141: 9.5 ms worst latency with a stock kernel"
    ),
    rule!(
        "other-managers",
        W,
        true,
        limits::managers,
        "Nobody else tunes the machine at the same time",
        "tuned and irqbalance undo what others set"
    ),
    rule!(
        "group-budget",
        E,
        true,
        limits::group_budget,
        "Control groups can be given a real-time budget, where the kernel asks for one",
        "Linux Documentation/scheduler/sched-rt-group.rst; moby#22380, runc#2431"
    ),
    rule!(
        "network-queues",
        W,
        true,
        isolation::network_queues,
        "A network interface has no more queues than there are housekeeping CPUs",
        "OpenShift node tuning operator (net queues)"
    ),
    rule!(
        "latency-killers",
        W,
        true,
        isolation::latency_killers,
        "No NMI watchdog, and no firmware interrupts",
        "Linux Documentation/admin-guide/lockup-watchdogs.rst; Intel SDM volume 4, MSR 0x34"
    ),
    rule!(
        "shared-cache",
        W,
        true,
        isolation::shared_cache,
        "No last-level cache is shared with others, or the domain has ways of its own",
        "Linux Documentation/filesystems/resctrl.rst"
    ),
    rule!(
        "cache-share",
        E,
        false,
        caches::shares,
        "The shares of caches and memory bandwidth that the plan asks for can be had",
        "Linux Documentation/filesystems/resctrl.rst"
    ),
    rule!(
        "host-settings",
        W,
        true,
        host::settable,
        "What the plan says to apply is a file, a boot parameter or a thread, which can be set",
        "Rampart"
    ),
];
