// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of guests: their virtual CPUs, their emulator and their kernel.

use rampart_model::{CpuSet, PlanFinding, Severity, VirtualCpuRequest, plural};

use super::context::DomainContext;
use super::{PLAN_RULE, PlanContext, REQUIRED, rule_of_knob};
use crate::Rule;

pub(super) const GUEST_KERNEL: Rule = rule_of_knob("guest-kernel");
pub(super) const GUEST_TWO_CPUS: Rule = rule_of_knob("guest-two-cpus");

pub(super) const VIRTUAL_CPU_PLACEMENT: Rule = Rule {
    id: "virtual-cpu-placement",
    severity: Severity::Error,
    title: "Each virtual CPU has a CPU of its own, and no emulator is on a real-time CPU",
    reason: "Virtual CPUs on one CPU wait for each other; an emulator on a real-time CPU starves or delays it.",
    source: "libvirt kbase kvm-realtime; SEAPATH ansible#438, #439",
    ..PLAN_RULE
};

pub(super) const SPARE_GUEST_CPU: Rule = Rule {
    id: "spare-guest-cpu",
    severity: Severity::Warning,
    title: "Each CPU of a guest has a virtual CPU",
    reason: "A CPU without a virtual CPU is isolated and stays idle.",
    source: "libvirt kbase kvm-realtime",
    ..PLAN_RULE
};

pub(super) const VIRTUAL_CPU_RANGE: Rule = Rule {
    id: "virtual-cpu-range",
    severity: Severity::Error,
    title: "Numbers of virtual CPUs are below their count",
    reason: "A guest counts its virtual CPUs from 0.",
    source: "libvirt formatdomain (its own example breaks it)",
    ..REQUIRED
};

pub(super) const DEDICATED_HINT: Rule = Rule {
    id: "dedicated-hint",
    severity: Severity::Warning,
    title: "A guest with cpu-pm or hint-dedicated has a CPU of its own for each virtual CPU",
    reason: "A guest with these options spins and idles on its CPUs; on shared CPUs both take time from the others.",
    source: "Linux Documentation/virt/kvm/api.rst (KVM_CAP_X86_DISABLE_EXITS), virt/kvm/x86/cpuid.rst",
    ..PLAN_RULE
};

/// Returns the guests of a plan with their requests.
fn guests<'a>(
    context: &PlanContext<'a>,
) -> impl Iterator<Item = (DomainContext<'a>, VirtualCpuRequest)> {
    context
        .domains()
        .filter_map(|domain| Some((domain, domain.planned.vcpus.as_ref()?.request())))
}

fn is_real_time(request: &VirtualCpuRequest) -> bool {
    request.policy.is_some_and(|policy| policy.0.is_real_time())
}

fn count(request: &VirtualCpuRequest) -> usize {
    usize::try_from(request.number().unwrap_or(0)).unwrap_or(usize::MAX)
}

pub(super) fn placement(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    for (domain, request) in guests(context) {
        let Some(cpus) = &request.cpus else { continue };
        let count = count(&request);
        let present = format!("{} on {}", plural(count, "virtual CPU"), cpus.named());
        if count > cpus.len() {
            findings.push(
                VIRTUAL_CPU_PLACEMENT
                    .of_domain(
                        domain.planned,
                        "more virtual CPUs than CPUs, so they wait for each other",
                    )
                    .values(present, plural(count, "CPU"))
                    .fix(format!("write count = {}", cpus.len()))
                    .impossible(),
            );
        } else if count < cpus.len() {
            findings.push(
                SPARE_GUEST_CPU
                    .of_domain(domain.planned, "some of its CPUs have no virtual CPU")
                    .values(present, "one virtual CPU for each CPU")
                    .fix(format!("write count = {}", cpus.len())),
            );
        }
    }
    let housekeeping = &context.resolved.housekeeping;
    for domain in context.domains() {
        let planned = domain.planned;
        for (field, cpus) in [
            ("emulator", &planned.emulator),
            ("service", &planned.service),
        ] {
            let busy = cpus
                .clone()
                .unwrap_or_default()
                .intersection(&context.resolved.real_time);
            if !busy.is_empty() {
                findings.push(
                    VIRTUAL_CPU_PLACEMENT
                        .of_domain(
                            planned,
                            "its service threads run on real-time CPUs, where they starve or cause latency",
                        )
                        .values(
                            format!("{field} on {}", busy.named()),
                            format!("CPUs of {housekeeping}"),
                        )
                        .fix(format!("write {field} = \"{housekeeping}\"")),
                );
            }
        }
    }
    findings
}

pub(super) fn two_cpus(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter(|(domain, request)| {
            is_real_time(request)
                && request.number().unwrap_or(0) < 2
                && domain.planned.emulator.is_none()
        })
        .map(|(domain, _)| {
            GUEST_TWO_CPUS
                .of_domain(
                    domain.planned,
                    "the only virtual CPU of a real-time guest also runs its housekeeping, and the emulator has no CPUs",
                )
                .values("1 virtual CPU, no `emulator`", "2 virtual CPUs, or `emulator`")
                .fix(format!(
                    "write emulator = \"{}\"",
                    context.resolved.housekeeping
                ))
        })
        .collect()
}

pub(super) fn range(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter_map(|(domain, request)| {
            let count = request.number()?;
            let beyond: CpuSet = request
                .real_time
                .as_ref()?
                .iter()
                .filter(|number| number.0 >= count)
                .collect();
            (!beyond.is_empty()).then(|| {
                VIRTUAL_CPU_RANGE
                    .of_domain(
                        domain.planned,
                        "`real-time` names virtual CPUs that the guest does not have",
                    )
                    .values(
                        format!("virtual {} of {count}", beyond.named()),
                        format!("numbers from 0 to {}", count.saturating_sub(1)),
                    )
                    .fix("count from 0")
                    .impossible()
            })
        })
        .collect()
}

pub(super) fn dedicated_hint(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter(|(domain, _)| domain.planned.cpu_pm || domain.planned.hint_dedicated)
        .filter_map(|(domain, request)| {
            let claim = domain.claim;
            let contested: CpuSet = claim
                .requested
                .iter()
                .filter(|cpu| {
                    let claimants = context.claims.claimants.get(cpu).map_or(0, Vec::len);
                    claimants > 1 || !claim.owned.contains(*cpu)
                })
                .collect();
            let count = count(&request);
            if contested.is_empty() && claim.owned.len() >= count {
                return None;
            }
            let option = if domain.planned.cpu_pm {
                "cpu-pm"
            } else {
                "hint-dedicated"
            };
            Some(
                DEDICATED_HINT
                    .of_domain(
                        domain.planned,
                        format!("{option} is set, and the guest shares its CPUs"),
                    )
                    .values(
                        format!(
                            "{}, its own CPUs: {}",
                            plural(count, "virtual CPU"),
                            claim.owned.named()
                        ),
                        "a CPU of its own for each virtual CPU",
                    )
                    .fix(format!("remove {option}")),
            )
        })
        .collect()
}

pub(super) fn kernel(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let needed = "a kernel with PREEMPT_RT";
    guests(context)
        .filter(|(_, request)| is_real_time(request))
        .filter_map(|(domain, _)| {
            let planned = domain.planned;
            let Some(path) = &planned.kernel else {
                return Some(
                    GUEST_KERNEL
                        .not_decided_for(
                            planned,
                            "it is not known whether the kernel on the guest's disk has PREEMPT_RT",
                            needed,
                            "run `uname -v` in the guest: it must contain PREEMPT_RT",
                        )
                        .values("the kernel of its disk", needed),
                );
            };
            match context.environment.guest_kernels.get(path) {
                Some(true) => None,
                Some(false) => Some(
                    GUEST_KERNEL
                        .of_domain(
                            planned,
                            "the guest's kernel has no PREEMPT_RT, so latency in the guest is not bounded",
                        )
                        .values(path.clone(), needed)
                        .fix("name the image of a kernel with PREEMPT_RT"),
                ),
                None => Some(
                    GUEST_KERNEL
                        .not_decided_for(
                            planned,
                            "it is not known whether the guest's kernel has PREEMPT_RT: the file cannot be read, or has no version text",
                            needed,
                            "name the image of a kernel with PREEMPT_RT that can be read here",
                        )
                        .values(path.clone(), needed),
                ),
            }
        })
        .collect()
}
