// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of the kernel command line and of the kernel's build options.

use rampart_model::{
    BOOT_CPU, CpuRole, CpuSet, DomainProgram, PlanFinding, PlannedDomain, Reboot, Severity,
};

use super::{PLAN_RULE, PlanContext, rule_of_knob};
use crate::{KernelCommandLine, Rule, add_parameters};

pub(super) const BOOT_LISTS: Rule = rule_of_knob("boot-lists-agree");
pub(super) const MANAGED_INTERRUPTS: Rule = rule_of_knob("managed-interrupts");
pub(super) const NO_HZ_FULL: Rule = rule_of_knob("config-no-hz-full");

pub(super) const RESTART_NEEDED: Rule = Rule {
    id: "restart-needed",
    severity: Severity::Warning,
    title: "With reboot = \"plan\" the kernel command line names the real-time CPUs after the next restart",
    reason: "The plan orders the restart that fixes it.",
    source: "Linux kernel/sched/isolation.c",
    ..PLAN_RULE
};

pub(super) const BOOT_ISOLATION: Rule = Rule {
    id: "boot-isolation",
    severity: Severity::Note,
    title: "The kernel command line has isolcpus= or nohz_full=",
    reason: "Without them the kernel keeps its tick and its RCU callbacks on the real-time CPUs.",
    source: "Linux Documentation/timers/no_hz.rst",
    ..PLAN_RULE
};

pub(super) const KERNEL_OPTION: Rule = Rule {
    id: "kernel-option",
    severity: Severity::Error,
    title: "The kernel is built with the options that the plan requires",
    reason: "This plan requests what only the option provides, so it cannot be applied. Without a plan a missing option is a warning (config-cpusets, config-no-hz-full, config-resctrl): the machine may be isolated in another way.",
    source: "Linux Documentation/timers/no_hz.rst, admin-guide/cgroup-v2.rst, filesystems/resctrl.rst",
    ..PLAN_RULE
};

const COMMAND_LINE: &str = "/proc/cmdline";

/// Returns the CPUs that each parameter names. `isolcpus=` and `nohz_full=` cannot name every CPU:
/// the kernel then removes the boot CPU (kernel/sched/isolation.c).
fn lists(
    context: &PlanContext<'_>,
    line: &KernelCommandLine,
) -> [(&'static str, Option<CpuSet>); 3] {
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

pub(super) fn command_line(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let wanted = &context.resolved.real_time;
    if wanted.is_empty() {
        return Vec::new();
    }
    let line = KernelCommandLine::parse(&context.machine.command_line);
    // Idle siblings may be isolated too.
    let most = wanted.union(&context.resolved.with_role(CpuRole::IdleSibling));
    let fits = |list: &CpuSet| wanted.is_subset(list) && list.is_subset(&most);
    let arguments = format!(
        "isolcpus=managed_irq,domain,{wanted} nohz_full={wanted} rcu_nocbs={wanted} irqaffinity={}",
        context.resolved.housekeeping
    );
    let (rule, fix) = if context.plan.boot.reboot == Reboot::Plan {
        (RESTART_NEEDED, format!("restart with {arguments}"))
    } else {
        (
            BOOT_LISTS,
            format!(
                "write reboot = \"plan\" in [boot] of the plan\n{}",
                add_parameters(context.machine, &arguments).unwrap_or(arguments)
            ),
        )
    };
    let present = |name: &str| match line.value(name) {
        Some(value) => format!("{name}={value}"),
        None => format!("no {name}="),
    };
    let lists = lists(context, &line);
    let mut findings: Vec<PlanFinding> = lists
        .iter()
        .filter(|(name, list)| line.value(name).is_some() && !list.as_ref().is_some_and(fits))
        .map(|(name, list)| {
            let what = match list {
                Some(_) => format!(
                    "{name}= names other CPUs than the real-time ones, and the kernel reports no error"
                ),
                None => format!("the CPU list of {name}= is invalid, and the kernel ignores it"),
            };
            rule.of_machine(COMMAND_LINE, what)
                .values(present(name), wanted.named().to_string())
                .fix(fix.clone())
        })
        .collect();
    let last = context.machine.topology.possible.iter().next_back();
    let isolated = line.isolcpus(last.unwrap_or(BOOT_CPU));
    if isolated
        .as_ref()
        .is_some_and(|isolated| isolated.without_managed_interrupts.is_none())
    {
        findings.push(
            MANAGED_INTERRUPTS
                .of_machine(
                    COMMAND_LINE,
                    "managed interrupts, which drivers spread over all CPUs, reach the real-time CPUs",
                )
                .values(
                    "isolcpus= without managed_irq",
                    "isolcpus=managed_irq,domain,…",
                )
                .fix(fix.clone()),
        );
    }
    let balanced = isolated.is_none_or(|isolated| isolated.unbalanced.is_none());
    if balanced && line.value("nohz_full").is_none() {
        findings.push(
            BOOT_ISOLATION
                .of_machine(
                    COMMAND_LINE,
                    "no CPU is isolated at boot, so the tick and RCU callbacks stay on the real-time CPUs",
                )
                .values(
                    format!("{}, {}", present("isolcpus"), present("nohz_full")),
                    format!("both, with {}", wanted.named()),
                )
                .fix(fix),
        );
    }
    findings
}

/// A kernel option that a plan needs.
struct Need<'a> {
    /// The domain that needs it; `None` for the whole plan.
    domain: Option<&'a PlannedDomain>,
    rule: Rule,
    option: &'static str,
    effect: &'static str,
    fix: &'static str,
    impossible: bool,
}

/// Returns the options that the isolation of real-time CPUs needs.
fn needs_of_machine<'a>(context: &PlanContext<'a>) -> Vec<Need<'a>> {
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let tickless = context
        .plan
        .boot
        .arguments
        .iter()
        .any(|argument| argument.starts_with("nohz_full="))
        || context.requests("nohz-full");
    vec![
        Need {
            domain: None,
            rule: KERNEL_OPTION,
            option: "CONFIG_CPUSETS",
            effect: "no CPU can be isolated from other tasks",
            fix: "boot a kernel with cpusets, as distributions build them",
            impossible: false,
        },
        Need {
            domain: None,
            rule: if tickless { KERNEL_OPTION } else { NO_HZ_FULL },
            option: "CONFIG_NO_HZ_FULL",
            effect: "the scheduler's tick stays on the real-time CPUs",
            fix: "boot a kernel with CONFIG_NO_HZ_FULL=y",
            impossible: false,
        },
    ]
}

fn needs_of_domain<'a>(context: &PlanContext<'a>, domain: &'a PlannedDomain) -> Vec<Need<'a>> {
    let need = |option, effect, fix, impossible| Need {
        domain: Some(domain),
        rule: KERNEL_OPTION,
        option,
        effect,
        fix,
        impossible,
    };
    let mut needs = Vec::new();
    if domain.kind.program() == DomainProgram::Guest {
        let effect = "guests run in emulation only";
        needs.push(need("CONFIG_KVM", effect, "boot a kernel with KVM", true));
    }
    let memory = domain.memory.as_ref();
    if memory.is_some_and(|memory| memory.hugepage.is_some()) {
        let fix = "boot a kernel with support for hugetlbfs";
        needs.push(need(
            "CONFIG_HUGETLBFS",
            "there are no huge pages",
            fix,
            true,
        ));
    }
    if domain.cache.is_some() {
        let option = if context.machine.architecture == "aarch64" {
            "CONFIG_ARM64_MPAM"
        } else {
            "CONFIG_X86_CPU_RESCTRL"
        };
        let effect = "no share of a cache can be set";
        let fix = "boot a kernel with support for resctrl";
        needs.push(need(option, effect, fix, false));
    }
    needs
}

pub(super) fn kernel_options(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let options = &context.environment.kernel_options;
    let of_domains = context
        .plan
        .domains
        .iter()
        .flat_map(|domain| needs_of_domain(context, domain));
    needs_of_machine(context)
        .into_iter()
        .chain(of_domains)
        .filter_map(|need| {
            let option = need.option;
            let needed = format!("{option}=y");
            match options.get(option) {
                Some(true) => None,
                Some(false) => {
                    let what = format!("without {option} {}", need.effect);
                    let finding = match need.domain {
                        Some(domain) => need.rule.of_domain(domain, what),
                        None => need.rule.of_machine("kernel", what),
                    };
                    let finding = finding.values(format!("{option}=n"), needed).fix(need.fix);
                    Some(if need.impossible {
                        finding.impossible()
                    } else {
                        finding
                    })
                }
                None => {
                    let what = format!(
                        "it is not known whether the kernel has {option}; without it {}",
                        need.effect
                    );
                    let fix = "make /proc/config.gz or /boot/config-RELEASE readable";
                    Some(match need.domain {
                        Some(domain) => need.rule.not_decided_for(domain, what, needed, fix),
                        None => need.rule.not_decided("kernel", what, needed, fix),
                    })
                }
            }
        })
        .collect()
}
