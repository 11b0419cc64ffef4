// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was decided before the machine was up: the boot line, and what the kernel is built with.

use rampart_model::{CpuSet, DomainKind, PlanFinding, Reboot, Severity};

use super::{Context, Say, about, machine};
use rampart_model::CpuRole;

/// The lists that a boot line gives; none where it has no such argument.
#[derive(Debug, Default, PartialEq, Eq)]
struct BootLine {
    isolated: Option<CpuSet>,
    managed: bool,
    tickless: Option<CpuSet>,
    offloaded: Option<CpuSet>,
}

impl BootLine {
    fn parse(line: &str) -> Self {
        let mut lists = Self::default();
        for (name, value) in line
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
        {
            match name {
                "isolcpus" => {
                    // Flags first, each a word; then the list (kernel-parameters.txt).
                    let flag = |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic());
                    let flags: Vec<&str> = value.split(',').take_while(flag).collect();
                    let list: Vec<&str> = value.split(',').skip(flags.len()).collect();
                    lists.managed = flags.contains(&"managed_irq");
                    // Without flags it means `domain`.
                    if flags.is_empty() || flags.contains(&"domain") {
                        lists.isolated = list.join(",").parse().ok();
                    }
                }
                "nohz_full" => lists.tickless = value.parse().ok(),
                "rcu_nocbs" => lists.offloaded = value.parse().ok(),
                _ => {}
            }
        }
        lists
    }
}

pub(super) fn line(context: &Context<'_>) -> Vec<PlanFinding> {
    let wanted = &context.resolved.real_time;
    if wanted.is_empty() {
        return Vec::new();
    }
    let rule = "boot-line";
    let place = "/proc/cmdline";
    let lists = BootLine::parse(&context.machine.command_line);
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
        Severity::Problem
    };
    let mend = if planned {
        format!("restart with {arguments}")
    } else {
        format!("boot with {arguments}, or write reboot = \"plan\" in [boot]")
    };
    let mut findings: Vec<PlanFinding> = [
        ("isolcpus", &lists.isolated),
        ("nohz_full", &lists.tickless),
        ("rcu_nocbs", &lists.offloaded),
    ]
    .into_iter()
    .filter_map(|(name, list)| {
        let list = list.as_ref().filter(|list| !fits(list))?;
        Some(
            machine(rule, severity, place, format!("{name}= names other CPUs than the real-time ones, and the kernel says nothing of it"))
                .values(format!("{name}={list}"), format!("CPUs {wanted}"))
                .mend(mend.clone()),
        )
    })
    .collect();
    if lists.isolated.is_some() && !lists.managed {
        findings.push(
            machine(
                rule,
                Severity::Warning,
                place,
                "interrupts that drivers spread over all CPUs come to the real-time ones too",
            )
            .values(
                "isolcpus= without managed_irq",
                "isolcpus=managed_irq,domain,…",
            )
            .mend(mend.clone()),
        );
    }
    if lists.isolated.is_none() && lists.tickless.is_none() {
        findings.push(
            machine(rule, Severity::Note, place, "the boot line sets no CPU aside, so ticks, callbacks and managed interrupts stay on the real-time CPUs")
                .values("no isolcpus=, no nohz_full=", format!("both, with CPUs {wanted}"))
                .mend(mend),
        );
    }
    findings
}

/// An option, whom it serves, and how much its lack matters.
struct Need {
    option: &'static str,
    severity: Severity,
    what: &'static str,
    mend: &'static str,
    impossible: bool,
}

pub(super) fn kernel_options(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "kernel-option";
    let options = &context.surroundings.kernel_options;
    let plan = context.plan;
    let mut needs: Vec<(Option<usize>, Need)> = Vec::new();
    if !context.resolved.real_time.is_empty() {
        let asked = plan
            .boot
            .arguments
            .iter()
            .any(|argument| argument.starts_with("nohz_full="))
            || context.applies("nohz-full");
        needs.push((
            None,
            Need {
                option: "CONFIG_CPUSETS",
                severity: Severity::Problem,
                what: "no CPU can be kept from other tasks",
                mend: "boot a kernel with cpusets, as distributions build them",
                impossible: false,
            },
        ));
        needs.push((None, Need {
            option: "CONFIG_NO_HZ_FULL",
            severity: if asked { Severity::Problem } else { Severity::Warning },
            what: "the scheduler's tick stays on the real-time CPUs",
            mend: "boot a kernel with full dynamic ticks, on Debian linux-image-rt-amd64 or -arm64",
            impossible: false,
        }));
    }
    for (index, domain) in plan.domains.iter().enumerate() {
        if domain.kind == DomainKind::Vm {
            needs.push((
                Some(index),
                Need {
                    option: "CONFIG_KVM",
                    severity: Severity::Problem,
                    what: "no guest can run but by emulation",
                    mend: "boot a kernel with KVM",
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
                    severity: Severity::Problem,
                    what: "there are no huge pages",
                    mend: "boot a kernel with hugetlbfs, or leave `hugepage` out",
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
                    severity: Severity::Problem,
                    what: "no share of a cache can be set",
                    mend: "boot a kernel with resctrl, or leave `cache` out",
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
                    .mend(need.mend);
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
                    .mend("make /proc/config.gz or /boot/config-RELEASE readable"),
                ),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_isolcpus_are_no_cpus() {
        let cpus = |text: &str| text.parse().ok();
        for (line, isolated, managed) in [
            ("isolcpus=2-3", cpus("2-3"), false),
            (
                "ro isolcpus=managed_irq,domain,2-3,6 quiet",
                cpus("2-3,6"),
                true,
            ),
            ("isolcpus=managed_irq,2", None, true),
            ("isolcpus=domain,1", cpus("1"), false),
            ("isolcpus=", Some(CpuSet::new()), false),
            ("quiet", None, false),
        ] {
            let lists = BootLine::parse(line);
            assert_eq!(
                (lists.isolated, lists.managed),
                (isolated, managed),
                "{line}"
            );
        }
    }
}
