// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan from a topology and a wish.

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

/// What the user wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// Real-time CPUs in all; none: one for each task and container, two for each guest where
    /// there are enough.
    pub real_time_cpus: Option<u32>,
    /// How many tasks. Where nothing is wished for it is one.
    pub tasks: u32,
    /// How many containers.
    pub containers: u32,
    /// How many guests.
    pub guests: u32,
}

/// A proposed plan, and why it is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The plan.
    pub plan: Plan,
    /// Sentences for each domain, by its name.
    pub reasons: BTreeMap<String, Vec<String>>,
}

impl Proposal {
    /// The plan as its file, with the reasons as comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write_with(&self.plan, &self.reasons)
    }
}

/// Why there is no plan for this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The CPUs do not suffice.
    #[error(
        "machine: it has no CPUs for this plan besides housekeeping (has {present}, needed {wanted}); fix: wish for fewer domains or CPUs, at most one for each core but the first"
    )]
    NotEnough {
        /// What there is.
        present: String,
        /// What was wished for.
        wanted: String,
    },
    /// Fewer CPUs than domains.
    #[error(
        "--real-time-cpus: each domain needs a CPU of its own (is {cpus}, needed {domains} or more); fix: wish for more CPUs or fewer domains"
    )]
    FewerThanDomains {
        /// CPUs wished for.
        cpus: u32,
        /// Domains wished for.
        domains: u32,
    },
}

/// Above the policies that the plan gives (from the OpenShift node tuning operator).
const KERNEL_THREADS: u8 = 11;
/// Under the kernel's own threads.
const WORK: SchedulingPolicy = SchedulingPolicy::Fifo(KERNEL_THREADS - 1);
/// As tuned's realtime-virtual-host has it: under everything else that is real-time.
const VIRTUAL_CPU: SchedulingPolicy = SchedulingPolicy::Fifo(1);
/// A guest's memory where nobody said more.
const GUEST_MEMORY: ByteSize = ByteSize(1 << 30);
/// More domains or CPUs no machine has.
const MOST: u32 = 8192;

/// Proposes a plan: each domain on whole cores far from the boot CPU, the threads beside them idle,
/// the rest housekeeping.
///
/// # Errors
/// If the machine has too few cores for the wish.
pub fn propose(machine: &Machine, wish: &Wish) -> Result<Proposal, ProposeError> {
    let kinds = kinds(wish);
    let sizes = match wish.real_time_cpus {
        Some(cpus) => vec![shared_out(&kinds, cpus)?],
        // A guest with one virtual CPU of its own is better than no guest.
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

fn kinds(wish: &Wish) -> Vec<DomainKind> {
    let none = wish.tasks == 0 && wish.containers == 0 && wish.guests == 0;
    [
        (DomainKind::Task, if none { 1 } else { wish.tasks }),
        (DomainKind::Container, wish.containers),
        (DomainKind::Vm, wish.guests),
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

/// One CPU each, a second one for guests, and the rest in turn.
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

/// CPUs for each domain, the largest first, so that the small ones fill what is left.
fn place(machine: &Machine, sizes: &[usize]) -> Result<Vec<Choice>, ProposeError> {
    let topology = &machine.topology;
    let house = topology.core(topology.online.first().unwrap_or(rampart_model::BOOT_CPU));
    let mut free = topology.online.difference(&house);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sizes.get(*index).copied()));
    let mut choices: BTreeMap<usize, Choice> = BTreeMap::new();
    for index in order {
        let search = Search {
            count: sizes.get(index).copied().unwrap_or(1),
            whole_cores: true,
            housekeeping: house.clone(),
            smt: SmtPolicy::IdleSibling,
            ..Search::default()
        };
        let choice =
            choose(machine, &free, &search).map_err(|present| ProposeError::NotEnough {
                present,
                wanted: format!(
                    "{} whole cores in all, {} of them together",
                    sizes.iter().sum::<usize>(),
                    search.count
                ),
            })?;
        free = free.difference(&beside(machine, &choice.cpus));
        choices.insert(index, choice);
    }
    Ok(choices.into_values().collect())
}

/// Every thread of the cores of `cpus`.
fn beside(machine: &Machine, cpus: &CpuSet) -> CpuSet {
    cpus.iter().fold(CpuSet::new(), |all, cpu| {
        all.union(&machine.topology.core(cpu))
    })
}

fn assemble(machine: &Machine, kinds: &[DomainKind], choices: &[Choice]) -> Proposal {
    let taken = choices.iter().fold(CpuSet::new(), |all, choice| {
        all.union(&beside(machine, &choice.cpus))
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
    // A kernel command line that sets other CPUs aside has to change with the plan.
    let resolved = resolve(machine, &plan, &Environment::default());
    let restart = resolved.findings.iter().any(|finding| {
        finding.rule() == "boot-lists-agree" && finding.finding.severity == Severity::Error
    });
    if restart {
        plan.boot.reboot = Reboot::Plan;
    }
    Proposal { plan, reasons }
}

/// The kind's word, with a number where there are several.
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
                // The first does the guest's own housekeeping.
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
            "name its own kernel or disk, its memory, and hugepage = \"2MiB\" once such pages are reserved"
        }
        DomainProgram::Container => {
            domain.cpus = Some(CpuRequest::List(cpus.clone()));
            domain.policy = Some(PlannedPolicy(WORK));
            "say what it runs: container = { engine = \"podman\", image = \"NAME\" }, run = [\"PROGRAM\"], deadline = \"1ms\""
        }
        _ => {
            domain.cpus = Some(CpuRequest::List(cpus.clone()));
            domain.policy = Some(PlannedPolicy(WORK));
            "say what it runs: run = [\"PROGRAM\", \"ARGUMENT\"], deadline = \"1ms\""
        }
    };
    (domain, remark.to_owned())
}
