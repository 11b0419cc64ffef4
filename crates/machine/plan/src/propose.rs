// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proposes plans for a topology.

use std::collections::BTreeMap;

use rampart_model::{
    ByteSize, CpuId, CpuRequest, CpuSet, DomainKind, DomainProgram, Environment, GuestMemory,
    KnobAction, KnobChoice, Machine, MachineSection, Plan, PlannedDomain, PlannedPolicy, Reboot,
    SchedulingPolicy, Severity, SmtPolicy, VirtualCpuRequest, VirtualCpus, VitalThread, plural,
};

use crate::fingerprint::fingerprint;
use crate::resolve::resolve;
use crate::select::{Choice, Search, choose};
use crate::write::write_with;

/// The requested domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProposalRequest {
    /// Total number of real-time CPUs; `None`: one for each task and container, two for each guest if
    /// there are enough.
    pub real_time_cpus: Option<u32>,
    /// Number of tasks. A request without any domain is one task.
    pub tasks: u32,
    /// Number of containers.
    pub containers: u32,
    /// Number of guests.
    pub guests: u32,
}

/// A proposed plan with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProposal {
    /// The plan.
    pub plan: Plan,
    /// Reasons for each domain, by its name.
    pub reasons: BTreeMap<String, Vec<String>>,
}

impl PlanProposal {
    /// Returns the plan's file, with the reasons as comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write_with(&self.plan, &self.reasons)
    }
}

/// A request that the machine cannot meet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Too few CPUs.
    #[error(
        "machine: too few CPUs besides housekeeping (expected {wanted}, found {present}); fix: request fewer domains or CPUs, at most one for each core except the first"
    )]
    NotEnough {
        /// The available CPUs.
        present: String,
        /// The requested CPUs.
        wanted: String,
    },
    /// Fewer CPUs than domains.
    #[error(
        "--real-time-cpus: each domain needs its own CPU (expected {domains} or more, found {cpus}); fix: request more CPUs or fewer domains"
    )]
    FewerThanDomains {
        /// Requested CPUs.
        cpus: u32,
        /// Requested domains.
        domains: u32,
    },
}

/// Priority of the kernel's threads, above the domains (from the OpenShift node tuning operator).
const KERNEL_THREADS: u8 = 11;
/// Policy of domains, below the kernel's threads.
const WORK: SchedulingPolicy = SchedulingPolicy::Fifo(KERNEL_THREADS - 1);
/// Policy of virtual CPUs, below all other real-time threads (from tuned's realtime-virtual-host).
const VIRTUAL_CPU: SchedulingPolicy = SchedulingPolicy::Fifo(1);
/// Default memory of a guest.
const GUEST_MEMORY: ByteSize = ByteSize(1 << 30);
/// An upper limit of domains and CPUs.
const MOST: u32 = 8192;

/// Proposes a plan: each domain on whole cores far from the boot CPU, their siblings idle, the rest
/// housekeeping.
///
/// # Errors
/// If the machine has too few cores for the request.
pub fn propose(machine: &Machine, request: &ProposalRequest) -> Result<PlanProposal, ProposeError> {
    let kinds = kinds(request);
    let sizes = match request.real_time_cpus {
        Some(cpus) => vec![shared_out(&kinds, cpus)?],
        // Second choice: guests with one virtual CPU.
        None => vec![usual(&kinds, 2), usual(&kinds, 1)],
    };
    let mut last = ProposeError::NotEnough {
        present: machine.topology.online.named().to_string(),
        wanted: plural(kinds.len(), "domain"),
    };
    for sizes in sizes {
        match place(machine, &sizes) {
            Ok(choices) => return Ok(assemble(machine, &kinds, &choices)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn kinds(request: &ProposalRequest) -> Vec<DomainKind> {
    let none = request.tasks == 0 && request.containers == 0 && request.guests == 0;
    [
        (DomainKind::Task, if none { 1 } else { request.tasks }),
        (DomainKind::Container, request.containers),
        (DomainKind::Vm, request.guests),
    ]
    .into_iter()
    .flat_map(|(kind, count)| (0..count.min(MOST)).map(move |_| kind))
    .collect()
}

fn usual(kinds: &[DomainKind], guest: usize) -> Vec<usize> {
    kinds
        .iter()
        .map(|kind| {
            if kind.program() == DomainProgram::Guest {
                guest
            } else {
                1
            }
        })
        .collect()
}

/// Returns the number of CPUs of each domain: one each, a second one for guests, the rest in turn.
fn shared_out(kinds: &[DomainKind], cpus: u32) -> Result<Vec<usize>, ProposeError> {
    let domains = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
    if cpus < domains {
        return Err(ProposeError::FewerThanDomains { cpus, domains });
    }
    let mut left = (cpus - domains).min(MOST);
    let mut sizes = vec![1; kinds.len()];
    for (size, kind) in sizes.iter_mut().zip(kinds) {
        if kind.program() == DomainProgram::Guest && left > 0 {
            *size += 1;
            left -= 1;
        }
    }
    while left > 0 {
        for size in &mut sizes {
            if left > 0 {
                *size += 1;
                left -= 1;
            }
        }
    }
    Ok(sizes)
}

/// Chooses CPUs for each domain, the largest domain first.
fn place(machine: &Machine, sizes: &[usize]) -> Result<Vec<Choice>, ProposeError> {
    let topology = &machine.topology;
    let housekeeping = topology.core(topology.online.first().unwrap_or(rampart_model::BOOT_CPU));
    let mut free = topology.online.difference(&housekeeping);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sizes.get(*index).copied()));
    let mut choices: BTreeMap<usize, Choice> = BTreeMap::new();
    for index in order {
        let search = Search {
            count: sizes.get(index).copied().unwrap_or(1),
            whole_cores: true,
            housekeeping: housekeeping.clone(),
            smt: SmtPolicy::IdleSibling,
            ..Search::default()
        };
        let choice =
            choose(machine, &free, &search).map_err(|present| ProposeError::NotEnough {
                present,
                wanted: format!(
                    "{} whole cores in total, {} of them adjacent",
                    sizes.iter().sum::<usize>(),
                    search.count
                ),
            })?;
        free = free.difference(&whole_cores(machine, &choice.cpus));
        choices.insert(index, choice);
    }
    Ok(choices.into_values().collect())
}

/// Returns all threads of the cores of `cpus`.
fn whole_cores(machine: &Machine, cpus: &CpuSet) -> CpuSet {
    cpus.iter().fold(CpuSet::new(), |all, cpu| {
        all.union(&machine.topology.core(cpu))
    })
}

fn assemble(machine: &Machine, kinds: &[DomainKind], choices: &[Choice]) -> PlanProposal {
    let taken = choices.iter().fold(CpuSet::new(), |all, choice| {
        all.union(&whole_cores(machine, &choice.cpus))
    });
    let housekeeping = machine.topology.online.difference(&taken);
    let mut plan = Plan {
        machine: MachineSection {
            housekeeping: Some(housekeeping.clone()),
            fingerprint: Some(fingerprint(machine)),
            ..MachineSection::default()
        },
        ..Plan::default()
    };
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, (kind, choice)) in kinds.iter().zip(choices).enumerate() {
        let name = name(kinds, index, *kind);
        let (domain, remark) = domain(machine, &name, *kind, &choice.cpus, &housekeeping);
        plan.domains.push(domain);
        reasons.insert(name, vec![choice.reason.clone(), remark]);
    }
    for kind in VitalThread::ALL.into_iter().filter(|kind| kind.is_bound()) {
        let choice = KnobChoice {
            action: KnobAction::Apply,
            value: Some(KERNEL_THREADS.to_string()),
        };
        plan.host.insert(kind.knob.to_owned(), choice);
    }
    // A kernel command line that isolates other CPUs has to change with the plan.
    let resolved = resolve(machine, &plan, &Environment::default());
    let restart = resolved.findings.iter().any(|finding| {
        finding.rule() == "boot-lists-agree" && finding.finding.severity == Severity::Error
    });
    if restart {
        plan.boot.reboot = Reboot::Plan;
    }
    PlanProposal { plan, reasons }
}

/// Returns the name of the kind, with a number if there are several.
fn name(kinds: &[DomainKind], index: usize, kind: DomainKind) -> String {
    let word = if kind.program() == DomainProgram::Guest {
        "guest"
    } else {
        kind.word()
    };
    let same = |all: &[DomainKind]| all.iter().filter(|other| **other == kind).count();
    if same(kinds) == 1 {
        return word.to_owned();
    }
    let before = kinds.get(..index).map_or(0, same);
    format!("{word}-{}", before + 1)
}

fn domain(
    machine: &Machine,
    name: &str,
    kind: DomainKind,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
) -> (PlannedDomain, String) {
    let mut domain = PlannedDomain::new(name, kind);
    let remark = match kind.program() {
        DomainProgram::Guest => {
            let last = u32::try_from(cpus.len())
                .unwrap_or(u32::MAX)
                .saturating_sub(1);
            domain.vcpus = Some(VirtualCpus::Table(VirtualCpuRequest {
                cpus: Some(cpus.clone()),
                policy: Some(PlannedPolicy(VIRTUAL_CPU)),
                // The first virtual CPU does the guest's own housekeeping.
                real_time: (last > 0).then(|| (1..=last).map(CpuId).collect()),
                ..VirtualCpuRequest::default()
            }));
            domain.memory = Some(GuestMemory {
                size: GUEST_MEMORY,
                hugepage: None,
                node: cpus.first().and_then(|cpu| machine.topology.node_of(cpu)),
            });
            if !machine.kernel_release.is_empty() {
                domain.kernel = Some(format!("/boot/vmlinuz-{}", machine.kernel_release));
            }
            domain.emulator = Some(housekeeping.clone());
            "set its kernel or disk and its memory, and hugepage = \"2MiB\" once such pages are reserved"
        }
        DomainProgram::Container => {
            domain.cpus = Some(CpuRequest::List(cpus.clone()));
            domain.policy = Some(PlannedPolicy(WORK));
            "set its program: container = { engine = \"podman\", image = \"NAME\" }, run = [\"PROGRAM\"], deadline = \"1ms\""
        }
        _ => {
            domain.cpus = Some(CpuRequest::List(cpus.clone()));
            domain.policy = Some(PlannedPolicy(WORK));
            "set its program: run = [\"PROGRAM\", \"ARGUMENT\"], deadline = \"1ms\""
        }
    };
    (domain, remark.to_owned())
}
