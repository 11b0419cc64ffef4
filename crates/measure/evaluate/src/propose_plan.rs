// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives the domains of the matrix from a resolved plan of the machine. Pure.

use std::collections::BTreeSet;

use rampart_model::{
    Availability, CpuSet, DomainKind, DomainSelection, EvaluatedDomain, EvaluationPart, Finding,
    NotMeasured, PlannedDomain, ResolvedDomain, Severity,
};

use crate::EvaluateError;
use crate::effects::PlanRequest;
use crate::propose_cpus::host_cpus;

/// Domains that can be requested with every plan.
const ALWAYS: [&str; 2] = ["host", "vm:noisy"];

/// The parts of a plan that are measured.
pub(crate) struct PlanDomains {
    pub(crate) real_time: CpuSet,
    pub(crate) housekeeping: CpuSet,
    pub(crate) domains: Vec<EvaluatedDomain>,
    /// The requested noisy guests.
    pub(crate) noisy_guests: Vec<EvaluatedDomain>,
    pub(crate) findings: Vec<Finding>,
}

/// Returns the domains of a plan to measure, each on its own CPUs with its own policy and deadline,
/// and the host to compare with.
pub(crate) fn plan_domains(
    request: &PlanRequest,
    availability: &[Availability],
    usable: &CpuSet,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<PlanDomains, EvaluateError> {
    let resolved = &request.resolved;
    let mut names = Names::of(request);
    let mut findings = Vec::new();
    let mut unavailable = Vec::new();
    let mut domains = Vec::new();
    for domain in &resolved.domains {
        let planned = request.plan.domain(&domain.name);
        let selection = selection(domain.kind, planned);
        let asked = names.takes(&[&domain.name, &selection.to_string(), domain.kind.word()]);
        if !asked {
            not_measured.push(not_asked_for(&domain.name));
            continue;
        }
        if domain.kind.is_housekeeping() {
            domains.push(measured(domain, selection, planned, String::new()));
            continue;
        }
        match possible(domain, selection, availability, usable) {
            Ok(description) => domains.push(measured(domain, selection, planned, description)),
            Err(reasons) if names.named => {
                return Err(EvaluateError::DomainUnavailable {
                    domain: domain.name.clone(),
                    findings: reasons,
                });
            }
            Err(reasons) => {
                unavailable.extend(reasons.clone());
                not_measured.push(NotMeasured {
                    part: EvaluationPart::Domain(domain.name.clone()),
                    findings: reasons,
                });
            }
        }
        findings.extend(planned.and_then(substitute_note));
    }
    let real_time: CpuSet = domains
        .iter()
        .filter(|domain| !domain.selection.kind.is_housekeeping())
        .fold(CpuSet::new(), |all, domain| all.union(&domain.cpus));
    let housekeeping = resolved.housekeeping.intersection(usable);
    let host = DomainKind::Host.word();
    if !request.plan.domains.iter().any(|one| one.name == host) && names.takes(&[host]) {
        if housekeeping.is_empty() {
            not_measured.push(NotMeasured {
                part: EvaluationPart::Domain(host.to_owned()),
                findings: vec![Finding::new(
                    Severity::Note,
                    request.file.as_str(),
                    "the plan leaves no usable CPU for housekeeping",
                )],
            });
        } else {
            domains.insert(0, host_beside(&housekeeping, &domains, availability));
        }
    }
    let noisy = DomainSelection::noisy_guest();
    let wants_noisy_guest = names.named && names.takes(&[&noisy.to_string()]);
    names.check(request)?;
    if real_time.is_empty() {
        return Err(EvaluateError::NothingInPlan {
            file: request.file.clone(),
            findings: unavailable,
        });
    }
    let noisy_guests = match (wants_noisy_guest, available(availability, noisy)) {
        (false, _) => Vec::new(),
        (true, Ok(description)) => vec![EvaluatedDomain {
            name: noisy.to_string(),
            selection: noisy,
            cpus: housekeeping.clone(),
            description,
            policy: None,
            deadline: None,
        }],
        (true, Err(findings)) => {
            return Err(EvaluateError::DomainUnavailable {
                domain: noisy.to_string(),
                findings,
            });
        }
    };
    Ok(PlanDomains {
        real_time,
        housekeeping,
        domains,
        noisy_guests,
        findings,
    })
}

/// The names of `--domains`, and which of them matched a domain.
struct Names<'a> {
    names: &'a [String],
    used: BTreeSet<&'a str>,
    /// Whether any were given.
    named: bool,
}

impl<'a> Names<'a> {
    fn of(request: &'a PlanRequest) -> Self {
        Self {
            names: &request.names,
            used: BTreeSet::new(),
            named: !request.names.is_empty(),
        }
    }

    /// Returns whether one of these names is requested, and marks them as matched.
    fn takes(&mut self, by: &[&str]) -> bool {
        let mut asked = !self.named;
        for name in self.names.iter().filter(|name| by.contains(&name.as_str())) {
            self.used.insert(name);
            asked = true;
        }
        asked
    }

    fn check(&self, request: &PlanRequest) -> Result<(), EvaluateError> {
        let unknown = self
            .names
            .iter()
            .find(|name| !self.used.contains(name.as_str()));
        unknown.map_or(Ok(()), |asked| {
            let domains = &request.resolved.domains;
            Err(EvaluateError::NotInPlan {
                asked: asked.clone(),
                names: domains
                    .iter()
                    .map(|domain| domain.name.as_str())
                    .filter(|name| !ALWAYS.contains(name))
                    .chain(ALWAYS)
                    .map(str::to_owned)
                    .collect(),
            })
        })
    }
}

/// Returns the kind of domain that measures a domain of the plan.
fn selection(kind: DomainKind, planned: Option<&PlannedDomain>) -> DomainSelection {
    let engine = planned
        .and_then(|planned| planned.container.as_ref())
        .and_then(|container| container.engine);
    let usual = DomainSelection::of(kind);
    DomainSelection {
        engine: engine.or(usual.engine),
        ..usual
    }
}

fn available(
    availability: &[Availability],
    selection: DomainSelection,
) -> Result<String, Vec<Finding>> {
    match availability.iter().find(|one| one.domain == selection) {
        Some(one) if one.available => Ok(one.description.clone()),
        Some(one) => Err(one.findings.clone()),
        None => Err(vec![Finding::new(
            Severity::Error,
            selection.to_string(),
            "domains of this kind are not built",
        )]),
    }
}

/// Returns the domain on this machine, or why it cannot be measured.
fn possible(
    domain: &ResolvedDomain,
    selection: DomainSelection,
    availability: &[Availability],
    usable: &CpuSet,
) -> Result<String, Vec<Finding>> {
    if domain.cpus.is_empty() || !domain.cpus.is_subset(usable) {
        return Err(vec![
            Finding::new(
                Severity::Error,
                domain.name.as_str(),
                "not all CPUs of this domain can be used",
            )
            .values(format!("usable: {usable}"), domain.cpus.to_string())
            .fix("bring them online\nwiden the cpuset that rampart was started in"),
        ]);
    }
    available(availability, selection)
}

fn measured(
    domain: &ResolvedDomain,
    selection: DomainSelection,
    planned: Option<&PlannedDomain>,
    description: String,
) -> EvaluatedDomain {
    EvaluatedDomain {
        name: domain.name.clone(),
        selection,
        cpus: domain.cpus.clone(),
        description,
        policy: domain.policy,
        deadline: planned.and_then(|planned| planned.deadline),
    }
}

/// Returns as many housekeeping CPUs as the smallest domain has, so that maxima over CPUs compare.
fn host_beside(
    housekeeping: &CpuSet,
    domains: &[EvaluatedDomain],
    availability: &[Availability],
) -> EvaluatedDomain {
    let selection = DomainSelection::of(DomainKind::Host);
    let count = domains.iter().map(|domain| domain.cpus.len()).min();
    EvaluatedDomain {
        name: selection.to_string(),
        selection,
        cpus: host_cpus(housekeeping, count.unwrap_or(1)),
        description: available(availability, selection).unwrap_or_default(),
        policy: None,
        deadline: None,
    }
}

fn not_asked_for(name: &str) -> NotMeasured {
    NotMeasured {
        part: EvaluationPart::Domain(name.to_owned()),
        findings: vec![
            Finding::new(Severity::Note, "--domains", "not requested")
                .fix(format!("rampart evaluate --domains host,{name}")),
        ],
    }
}

/// Returns a finding about the workload that the meter replaces.
fn substitute_note(planned: &PlannedDomain) -> Option<Finding> {
    let stands_in = planned
        .container
        .as_ref()
        .is_some_and(|container| container.image.is_some() || container.rootfs.is_some())
        || planned.kernel.is_some()
        || planned.disk.is_some();
    stands_in.then(|| {
        Finding::new(
            Severity::Note,
            planned.name.as_str(),
            "measured with a container or guest that holds the meter alone, on the CPUs of the plan: \
             its own image, kernel and disk are not part of the figures",
        )
    })
}
