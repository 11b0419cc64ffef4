// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests: where their virtual CPUs and their emulators run, and what they are told.

use rampart_model::{CpuSet, PlanFinding, Severity, VirtualCpuRequest, plural};

use super::{Context, Each, Say, about};

/// The guests of a plan with what they ask.
fn guests<'a>(context: &Context<'a>) -> impl Iterator<Item = (Each<'a>, VirtualCpuRequest)> {
    context
        .domains()
        .filter_map(|each| Some((each, each.planned.vcpus.as_ref()?.request())))
}

fn is_real_time(request: &VirtualCpuRequest) -> bool {
    request.policy.is_some_and(|policy| policy.0.is_real_time())
}

pub(super) fn placement(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "virtual-cpu-placement";
    let mut findings = Vec::new();
    for (each, request) in guests(context) {
        let domain = each.planned;
        let count = usize::try_from(request.number().unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(cpus) = &request.cpus {
            if count > cpus.len() {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Error,
                        "it has more virtual CPUs than CPUs, so that they wait for each other",
                    )
                    .values(
                        format!("{} on {}", plural(count, "virtual CPU"), cpus.named()),
                        plural(count, "CPU"),
                    )
                    .fix(format!("write count = {}, or name more CPUs", cpus.len()))
                    .impossible(),
                );
            } else if count < cpus.len() {
                findings.push(
                    about(
                        rule,
                        domain,
                        Severity::Warning,
                        "it owns CPUs that no virtual CPU is bound to",
                    )
                    .values(
                        format!("{} on {}", plural(count, "virtual CPU"), cpus.named()),
                        "one virtual CPU a CPU",
                    )
                    .fix(format!("write count = {}, or name fewer CPUs", cpus.len())),
                );
            }
        }
    }
    for each in context.domains() {
        let domain = each.planned;
        for (field, cpus) in [("emulator", &domain.emulator), ("service", &domain.service)] {
            let busy = cpus
                .clone()
                .unwrap_or_default()
                .intersection(&context.resolved.real_time);
            if !busy.is_empty() {
                findings.push(
                    about(rule, domain, Severity::Error, "what serves it runs on real-time CPUs, where it waits for ever or disturbs")
                        .values(format!("{field} on {}", busy.named()), format!("CPUs of {}", context.resolved.housekeeping))
                        .fix(format!("write {field} = \"{}\"", context.resolved.housekeeping)),
                );
            }
        }
    }
    findings
}

pub(super) fn housekeeping(context: &Context<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter(|(each, request)| {
            is_real_time(request)
                && request.number().unwrap_or(0) < 2
                && each.planned.emulator.is_none()
        })
        .map(|(each, _)| {
            about(
                "guest-housekeeping",
                each.planned,
                Severity::Error,
                "the only virtual CPU of a real-time guest does the guest's housekeeping too, and no place is named for its emulator",
            )
            .values("1 virtual CPU, no `emulator`", "2 virtual CPUs, or `emulator`")
            .fix(format!(
                "write vcpus = {{ count = 2, real-time = \"1\", … }}, or emulator = \"{}\"",
                context.resolved.housekeeping
            ))
        })
        .collect()
}

pub(super) fn range(context: &Context<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter_map(|(each, request)| {
            let count = request.number()?;
            let beyond: CpuSet = request
                .real_time
                .as_ref()?
                .iter()
                .filter(|number| number.0 >= count)
                .collect();
            (!beyond.is_empty()).then(|| {
                about(
                    "virtual-cpu-range",
                    each.planned,
                    Severity::Error,
                    "it speaks of virtual CPUs that it does not have",
                )
                .values(
                    format!("real-time names virtual {} of {count}", beyond.named()),
                    format!("numbers from 0 to {}", count.saturating_sub(1)),
                )
                .fix("count from 0, as the guest does, or raise `count`")
                .impossible()
            })
        })
        .collect()
}

pub(super) fn dedicated_hint(context: &Context<'_>) -> Vec<PlanFinding> {
    guests(context)
        .filter(|(each, _)| each.planned.cpu_pm || each.planned.hint_dedicated)
        .filter_map(|(each, request)| {
            let contested: CpuSet = each
                .claim
                .asked
                .iter()
                .filter(|cpu| {
                    let claimants = context.claims.claimants.get(cpu).map_or(0, Vec::len);
                    claimants > 1 || !each.claim.got.contains(*cpu)
                })
                .collect();
            let count = usize::try_from(request.number().unwrap_or(0)).unwrap_or(usize::MAX);
            if contested.is_empty() && each.claim.got.len() >= count {
                return None;
            }
            let option = if each.planned.cpu_pm { "cpu-pm" } else { "hint-dedicated" };
            Some(
                about(
                    "dedicated-hint",
                    each.planned,
                    Severity::Warning,
                    "it keeps its CPUs when idle, or is told that they are its own, and they are not",
                )
                .values(
                    format!("{option}, {}, of its own: {}", plural(count, "virtual CPU"), each.claim.got.named()),
                    "a CPU of its own for each virtual CPU",
                )
                .fix(format!("remove {option}, or give it CPUs that nobody else has")),
            )
        })
        .collect()
}

pub(super) fn kernel(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "guest-kernel";
    guests(context)
        .filter(|(_, request)| is_real_time(request))
        .filter_map(|(each, _)| {
            let domain = each.planned;
            let known = domain
                .kernel
                .as_ref()
                .and_then(|path| context.environment.guest_kernels.get(path));
            match (known, &domain.kernel) {
                (Some(true), _) => None,
                (Some(false), kernel) => Some(
                    about(rule, domain, Severity::Warning, "its kernel is not built for real time, so nothing in it is bounded")
                        .values(kernel.clone().unwrap_or_default(), "a kernel with PREEMPT_RT")
                        .fix("name a kernel from linux-image-rt-amd64 or linux-image-rt-arm64"),
                ),
                (None, Some(kernel)) => Some(
                    about(rule, domain, Severity::Note, "whether its kernel is built for real time is not known: the file cannot be read, or does not say")
                        .values(kernel.clone(), "a kernel with PREEMPT_RT")
                        .fix("name a kernel image that can be read here, for example from linux-image-rt-amd64 or linux-image-rt-arm64"),
                ),
                (None, None) => Some(
                    about(rule, domain, Severity::Note, "whether its kernel is built for real time is not known: it comes from its disk")
                        .values("the kernel of its disk", "a kernel with PREEMPT_RT")
                        .fix("look at `uname -v` inside, it has to say PREEMPT_RT"),
                ),
            }
        })
        .collect()
}
