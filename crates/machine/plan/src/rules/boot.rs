// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was decided before the machine was up: the kernel command line, and what the kernel is built with.

use rampart_model::{CpuRole, CpuSet, DomainProgram, PlanFinding, Reboot, Severity};
use rampart_rules::KernelCommandLine;

use super::{Context, Say, about, machine};
use crate::view::BOOT_CPU;

/// The three lists of CPUs that are one. `isolcpus=` and `nohz_full=` cannot name every CPU: the
/// kernel then leaves the boot CPU out (kernel/sched/isolation.c).
fn lists(context: &Context<'_>, line: &KernelCommandLine) -> [(&'static str, Option<CpuSet>); 3] {
    let topology = &context.machine.topology;
    let last = topology.possible.iter().next_back().unwrap_or(BOOT_CPU);
    ["isolcpus", "nohz_full", "rcu_nocbs"].map(|name| {
        let named = line.cpus(name, last).map(|cpus| {
            let cpus = cpus.intersection(&topology.online);
            if name != "rcu_nocbs" && topology.online.is_subset(&cpus) {
                cpus.difference(&CpuSet::single(BOOT_CPU))
            } else {
                cpus
            }
        });
        (name, named)
    })
}

pub(super) fn line(context: &Context<'_>) -> Vec<PlanFinding> {
    let wanted = &context.resolved.real_time;
    if wanted.is_empty() {
        return Vec::new();
    }
    let rule = "kernel-command-line";
    let location = "/proc/cmdline";
    let line = KernelCommandLine::parse(&context.machine.command_line);
    // Threads that stay idle may be set aside too.
    let most = wanted.union(&context.resolved.with_role(CpuRole::IdleSibling));
    let fits = |list: &CpuSet| wanted.is_subset(list) && list.is_subset(&most);
    let arguments = format!(
        "isolcpus=managed_irq,domain,{wanted} nohz_full={wanted} rcu_nocbs={wanted} irqaffinity={}",
        context.resolved.housekeeping
    );
    let planned = context.plan.boot.reboot == Reboot::Plan;
    let severity = if planned {
        Severity::Warning
    } else {
        Severity::Error
    };
    let fix = if planned {
        format!("restart with {arguments}")
    } else {
        format!("boot with {arguments}, or write reboot = \"plan\" in [boot]")
    };
    let present = |name: &str| match line.value(name) {
        Some(value) => format!("{name}={value}"),
        None => format!("no {name}="),
    };
    let lists = lists(context, &line);
    let mut findings: Vec<PlanFinding> = lists
        .iter()
        .filter(|(name, list)| {
            line.value(name).is_some() && !list.as_ref().is_some_and(fits)
        })
        .map(|(name, list)| {
            let what = match list {
                Some(_) => format!("{name}= names other CPUs than the real-time ones, and the kernel says nothing of it"),
                None => format!("the CPUs of {name}= are not to be understood, and the kernel ignores it"),
            };
            machine(rule, severity, location, what)
                .values(present(name), wanted.named().to_string())
                .fix(fix.clone())
        })
        .collect();
    let last = context.machine.topology.possible.iter().next_back();
    let isolated = line.isolcpus(last.unwrap_or(BOOT_CPU));
    if isolated
        .as_ref()
        .is_some_and(|isolated| !isolated.keeps_managed_interrupts_away())
    {
        findings.push(
            machine(
                rule,
                Severity::Warning,
                location,
                "interrupts that drivers spread over all CPUs come to the real-time ones too",
            )
            .values(
                "isolcpus= without managed_irq",
                "isolcpus=managed_irq,domain,…",
            )
            .fix(fix.clone()),
        );
    }
    let balanced = !isolated.is_some_and(|isolated| isolated.keeps_balancing_away());
    if balanced && line.value("nohz_full").is_none() {
        findings.push(
            machine(rule, Severity::Note, location, "the kernel command line keeps neither tasks nor ticks and callbacks from any CPU, so they stay on the real-time ones")
                .values(
                    format!("{}, {}", present("isolcpus"), present("nohz_full")),
                    format!("both, with {}", wanted.named()),
                )
                .fix(fix),
        );
    }
    findings
}

/// An option, whom it serves, and how much its lack matters.
struct Need {
    option: &'static str,
    severity: Severity,
    what: &'static str,
    fix: &'static str,
    impossible: bool,
}

pub(super) fn kernel_options(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "kernel-option";
    let options = &context.environment.kernel_options;
    let plan = context.plan;
    let mut needs: Vec<(Option<usize>, Need)> = Vec::new();
    if !context.resolved.real_time.is_empty() {
        let asked = plan
            .boot
            .arguments
            .iter()
            .any(|argument| argument.starts_with("nohz_full="))
            || context.asks_for("nohz-full");
        needs.push((
            None,
            Need {
                option: "CONFIG_CPUSETS",
                severity: Severity::Error,
                what: "no CPU can be kept from other tasks",
                fix: "boot a kernel with cpusets, as distributions build them",
                impossible: false,
            },
        ));
        needs.push((None, Need {
            option: "CONFIG_NO_HZ_FULL",
            severity: if asked { Severity::Error } else { Severity::Warning },
            what: "the scheduler's tick stays on the real-time CPUs",
            fix: "boot a kernel with full dynamic ticks, on Debian linux-image-rt-amd64 or -arm64",
            impossible: false,
        }));
    }
    for (index, domain) in plan.domains.iter().enumerate() {
        if domain.kind.program() == DomainProgram::Guest {
            needs.push((
                Some(index),
                Need {
                    option: "CONFIG_KVM",
                    severity: Severity::Error,
                    what: "no guest can run but by emulation",
                    fix: "boot a kernel with KVM",
                    impossible: true,
                },
            ));
        }
        if domain
            .memory
            .as_ref()
            .is_some_and(|memory| memory.hugepage.is_some())
        {
            needs.push((
                Some(index),
                Need {
                    option: "CONFIG_HUGETLBFS",
                    severity: Severity::Error,
                    what: "there are no huge pages",
                    fix: "boot a kernel with hugetlbfs, or leave `hugepage` out",
                    impossible: true,
                },
            ));
        }
        if domain.cache.is_some() {
            let arm = context.machine.architecture == "aarch64";
            needs.push((
                Some(index),
                Need {
                    option: if arm {
                        "CONFIG_ARM64_MPAM"
                    } else {
                        "CONFIG_X86_CPU_RESCTRL"
                    },
                    severity: Severity::Error,
                    what: "no share of a cache can be set",
                    fix: "boot a kernel with resctrl, or leave `cache` out",
                    impossible: false,
                },
            ));
        }
    }
    needs
        .into_iter()
        .filter_map(|(index, need)| {
            let domain = index.and_then(|index| plan.domains.get(index));
            let say = |severity, what: String| match domain {
                Some(domain) => about(rule, domain, severity, what),
                None => machine(rule, severity, "kernel", what),
            };
            match options.get(need.option) {
                Some(true) => None,
                Some(false) => {
                    let mut finding = say(
                        need.severity,
                        format!("without {} {}", need.option, need.what),
                    )
                    .values(format!("{}=n", need.option), format!("{}=y", need.option))
                    .fix(need.fix);
                    finding.impossible = need.impossible;
                    Some(finding)
                }
                None => Some(
                    say(
                        Severity::Note,
                        format!(
                            "whether the kernel has {} is not known; without it {}",
                            need.option, need.what
                        ),
                    )
                    .values("not read", format!("{}=y", need.option))
                    .fix("make /proc/config.gz or /boot/config-RELEASE readable"),
                ),
            }
        })
        .collect()
}
