// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a machine and a plan to the owner of everything.

use rampart_model::{
    CpuId, CpuOwnership, CpuRole, CpuSet, DomainProgram, Environment, Machine, PLAN_SCHEMA_VERSION,
    Plan, PlannedDomain, ResolvedDomain, ResolvedPlan, SchedulingPolicy, SmtPolicy,
};

use crate::claims::{Claims, servants};
use crate::fingerprint::fingerprint;
use crate::{rules, shares, view};

/// Resolves a plan on a machine: every CPU gets at most one owner, whatever the plan says; what
/// the plan breaks is in the findings. A pure function.
#[must_use]
pub fn resolve(machine: &Machine, plan: &Plan, environment: &Environment) -> ResolvedPlan {
    let claims = Claims::of(machine, plan);
    let idle = idle_siblings(machine, &claims);
    let housekeeping = housekeeping(machine, plan, &claims, &idle);
    let mut domains: Vec<ResolvedDomain> = plan
        .domains
        .iter()
        .zip(&claims.domains)
        .map(|(domain, claim)| resolved(domain, &claim.got, &claim.reasons, &housekeeping))
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
    resolved.findings = rules::check(&rules::Context {
        machine,
        plan,
        environment,
        claims: &claims,
        resolved: &resolved,
        division: division.as_ref(),
    });
    resolved
}

/// The CPUs on which Linux does real-time work: those of cells are not Linux's.
fn real_time(plan: &Plan, claims: &Claims) -> CpuSet {
    let of_linux = plan
        .domains
        .iter()
        .zip(&claims.domains)
        .filter(|(domain, _)| !domain.kind.leaves_linux());
    of_linux.fold(CpuSet::new(), |all, (_, claim)| all.union(&claim.got))
}

/// The threads of real-time cores that are left without work.
fn idle_siblings(machine: &Machine, claims: &Claims) -> CpuSet {
    let topology = &machine.topology;
    let owned = claims.owned();
    let named = claims.housekeeping.clone().unwrap_or_default();
    owned
        .iter()
        .fold(CpuSet::new(), |all, id| {
            all.union(&view::core(topology, id))
        })
        .difference(&owned)
        .difference(&named)
        .difference(&claims.servants)
        .difference(&claims.offline)
}

fn housekeeping(machine: &Machine, plan: &Plan, claims: &Claims, idle: &CpuSet) -> CpuSet {
    let online = &machine.topology.online;
    let rest = match &plan.machine.housekeeping {
        Some(named) => named.intersection(online),
        None => online.difference(idle).difference(&claims.servants),
    };
    rest.difference(&claims.owned()).difference(&claims.offline)
}

fn resolved(
    domain: &PlannedDomain,
    got: &CpuSet,
    reasons: &[String],
    housekeeping: &CpuSet,
) -> ResolvedDomain {
    let host = domain.kind.is_housekeeping();
    let guest = domain.kind.program() == DomainProgram::Guest;
    let cpus = if host {
        crate::claims::listed(domain).map_or_else(
            || housekeeping.clone(),
            |cpus| cpus.intersection(housekeeping),
        )
    } else {
        got.clone()
    };
    let count = domain
        .vcpus
        .as_ref()
        .and_then(|vcpus| vcpus.request().number())
        .unwrap_or(0);
    let order: Vec<CpuId> = cpus.iter().collect();
    let mut bound = order.into_iter();
    // More virtual CPUs than any machine has would only fill memory; the rule on their number
    // has said so.
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
        policy: highest_policy(domain),
        reasons: if host {
            vec!["a host domain shares the housekeeping CPUs".to_owned()]
        } else {
            reasons.to_vec()
        },
        cache: domain.cache.clone(),
        cache_ways: Vec::new(),
        huge_pages: None,
        cpus,
    }
}

/// KVM's own limit of virtual CPUs (`KVM_MAX_VCPUS`, x86).
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
        node: view::node(&machine.topology, cpu),
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
    } else if claims.servants.contains(cpu) {
        let servant = plan
            .domains
            .iter()
            .find(|domain| servants(domain).contains(cpu));
        let emulator = |domain: &PlannedDomain| {
            domain
                .emulator
                .as_ref()
                .is_some_and(|cpus| cpus.contains(cpu))
        };
        ownership.owner = servant.map(|domain| domain.name.clone());
        ownership.role = if servant.is_some_and(emulator) {
            CpuRole::Emulator
        } else {
            CpuRole::Service
        };
    }
    ownership
}

/// The policy of a guest's virtual CPU.
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

/// Every policy that a plan gives to threads of a domain.
pub(crate) fn policies(domain: &PlannedDomain) -> Vec<SchedulingPolicy> {
    let guest = domain
        .vcpus
        .as_ref()
        .and_then(|vcpus| vcpus.request().policy);
    let threads = domain.threads.iter().filter_map(|rule| rule.policy);
    domain
        .policy
        .into_iter()
        .chain(guest)
        .chain(threads)
        .map(|policy| policy.0)
        .collect()
}

/// The order in which the scheduler serves: deadline, then priorities, then the rest (sched(7)).
pub(crate) fn precedence(policy: SchedulingPolicy) -> u8 {
    match policy {
        SchedulingPolicy::Other => 0,
        SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) => priority,
        SchedulingPolicy::Deadline { .. } => u8::MAX,
    }
}

fn highest_policy(domain: &PlannedDomain) -> Option<SchedulingPolicy> {
    policies(domain)
        .into_iter()
        .max_by_key(|policy| precedence(*policy))
}
