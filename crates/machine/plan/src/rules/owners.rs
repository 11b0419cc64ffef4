// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine is the right one, its CPUs are there, and each belongs to one domain.

use std::collections::BTreeMap;

use rampart_model::{CpuRole, CpuSet, DomainProgram, PlanFinding, PlannedDomain, Severity};

use super::{Context, Say, about, machine};
use crate::claims::listed;
use crate::fingerprint::{difference, fingerprint};
use crate::view::BOOT_CPU;

pub(super) fn same_machine(context: &Context<'_>) -> Vec<PlanFinding> {
    let Some(recorded) = &context.plan.machine.fingerprint else {
        return Vec::new();
    };
    let differences = difference(recorded, context.machine);
    if differences.is_empty() {
        return Vec::new();
    }
    let what = format!(
        "the plan was made for another topology: {}",
        differences.join("; ")
    );
    let present = fingerprint(context.machine);
    let head = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    vec![
        machine(
            "same-machine",
            Severity::Error,
            "[machine] fingerprint",
            what,
        )
        .values(head(&present), head(recorded))
        .fix(format!(
            "look through every CPU of the plan, then write fingerprint = \"{present}\""
        ))
        .impossible(),
    ]
}

pub(super) fn kind_not_built(context: &Context<'_>) -> Vec<PlanFinding> {
    context
        .plan
        .domains
        .iter()
        .filter(|domain| !domain.kind.properties().implemented)
        .map(|domain| {
            about(
                "kind-not-built",
                domain,
                Severity::Error,
                "Rampart cannot host this kind yet",
            )
            .values(domain.kind.word(), "host, task, container, vm or cell")
            .fix("write kind = \"task\" for a process, kind = \"vm\" for a guest")
            .impossible()
        })
        .collect()
}

pub(super) fn selector(context: &Context<'_>) -> Vec<PlanFinding> {
    context
        .domains()
        .filter_map(|each| {
            let (wanted, present) = each.claim.unmet.as_ref()?;
            let finding = about(
                "selector",
                each.planned,
                Severity::Error,
                "no CPUs that are still free have the properties that it asks for",
            );
            Some(
                finding
                    .values(present, wanted)
                    .fix("ask for less, list the CPUs, or give the housekeeping CPUs fewer")
                    .impossible(),
            )
        })
        .collect()
}

/// Every place where a plan names CPUs of the machine: of which domain, in which field.
fn named(context: &Context<'_>) -> Vec<(Option<PlannedDomain>, &'static str, CpuSet)> {
    let plan = context.plan;
    let mut named = Vec::new();
    if let Some(cpus) = &plan.machine.housekeeping {
        named.push((None, "housekeeping", cpus.clone()));
    }
    for domain in &plan.domains {
        let field = if domain.kind.program() == DomainProgram::Guest {
            "vcpus"
        } else {
            "cpus"
        };
        let threads = domain.threads.iter().filter_map(|rule| rule.cpus.as_ref());
        let sets = listed(domain)
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

pub(super) fn cpu_exists(context: &Context<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    named(context)
        .into_iter()
        .flat_map(|(domain, field, cpus)| {
            let absent = cpus
                .difference(&topology.possible)
                .difference(&topology.online);
            let offline = cpus.difference(&topology.online).difference(&absent);
            let say = move |what: &str| match &domain {
                Some(domain) => about("cpu-exists", domain, Severity::Error, what),
                None => machine(
                    "cpu-exists",
                    Severity::Error,
                    "[machine] housekeeping",
                    what,
                ),
            };
            let absent = (!absent.is_empty()).then(|| {
                say("it names CPUs that this machine does not have")
                    .values(
                        format!("{field} names {}", absent.named()),
                        format!("CPUs of {}", topology.online),
                    )
                    .fix(format!(
                        "name CPUs of {}, or ask for them by property",
                        topology.online
                    ))
                    .impossible()
            });
            let offline = (!offline.is_empty()).then(|| {
                let commands: Vec<String> = offline
                    .iter()
                    .map(|cpu| format!("echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"))
                    .collect();
                say("it names CPUs that are offline")
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

pub(super) fn housekeeping(context: &Context<'_>) -> Vec<PlanFinding> {
    let resolved = context.resolved;
    let online = &context.machine.topology.online;
    let rule = "housekeeping";
    let location = "[machine] housekeeping";
    let mut findings = Vec::new();
    if resolved.housekeeping.is_empty() {
        findings.push(
            machine(
                rule,
                Severity::Error,
                location,
                "no CPU is left for ordinary work",
            )
            .values("no CPU", "at least one")
            .fix(format!(
                "keep CPU {BOOT_CPU} out of every domain, and write housekeeping = \"{BOOT_CPU}\""
            ))
            .impossible(),
        );
    } else if online.contains(BOOT_CPU) && !resolved.housekeeping.contains(BOOT_CPU) {
        findings.push(
            machine(
                rule,
                Severity::Error,
                location,
                "the boot CPU does other work, and the kernel keeps its tick and its duties there",
            )
            .values(
                resolved.housekeeping.named().to_string(),
                format!("CPU {BOOT_CPU} among them"),
            )
            .fix(format!(
                "add CPU {BOOT_CPU} to housekeeping, and give the domain another"
            )),
        );
    }
    let named = context.claims.housekeeping.clone().unwrap_or_default();
    for each in context.domains() {
        let (domain, asked) = (each.planned, &each.claim.asked);
        let both = named.intersection(asked);
        if !both.is_empty() {
            findings.push(
                about(
                    rule,
                    domain,
                    Severity::Error,
                    "it has CPUs that are housekeeping too",
                )
                .values(format!("{} in both", both.named()), "CPUs of its own")
                .fix(format!(
                    "write housekeeping = \"{}\"",
                    named.difference(asked)
                )),
            );
        }
        if domain.kind.is_housekeeping() {
            let outside = listed(domain)
                .unwrap_or_default()
                .difference(&resolved.housekeeping);
            if !outside.is_empty() {
                findings.push(
                    about(rule, domain, Severity::Error, "a host domain runs beside ordinary work, and its CPUs are not housekeeping")
                        .values(outside.named().to_string(), format!("CPUs of {}", resolved.housekeeping))
                        .fix("name housekeeping CPUs, or write kind = \"task\""),
                );
            }
        }
    }
    let forgotten = resolved.with_role(CpuRole::Unassigned);
    if !forgotten.is_empty() {
        findings.push(
            machine(rule, Severity::Warning, location, "some CPUs are neither housekeeping nor anybody's, so ordinary work stays there unbounded")
                .values(format!("{} with nobody", forgotten.named()), "an owner for each CPU")
                .fix(format!("write housekeeping = \"{}\"", named.union(&forgotten))),
        );
    }
    findings
}

pub(super) fn one_owner(context: &Context<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    for (index, each) in context.domains().enumerate() {
        let domain = each.planned;
        // The first who asked has it; each later one is told once for each of those, with all the
        // CPUs that it shares with it.
        let mut shared: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for cpu in each.claim.asked.iter() {
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
                about(
                    "one-owner",
                    domain,
                    Severity::Error,
                    "a real-time CPU has two owners",
                )
                .values(
                    format!("{} of `{owner}` too", cpus.named()),
                    "CPUs of its own",
                )
                .fix(format!("give `{}` other CPUs than {cpus}", domain.name)),
            );
        }
        let outside: CpuSet = domain
            .threads
            .iter()
            .filter_map(|rule| rule.cpus.as_ref())
            .fold(CpuSet::new(), |all, cpus| all.union(cpus))
            .difference(&each.resolved.cpus);
        if !outside.is_empty() && each.claim.unmet.is_none() {
            findings.push(
                about(
                    "one-owner",
                    domain,
                    Severity::Error,
                    "threads are given CPUs that the domain does not own",
                )
                .values(
                    outside.named().to_string(),
                    format!("CPUs of {}", each.resolved.cpus),
                )
                .fix("name CPUs of the domain in `threads`, or add them to its `cpus`"),
            );
        }
    }
    findings
}
