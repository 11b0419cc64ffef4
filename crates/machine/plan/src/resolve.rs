// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resolves a plan on a machine: the owner of every CPU, interrupt, cache and node.

use rampart_model::{
    CpuId, CpuOwnership, CpuRole, CpuSet, DomainProgram, Environment, Machine, PLAN_SCHEMA_VERSION,
    Plan, PlannedDomain, ResolvedDomain, ResolvedPlan, SchedulingPolicy, SmtPolicy,
};

use rampart_rules::{Claims, PlanContext, check_plan};

use crate::claims::assign;
use crate::fingerprint::{difference, fingerprint};
use crate::shares;

/// Resolves a plan on a machine. Every CPU gets at most one owner, whatever the plan requests; the
/// rules that the plan breaks are in the findings.
#[must_use]
pub fn resolve(machine: &Machine, plan: &Plan, environment: &Environment) -> ResolvedPlan {
    let claims = assign(machine, plan);
    let idle = idle_siblings(machine, &claims);
    let housekeeping = housekeeping(machine, plan, &claims, &idle);
    let mut domains: Vec<ResolvedDomain> = plan
        .domains
        .iter()
        .zip(&claims.domains)
        .map(|(domain, claim)| resolved(domain, &claim.owned, &claim.reasons, &housekeeping))
        .collect();
    for (domain, planned) in domains.iter_mut().zip(&plan.domains) {
        domain.huge_pages = shares::huge_pages(machine, planned, &domain.cpus);
    }
    let division = shares::division(environment, &domains);
    if let Some(Ok(division)) = &division {
        for group in &division.groups {
            for domain in domains
                .iter_mut()
                .filter(|domain| domain.name == group.domain)
            {
                domain.cache_ways.clone_from(&group.ways);
            }
        }
    }
    let cpus = machine
        .topology
        .online
        .iter()
        .map(|cpu| {
            let mut ownership = ownership(machine, plan, &claims, &domains, &housekeeping, cpu);
            if ownership.role == CpuRole::Unassigned
                && plan.machine.smt != SmtPolicy::Off
                && idle.contains(cpu)
            {
                ownership.role = CpuRole::IdleSibling;
            }
            ownership
        })
        .collect();
    let mut resolved = ResolvedPlan {
        schema_version: PLAN_SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: fingerprint(machine),
        interrupts: shares::interrupts(plan, environment, &domains, &housekeeping),
        caches: shares::caches(machine, &domains, &housekeeping),
        nodes: shares::nodes(machine, &domains, &housekeeping),
        real_time: real_time(plan, &claims),
        smt: plan.machine.smt,
        host: plan.host.clone(),
        boot: plan.boot.clone(),
        findings: Vec::new(),
        cpus,
        domains,
        housekeeping,
    };
    let topology_changes = plan
        .machine
        .fingerprint
        .as_ref()
        .map(|recorded| difference(recorded, machine))
        .unwrap_or_default();
    resolved.findings = check_plan(&PlanContext {
        machine,
        plan,
        environment,
        claims: &claims,
        resolved: &resolved,
        division: division.as_ref(),
        topology_changes: &topology_changes,
    });
    resolved
}

/// Returns the real-time CPUs of Linux: those of cells belong to the hypervisor.
fn real_time(plan: &Plan, claims: &Claims) -> CpuSet {
    let of_linux = plan
        .domains
        .iter()
        .zip(&claims.domains)
        .filter(|(domain, _)| !domain.kind.leaves_linux());
    of_linux.fold(CpuSet::new(), |all, (_, claim)| all.union(&claim.owned))
}

/// Returns the threads of real-time cores that stay idle.
fn idle_siblings(machine: &Machine, claims: &Claims) -> CpuSet {
    let topology = &machine.topology;
    let owned = claims.owned();
    let named = claims.housekeeping.clone().unwrap_or_default();
    owned
        .iter()
        .fold(CpuSet::new(), |all, id| all.union(&topology.core(id)))
        .difference(&owned)
        .difference(&named)
        .difference(&claims.service)
        .difference(&claims.offline)
}

fn housekeeping(machine: &Machine, plan: &Plan, claims: &Claims, idle: &CpuSet) -> CpuSet {
    let online = &machine.topology.online;
    let rest = match &plan.machine.housekeeping {
        Some(named) => named.intersection(online),
        None => online.difference(idle).difference(&claims.service),
    };
    rest.difference(&claims.owned()).difference(&claims.offline)
}

fn resolved(
    domain: &PlannedDomain,
    owned: &CpuSet,
    reasons: &[String],
    housekeeping: &CpuSet,
) -> ResolvedDomain {
    let host = domain.kind.is_housekeeping();
    let guest = domain.kind.program() == DomainProgram::Guest;
    let cpus = if host {
        domain.listed_cpus().map_or_else(
            || housekeeping.clone(),
            |cpus| cpus.intersection(housekeeping),
        )
    } else {
        owned.clone()
    };
    let count = domain
        .vcpus
        .as_ref()
        .and_then(|vcpus| vcpus.request().number())
        .unwrap_or(0);
    let order: Vec<CpuId> = cpus.iter().collect();
    let mut bound = order.into_iter();
    // More would only fill memory; the rule `virtual-cpu-placement` refuses them.
    let virtual_cpus = (0..count.min(MOST_VIRTUAL_CPUS))
        .map(|_| bound.next())
        .collect();
    let location = |set: &Option<CpuSet>| {
        if guest {
            set.clone().unwrap_or_else(|| housekeeping.clone())
        } else {
            set.clone().unwrap_or_default()
        }
    };
    ResolvedDomain {
        name: domain.name.clone(),
        kind: domain.kind,
        virtual_cpus,
        emulator: location(&domain.emulator),
        service: location(&domain.service),
        policy: domain.highest_policy(),
        reasons: if host {
            vec!["a host domain shares the housekeeping CPUs".to_owned()]
        } else {
            reasons.to_vec()
        },
        cache: domain.cache.clone(),
        cache_ways: Vec::new(),
        huge_pages: None,
        owner: domain.owner,
        cpus,
    }
}

/// KVM's limit of virtual CPUs (`KVM_MAX_VCPUS`, x86).
const MOST_VIRTUAL_CPUS: u32 = 4096;

fn ownership(
    machine: &Machine,
    plan: &Plan,
    claims: &Claims,
    domains: &[ResolvedDomain],
    housekeeping: &CpuSet,
    cpu: CpuId,
) -> CpuOwnership {
    let mut ownership = CpuOwnership {
        cpu,
        owner: None,
        role: CpuRole::Unassigned,
        policy: None,
        node: machine.topology.node_of(cpu),
    };
    let owner = domains
        .iter()
        .zip(&plan.domains)
        .find(|(domain, _)| !domain.kind.is_housekeeping() && domain.cpus.contains(cpu));
    if let Some((domain, planned)) = owner {
        ownership.owner = Some(domain.name.clone());
        let number = domain
            .virtual_cpus
            .iter()
            .position(|bound| *bound == Some(cpu));
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(number) => {
                ownership.role = CpuRole::VirtualCpu(number);
                ownership.policy = virtual_cpu_policy(planned, number);
            }
            None => {
                ownership.role = CpuRole::RealTime;
                ownership.policy = domain.policy;
            }
        }
    } else if claims.offline.contains(cpu) {
        ownership.role = CpuRole::Offline;
    } else if housekeeping.contains(cpu) {
        ownership.role = CpuRole::Housekeeping;
    } else if claims.service.contains(cpu) {
        let owner = plan
            .domains
            .iter()
            .find(|domain| domain.service_cpus().contains(cpu));
        let emulator = |domain: &PlannedDomain| {
            domain
                .emulator
                .as_ref()
                .is_some_and(|cpus| cpus.contains(cpu))
        };
        ownership.owner = owner.map(|domain| domain.name.clone());
        ownership.role = if owner.is_some_and(emulator) {
            CpuRole::Emulator
        } else {
            CpuRole::Service
        };
    }
    ownership
}

/// Returns the policy of a guest's virtual CPU.
fn virtual_cpu_policy(domain: &PlannedDomain, number: u32) -> Option<SchedulingPolicy> {
    let request = domain.vcpus.as_ref()?.request();
    let real_time = request
        .real_time
        .as_ref()
        .is_none_or(|numbers| numbers.contains(CpuId(number)));
    if real_time {
        request.policy.map(|policy| policy.0)
    } else {
        Some(SchedulingPolicy::Other)
    }
}
