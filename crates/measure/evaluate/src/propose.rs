// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives the matrix of an evaluation from the machine and the request: domains, CPUs, times.
//! Pure.

use rampart_model::{
    Availability, Condition, CpuSet, DomainSelection, EvaluatedDomain, EvaluationPart,
    EvaluationSettings, Finding, LoadKind, LoadLocation, Machine, MeasuredPlan, MeterKind,
    MeterSettings, Nanos, NotMeasured, PlanEffects, SchedulingPolicy, Severity, TransferSettings,
};
use rampart_stats::EFFECT_TOLERANCE;

use crate::EvaluateError;
use crate::effects::PlanRequest;
use crate::effects::variants::{Variants, share_time_of_variants};
use crate::kept_meters::meters_stay_up;
use crate::matrix_time::{RunLimits, batch_of, least_time, share_time};
use crate::measuring_costs::MeasuringCosts;
use crate::propose_cpus::{host_cpus, own_cpus, real_time_cpus, usable};
use crate::propose_plan::plan_domains;
use crate::transfer::disturbance_request::DisturbanceRequest;
use crate::transfer::schedule::{self as transfers, Planned, TransferRequest};
use crate::transfer::session;

/// The user's request. An empty list or `None` means: choose a value that fits the machine.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Total time.
    pub total: Option<Nanos>,
    /// Most time for measuring on until all comparisons are decided.
    pub until_decided: Option<Nanos>,
    /// The deadline that verdicts use.
    pub deadline: Option<Nanos>,
    /// The domains. A domain that is named twice is measured twice, as two domains.
    pub domains: Vec<DomainSelection>,
    /// A plan of the machine. Its domains are measured instead of proposed ones; `domains` and
    /// `cpus` are then ignored.
    pub plan: Option<PlanRequest>,
    /// The loads with their locations.
    pub conditions: Vec<Condition>,
    /// The disturbances of one domain while the others are watched. `None`: the usual ones if the
    /// policy is a real-time policy and two domains can run at once.
    pub disturbances: Option<Vec<DisturbanceRequest>>,
    /// The meters, the leading one first.
    pub meters: Vec<MeterKind>,
    /// The real-time CPUs.
    pub cpus: Option<CpuSet>,
    /// Policy of the measuring threads.
    pub policy: Option<SchedulingPolicy>,
    /// Period of the periodic meters.
    pub interval: Option<Nanos>,
    /// Length of the work of `fwq` and `loop`.
    pub work: Option<Nanos>,
    /// Seed of the order of runs and of the resampling.
    pub seed: Option<u64>,
    /// Number of real CPUs that run this machine, if it is emulated and the number is known.
    pub emulator_cpus: Option<u32>,
}

const WARM_UP: Nanos = Nanos::from_millis(300);
/// Most time for open comparisons if the user gave no time at all. On a virtual machine with stalls, four
/// more minutes decide most comparisons that two leave open; who waits longer asks for it.
const LIMIT_WITHOUT_REQUEST: Nanos = Nanos::from_secs(360);

/// The proposed matrix, and the list of what it does not include.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The matrix.
    pub settings: EvaluationSettings,
    /// Guests that run under load for the whole evaluation and are not measured.
    pub noisy_guests: Vec<EvaluatedDomain>,
    /// The parts that were left out, each with the reason.
    pub not_measured: Vec<NotMeasured>,
    /// The changes of the plan to compare, still without figures. `None` if nothing is compared.
    pub plan_effects: Option<PlanEffects>,
}

/// Proposes the matrix for a machine.
///
/// # Errors
/// Returns an error if the machine cannot fulfil the request: unknown CPUs, a named domain that it
/// cannot host, a time that is too short for the matrix.
pub fn propose(
    machine: &Machine,
    availability: &[Availability],
    request: &Request,
) -> Result<Proposal, EvaluateError> {
    let usable = usable(machine)?;
    let costs = MeasuringCosts::of(machine.virtualisation.emulated);
    let mut not_measured = Vec::new();
    let variants = request.plan.as_ref().map(Variants::of).unwrap_or_default();
    let requested = if variants.variants.is_empty() {
        requested(request, costs, &mut not_measured)
    } else {
        no_disturbances(request, &mut not_measured)?
    };
    let (locations, noisy_guests) = match &request.plan {
        Some(plan) => {
            let found = plan_domains(plan, availability, &usable, &mut not_measured)?;
            let locations = AssignedCpus {
                real_time: found.real_time,
                housekeeping: found.housekeeping,
                domains: found.domains,
                findings: found.findings,
            };
            (locations, found.noisy_guests)
        }
        None => {
            let (chosen, noisy_guests) = chosen(machine, availability, request, &mut not_measured)?;
            let locations = assign_cpus(machine, &usable, request, chosen, requested.is_some())?;
            let noisy_guests = planned(noisy_guests, &locations.housekeeping);
            (locations, noisy_guests)
        }
    };
    let mut findings = locations.findings;
    let (domains, housekeeping) = (locations.domains, locations.housekeeping);
    findings.extend(noisy_guests.iter().map(noisy_guest_note));
    let conditions = conditions(
        &usable,
        &locations.real_time,
        &request.conditions,
        costs,
        &mut not_measured,
    )?;
    let meters = meters(request, &domains, &mut not_measured)?;
    let interval = request.interval.unwrap_or(costs.interval);
    let deadline = request.deadline.unwrap_or(interval);
    let pairs = meters.iter().flat_map(|meter| {
        let measuring = |domain: &&EvaluatedDomain| meter.measures_in(&domain.selection);
        domains.iter().filter(measuring)
    });
    let entries = (pairs.count() * conditions.len()) as u64;
    let total = request.total.unwrap_or(costs.total);
    let stay_up = meters_stay_up(&domains, machine.virtualisation.emulated);
    let limits = RunLimits::of(costs, stay_up);
    let until_decided = request.until_decided.or_else(|| {
        let emulated = machine.virtualisation.emulated;
        let measures_on = !emulated && request.total.is_none() && variants.variants.is_empty();
        measures_on.then_some(LIMIT_WITHOUT_REQUEST)
    });
    let transfer = disturbances(
        requested.as_deref(),
        request,
        &domains,
        (total, (entries, least_time(entries, limits)), interval),
        costs,
        &mut not_measured,
    )?;
    // The matrix gets what the rounds do not need.
    let rounds = transfer
        .iter()
        .flat_map(|transfer| session::order(transfer, request.seed.unwrap_or(1)));
    let for_rounds = rounds.map(|round| round.duration + costs.round_overhead);
    let matrix_time = for_rounds.fold(total, Nanos::saturating_sub);
    let (total, repetitions, run_duration) = if variants.variants.is_empty() {
        let (repetitions, run) = share_time(matrix_time, entries, limits)?;
        (total, repetitions, run)
    } else {
        share_time_of_variants(&variants, entries, request.total, costs)?
    };
    let meters = meters
        .into_iter()
        .map(|kind| meter_plan(kind, request, run_duration, (interval, deadline)))
        .collect::<Vec<_>>();
    for meter in &meters {
        let plan = MeterSettings {
            cpus: locations.real_time.clone(),
            ..meter.clone()
        };
        let problems = plan.findings();
        if !problems.is_empty() {
            return Err(EvaluateError::BadPlan { findings: problems });
        }
    }
    let plan_effects = (!variants.variants.is_empty()).then(|| PlanEffects {
        tolerance: EFFECT_TOLERANCE,
        changes: variants.changes,
        not_compared: variants.not_compared,
        ..PlanEffects::default()
    });
    Ok(Proposal {
        settings: EvaluationSettings {
            transfer,
            measured: request.plan.as_ref().map(|plan| MeasuredPlan {
                file: plan.file.clone(),
                fingerprint: plan.resolved.fingerprint.clone(),
                active: false,
            }),
            variants: variants.variants,
            housekeeping,
            domains,
            meters,
            conditions,
            repetitions,
            run_duration,
            deadline,
            deadline_from_user: request.deadline.is_some(),
            total,
            until_decided,
            look: 1,
            seed: request.seed.unwrap_or(1),
            findings,
        },
        noisy_guests,
        not_measured,
        plan_effects,
    })
}

/// Returns the meters that can measure at least one domain, and records the pairs that cannot.
fn meters(
    request: &Request,
    domains: &[EvaluatedDomain],
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Vec<MeterKind>, EvaluateError> {
    if request.meters.is_empty() {
        return Ok(vec![MeterKind::Wakeup]);
    }
    let mut measuring = Vec::new();
    let mut left_out = Vec::new();
    for meter in &request.meters {
        let (can, cannot): (Vec<&EvaluatedDomain>, Vec<&EvaluatedDomain>) = domains
            .iter()
            .partition(|domain| meter.measures_in(&domain.selection));
        left_out.extend(cannot.into_iter().map(|domain| NotMeasured {
            part: EvaluationPart::Meter {
                domain: domain.name.clone(),
                meter: *meter,
            },
            findings: vec![meter.not_here(&domain.name)],
        }));
        if !can.is_empty() {
            measuring.push(*meter);
        }
    }
    if measuring.is_empty() {
        let problem = |finding: Finding| Finding {
            severity: Severity::Error,
            ..finding
        };
        let findings = left_out
            .into_iter()
            .flat_map(|one| one.findings)
            .map(problem);
        return Err(EvaluateError::BadPlan {
            findings: findings.collect(),
        });
    }
    not_measured.extend(left_out);
    Ok(measuring)
}

fn meter_plan(
    kind: MeterKind,
    request: &Request,
    duration: Nanos,
    (interval, deadline): (Nanos, Nanos),
) -> MeterSettings {
    let defaults = MeterSettings::new(kind, CpuSet::new());
    MeterSettings {
        policy: request.policy.unwrap_or(defaults.policy),
        duration,
        warm_up: WARM_UP,
        interval,
        work: request.work.unwrap_or(defaults.work),
        deadline: Some(deadline),
        batch: batch_of(duration),
        ..defaults
    }
}

/// The CPUs of each domain.
struct AssignedCpus {
    real_time: CpuSet,
    housekeeping: CpuSet,
    domains: Vec<EvaluatedDomain>,
    findings: Vec<Finding>,
}

/// Assigns CPUs to the domains: separate CPUs if they run at once and there are enough.
fn assign_cpus(
    machine: &Machine,
    usable: &CpuSet,
    request: &Request,
    chosen: Named<'_>,
    together: bool,
) -> Result<AssignedCpus, EvaluateError> {
    let mut findings = Vec::new();
    let separate = chosen
        .iter()
        .filter(|(_, availability)| !availability.domain.kind.is_housekeeping())
        .count();
    let wanted_cores = if together { separate.max(1) } else { 1 };
    let real_time = real_time_cpus(machine, usable, request.cpus.as_ref(), wanted_cores)?.cpus;
    let mut housekeeping = usable.difference(&real_time);
    if housekeeping.is_empty() {
        housekeeping = usable.clone();
        findings.push(
            Finding::new(
                Severity::Warning,
                "machine",
                "every usable CPU is measured, so no CPU is left for ordinary work: task and \
                 container run without a shield, and the meter's own reader shares a measured CPU",
            )
            .values(
                format!("the usable CPUs are {usable}, and so are the measured"),
                "one more that is not measured",
            ),
        );
    }
    let own = (together && separate > 1)
        .then(|| own_cpus(machine, &real_time, separate))
        .flatten();
    let mut own_cpus = match own {
        Some((cpus, finding)) => {
            findings.extend(finding);
            cpus
        }
        None => vec![real_time.clone(); separate],
    }
    .into_iter();
    let each = own_cpus
        .as_slice()
        .first()
        .map_or(real_time.len(), CpuSet::len);
    let domains = chosen
        .into_iter()
        .map(|(name, availability)| {
            let cpus = if availability.domain.kind.is_housekeeping() {
                host_cpus(&housekeeping, each)
            } else {
                let own = own_cpus.next().unwrap_or_default();
                match own.first() {
                    Some(first) if availability.domain.is_measured_on_one_cpu() => {
                        CpuSet::single(first)
                    }
                    _ => own,
                }
            };
            domain_plan(name, availability, cpus)
        })
        .collect();
    Ok(AssignedCpus {
        real_time,
        housekeeping,
        domains,
        findings,
    })
}

fn domain_plan(name: String, availability: &Availability, cpus: CpuSet) -> EvaluatedDomain {
    EvaluatedDomain {
        name,
        selection: availability.domain,
        cpus,
        description: availability.description.clone(),
        policy: None,
        deadline: None,
    }
}

/// Assigns the noisy guests to the housekeeping CPUs.
fn planned(noisy_guests: Named<'_>, housekeeping: &CpuSet) -> Vec<EvaluatedDomain> {
    noisy_guests
        .into_iter()
        .map(|(name, availability)| domain_plan(name, availability, housekeeping.clone()))
        .collect()
}

/// Returns a finding about a noisy guest, since it affects all figures.
fn noisy_guest_note(noisy_guest: &EvaluatedDomain) -> Finding {
    Finding::new(
        Severity::Note,
        noisy_guest.name.as_str(),
        "a noisy neighbour: it runs and is loaded for the whole evaluation, on the housekeeping CPUs, and is not measured",
    )
    .values(noisy_guest.description.as_str(), "nothing")
}

/// Domains with their assigned names, in the order of the kinds.
type Named<'a> = Vec<(String, &'a Availability)>;

/// Returns why a domain that is measured by default is left out of this machine.
///
/// On real CPUs a domain that spins only uses its own. The emulator has a thread for each emulated CPU; if it has
/// fewer real ones, the others wait for the thread that spins, and their latencies decide nothing.
fn left_out(
    machine: &Machine,
    availability: &[Availability],
    request: &Request,
    selection: DomainSelection,
) -> Option<Finding> {
    let emulated = u32::try_from(machine.topology.online.len()).unwrap_or(u32::MAX);
    let has_real_cpus = request.emulator_cpus.is_some_and(|real| real >= emulated);
    if !selection.kind.properties().spins || !machine.virtualisation.emulated || has_real_cpus {
        return None;
    }
    let real = request
        .emulator_cpus
        .map_or("an unknown number of".to_owned(), |real| real.to_string());
    let usual = availability.iter().filter(|one| {
        one.available && one.domain != selection && one.domain.is_measured_by_default()
    });
    let names: Vec<String> = usual.map(|one| one.domain.to_string()).collect();
    Some(
        Finding::new(
            Severity::Note,
            "--domains",
            "it spins while it waits, which takes time from the other CPUs of this emulated machine",
        )
        .values(
            format!("{emulated} emulated CPUs on {real} real ones"),
            "at least as many real CPUs as emulated ones",
        )
        .fix(format!(
            "rampart evaluate --domains {},{selection}",
            names.join(",")
        )),
    )
}

/// Returns the domains to measure, and the noisy guests that only run beside them.
fn chosen<'a>(
    machine: &Machine,
    availability: &'a [Availability],
    request: &Request,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<(Named<'a>, Named<'a>), EvaluateError> {
    let (mut measured, mut noisy_guests) = (Vec::new(), Vec::new());
    for one in availability {
        let selection = one.domain;
        let named = request
            .domains
            .iter()
            .filter(|asked| **asked == selection)
            .count();
        if !one.available {
            if named > 0 {
                return Err(EvaluateError::DomainUnavailable {
                    domain: selection.to_string(),
                    findings: one.findings.clone(),
                });
            }
            not_measured.push(NotMeasured {
                part: EvaluationPart::Domain(selection.to_string()),
                findings: one.findings.clone(),
            });
            continue;
        }
        let by_default = request.domains.is_empty() && selection.is_measured_by_default();
        let against = by_default
            .then(|| left_out(machine, availability, request, selection))
            .flatten();
        let times = if by_default && against.is_none() {
            1
        } else {
            named
        };
        if times == 0 {
            let not_requested = || {
                Finding::new(Severity::Note, "--domains", "not requested")
                    .fix(format!("rampart evaluate --domains host,{selection}"))
            };
            not_measured.push(NotMeasured {
                part: EvaluationPart::Domain(selection.to_string()),
                findings: vec![against.unwrap_or_else(not_requested)],
            });
            continue;
        }
        let target = if selection.is_noisy() {
            &mut noisy_guests
        } else {
            &mut measured
        };
        target.extend((1..=times).map(|number| {
            let name = match times {
                1 => selection.to_string(),
                _ => format!("{selection}-{number}"),
            };
            (name, one)
        }));
    }
    for selection in &request.domains {
        if !availability.iter().any(|known| known.domain == *selection) {
            return Err(EvaluateError::DomainUnavailable {
                domain: selection.to_string(),
                findings: Vec::new(),
            });
        }
    }
    Ok((measured, noisy_guests))
}

/// Returns the disturbances to make, or `None` if there are none.
fn requested(
    request: &Request,
    costs: &MeasuringCosts,
    not_measured: &mut Vec<NotMeasured>,
) -> Option<Vec<DisturbanceRequest>> {
    if let Some(asked) = &request.disturbances {
        let nothing = asked.is_empty() || asked.contains(&DisturbanceRequest::Nothing);
        if nothing {
            not_measured.push(undisturbed(
                "not requested",
                "rampart evaluate --disturb block,cpu,cache",
            ));
        }
        return (!nothing).then(|| asked.clone());
    }
    let real_time = request.policy.is_none_or(|policy| policy.is_real_time());
    if !real_time {
        not_measured.push(undisturbed(
            "under a time-sharing policy latencies depend on everything that runs, so that missing isolation is hard to detect",
            "run as root, or add --disturb block",
        ));
        return None;
    }
    Some(DisturbanceRequest::usual(costs))
}

/// Refuses disturbances, since a comparison of plans uses the whole time.
fn no_disturbances(
    request: &Request,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<Vec<DisturbanceRequest>>, EvaluateError> {
    let nothing = |entry: &DisturbanceRequest| *entry == DisturbanceRequest::Nothing;
    let mut asked = request.disturbances.iter().flatten();
    if let Some(entry) = asked.find(|entry| !nothing(entry)) {
        return Err(EvaluateError::NoSuchDisturbance {
            asked: entry.to_string(),
            possible: vec!["none with --before-after or --ablate".to_owned()],
        });
    }
    not_measured.push(undisturbed(
        "the time goes to the comparison of the plan",
        "rampart evaluate --plan FILE without --before-after and --ablate",
    ));
    Ok(None)
}

/// Returns an entry for disturbances that are not measured, with the reason and the fix.
fn undisturbed(why: &str, fix: &str) -> NotMeasured {
    NotMeasured {
        part: EvaluationPart::Disturbances,
        findings: vec![Finding::new(Severity::Note, "--disturb", why).fix(fix)],
    }
}

/// Plans the disturbances within their part of the time, and records those that are left out.
fn disturbances(
    requested: Option<&[DisturbanceRequest]>,
    request: &Request,
    domains: &[EvaluatedDomain],
    (total, (entries, matrix), interval): (Nanos, (u64, Nanos), Nanos),
    costs: &MeasuringCosts,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<TransferSettings>, EvaluateError> {
    let Some(requested) = requested else {
        return Ok(None);
    };
    let defaults = MeterSettings::new(MeterKind::Wakeup, CpuSet::new());
    let planned = transfers::plan(&TransferRequest {
        domains,
        requested,
        explicit: request.disturbances.is_some(),
        interval,
        policy: request.policy.unwrap_or(defaults.policy),
        total,
        entries,
        matrix,
        costs,
    })?;
    Ok(match planned {
        Planned::Transfers { plan, left_out } => {
            not_measured.extend(
                left_out
                    .into_iter()
                    .map(|(disturbance, finding)| NotMeasured {
                        part: EvaluationPart::Disturbance(disturbance),
                        findings: vec![finding],
                    }),
            );
            Some(plan)
        }
        Planned::Nothing(finding) => {
            not_measured.push(NotMeasured {
                part: EvaluationPart::Disturbances,
                findings: vec![finding],
            });
            None
        }
    })
}

fn conditions(
    usable: &CpuSet,
    real_time: &CpuSet,
    asked: &[Condition],
    costs: &MeasuringCosts,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Vec<Condition>, EvaluateError> {
    let has_others = usable.len() > real_time.len() && usable.len() > 1;
    let location = if has_others {
        LoadLocation::Others
    } else {
        LoadLocation::Same
    };
    let mut conditions = Vec::new();
    if asked.is_empty() {
        conditions.push(Condition::IDLE);
        let standard = costs.loads;
        conditions.extend(standard.iter().map(|load| Condition {
            load: *load,
            location: Some(location),
        }));
        let left_out = LoadKind::ALL
            .into_iter()
            .filter(|load| *load != LoadKind::Idle && !standard.contains(load));
        for load in left_out {
            not_measured.push(NotMeasured {
                part: EvaluationPart::Load(load),
                findings: vec![
                    Finding::new(Severity::Note, "--loads", "not part of the standard matrix")
                        .fix(format!("rampart evaluate --loads idle,{}", load.word())),
                ],
            });
        }
        return Ok(conditions);
    }
    for condition in asked {
        if condition.location == Some(LoadLocation::Others) && !has_others {
            return Err(EvaluateError::NoOtherCpu {
                condition: *condition,
            });
        }
        if !conditions.contains(condition) {
            conditions.push(*condition);
        }
    }
    // Interference factors need a quiet condition to compare with.
    if !conditions.contains(&Condition::IDLE) {
        conditions.insert(0, Condition::IDLE);
    }
    Ok(conditions)
}
