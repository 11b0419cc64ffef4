// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of ownership: the machine is the planned one, its CPUs exist, and each CPU has one owner.

use std::collections::BTreeMap;

use rampart_model::{BOOT_CPU, CpuRole, CpuSet, PlanFinding, PlannedDomain, Severity};

use super::{PLAN_RULE, PlanContext, REQUIRED};
use crate::Rule;

pub(super) const SAME_MACHINE: Rule = Rule {
    id: "same-machine",
    severity: Severity::Error,
    title: "The machine has the topology of the plan's fingerprint",
    reason: "CPU numbers change when threads of cores are switched on or off in the firmware, so the plan may name the wrong CPUs.",
    source: "openshift-docs#28436",
    ..REQUIRED
};

pub(super) const SELECTOR: Rule = Rule {
    id: "selector",
    severity: Severity::Error,
    title: "CPUs with the requested properties are available",
    reason: "A domain without CPUs cannot run.",
    source: "Rampart",
    ..REQUIRED
};

pub(super) const CPU_EXISTS: Rule = Rule {
    id: "cpu-exists",
    severity: Severity::Error,
    title: "Every CPU that the plan names exists and is online",
    reason: "Nothing can run on an absent or offline CPU.",
    source: "tuned (assert2); ACRN cpu_assignment.xsd",
    ..REQUIRED
};

pub(super) const HOUSEKEEPING: Rule = Rule {
    id: "housekeeping",
    severity: Severity::Error,
    title: "At least one CPU is housekeeping, the boot CPU is, and no housekeeping CPU belongs to a domain",
    reason: "The kernel keeps its timekeeping and its unbound work on housekeeping CPUs.",
    source: "OpenShift performance profile; Linux Documentation/timers/no_hz.rst",
    ..PLAN_RULE
};

pub(super) const UNASSIGNED_CPU: Rule = Rule {
    id: "unassigned-cpu",
    severity: Severity::Warning,
    title: "Every CPU is housekeeping or belongs to a domain",
    reason: "Ordinary work runs on an unassigned CPU, and no rule judges it there.",
    source: "OpenShift performance profile",
    ..PLAN_RULE
};

pub(super) const ONE_OWNER: Rule = Rule {
    id: "one-owner",
    severity: Severity::Error,
    title: "Each real-time CPU belongs to one domain",
    reason: "Two real-time workloads on one CPU delay each other.",
    source: "ACRN cpu_assignment.xsd",
    ..PLAN_RULE
};

const HOUSEKEEPING_LOCATION: &str = "[machine] housekeeping";

pub(super) fn same_machine(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let Some(recorded) = &context.plan.machine.fingerprint else {
        return Vec::new();
    };
    if context.topology_changes.is_empty() {
        return Vec::new();
    }
    let what = format!(
        "the plan was written for another topology: {}",
        context.topology_changes.join("; ")
    );
    let present = &context.resolved.fingerprint;
    let hash = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    vec![
        SAME_MACHINE
            .of_machine("[machine] fingerprint", what)
            .values(hash(present), hash(recorded))
            .fix(format!(
                "check every CPU of the plan, then write fingerprint = \"{present}\""
            ))
            .impossible(),
    ]
}

pub(super) fn selector(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    context
        .domains()
        .filter_map(|domain| {
            let (wanted, present) = domain.claim.unmet.as_ref()?;
            let what = "no free CPUs have the requested properties";
            Some(
                SELECTOR
                    .of_domain(domain.planned, what)
                    .values(present, wanted)
                    .fix(
                        "give the housekeeping or another domain fewer CPUs, or request fewer here",
                    )
                    .impossible(),
            )
        })
        .collect()
}

/// Every field of a plan that names CPUs of the machine, with its domain.
fn named(context: &PlanContext<'_>) -> Vec<(Option<PlannedDomain>, &'static str, CpuSet)> {
    let plan = context.plan;
    let mut named = Vec::new();
    if let Some(cpus) = &plan.machine.housekeeping {
        named.push((None, "housekeeping", cpus.clone()));
    }
    for domain in &plan.domains {
        let field = if domain.vcpus.is_some() {
            "vcpus"
        } else {
            "cpus"
        };
        let threads = domain.threads.iter().filter_map(|rule| rule.cpus.as_ref());
        let sets = domain
            .listed_cpus()
            .into_iter()
            .map(|cpus| (field, cpus))
            .chain(
                domain
                    .emulator
                    .iter()
                    .map(|cpus| ("emulator", cpus.clone())),
            )
            .chain(domain.service.iter().map(|cpus| ("service", cpus.clone())))
            .chain(threads.map(|cpus| ("threads", cpus.clone())));
        named.extend(sets.map(|(field, cpus)| (Some(domain.clone()), field, cpus)));
    }
    named
}

pub(super) fn cpu_exists(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    named(context)
        .into_iter()
        .flat_map(|(domain, field, cpus)| {
            let absent = cpus
                .difference(&topology.possible)
                .difference(&topology.online);
            let offline = cpus.difference(&topology.online).difference(&absent);
            let finding = move |what: &str| match &domain {
                Some(domain) => CPU_EXISTS.of_domain(domain, what),
                None => CPU_EXISTS.of_machine(HOUSEKEEPING_LOCATION, what),
            };
            let absent = (!absent.is_empty()).then(|| {
                finding("the plan names CPUs that this machine does not have")
                    .values(
                        format!("{field} names {}", absent.named()),
                        format!("CPUs of {}", topology.online),
                    )
                    .fix(format!(
                        "name CPUs of {}, or request them by property",
                        topology.online
                    ))
                    .impossible()
            });
            let offline = (!offline.is_empty()).then(|| {
                let commands: Vec<String> = offline
                    .iter()
                    .map(|cpu| format!("echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"))
                    .collect();
                finding("the plan names CPUs that are offline")
                    .values(
                        format!("{field} names {}, offline", offline.named()),
                        "online CPUs",
                    )
                    .fix(commands.join("; "))
                    .impossible()
            });
            absent
                .into_iter()
                .chain(offline)
                .collect::<Vec<PlanFinding>>()
        })
        .collect()
}

pub(super) fn housekeeping(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let resolved = context.resolved;
    let online = &context.machine.topology.online;
    let mut findings = Vec::new();
    if resolved.housekeeping.is_empty() {
        findings.push(
            HOUSEKEEPING
                .of_machine(
                    HOUSEKEEPING_LOCATION,
                    "no CPU remains for ordinary work",
                )
                .values("no CPU", "at least one")
                .fix(format!(
                    "remove CPU {BOOT_CPU} from every domain, and write housekeeping = \"{BOOT_CPU}\""
                ))
                .impossible(),
        );
    } else if online.contains(BOOT_CPU) && !resolved.housekeeping.contains(BOOT_CPU) {
        findings.push(
            HOUSEKEEPING
                .of_machine(
                    HOUSEKEEPING_LOCATION,
                    "the boot CPU is not housekeeping, and the kernel keeps its tick and its timekeeping there",
                )
                .values(
                    resolved.housekeeping.named().to_string(),
                    format!("a list with CPU {BOOT_CPU}"),
                )
                .fix(format!(
                    "add CPU {BOOT_CPU} to housekeeping, and give the domain another CPU"
                )),
        );
    }
    let named = context.claims.housekeeping.clone().unwrap_or_default();
    for domain in context.domains() {
        let (planned, requested) = (domain.planned, &domain.claim.requested);
        let both = named.intersection(requested);
        if !both.is_empty() {
            findings.push(
                HOUSEKEEPING
                    .of_domain(planned, "CPUs of the domain are housekeeping too")
                    .values(format!("{} in both", both.named()), "CPUs of its own")
                    .fix(format!(
                        "write housekeeping = \"{}\"",
                        named.difference(requested)
                    )),
            );
        }
        if planned.kind.is_housekeeping() {
            let outside = planned
                .listed_cpus()
                .unwrap_or_default()
                .difference(&resolved.housekeeping);
            if !outside.is_empty() {
                findings.push(
                    HOUSEKEEPING
                        .of_domain(
                            planned,
                            "a host domain runs on housekeeping CPUs, and these are not",
                        )
                        .values(
                            outside.named().to_string(),
                            format!("CPUs of {}", resolved.housekeeping),
                        )
                        .fix("name housekeeping CPUs"),
                );
            }
        }
    }
    let unassigned = resolved.with_role(CpuRole::Unassigned);
    if !unassigned.is_empty() {
        findings.push(
            UNASSIGNED_CPU
                .of_machine(
                    HOUSEKEEPING_LOCATION,
                    "some CPUs are neither housekeeping nor owned, and ordinary work runs there",
                )
                .values(
                    format!("{} without an owner", unassigned.named()),
                    "an owner for each CPU",
                )
                .fix(format!(
                    "write housekeeping = \"{}\"",
                    named.union(&unassigned)
                )),
        );
    }
    findings
}

pub(super) fn one_owner(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    for (index, domain) in context.domains().enumerate() {
        let planned = domain.planned;
        // The first claimant owns a CPU. Each later one gets one finding for each owner, with all
        // CPUs that it shares with that owner.
        let mut shared: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for cpu in domain.claim.requested.iter() {
            let claimants = context.claims.claimants.get(&cpu);
            if let Some(first) = claimants.and_then(|all| all.first())
                && *first != index
            {
                shared.entry(*first).or_default().insert(cpu);
            }
        }
        for (first, cpus) in shared {
            let owner = context
                .plan
                .domains
                .get(first)
                .map_or("another domain", |owner| owner.name.as_str());
            findings.push(
                ONE_OWNER
                    .of_domain(planned, "a real-time CPU has two owners")
                    .values(
                        format!("{} of `{owner}` too", cpus.named()),
                        "CPUs of its own",
                    )
                    .fix(format!("give `{}` other CPUs than {cpus}", planned.name)),
            );
        }
        let outside: CpuSet = planned
            .threads
            .iter()
            .filter_map(|rule| rule.cpus.as_ref())
            .fold(CpuSet::new(), |all, cpus| all.union(cpus))
            .difference(&domain.resolved.cpus);
        if !outside.is_empty() && domain.claim.unmet.is_none() {
            findings.push(
                ONE_OWNER
                    .of_domain(planned, "`threads` names CPUs that the domain does not own")
                    .values(
                        outside.named().to_string(),
                        format!("CPUs of {}", domain.resolved.cpus),
                    )
                    .fix("name CPUs of the domain in `threads`"),
            );
        }
    }
    findings
}
