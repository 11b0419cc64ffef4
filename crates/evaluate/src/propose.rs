// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a machine and a wish to a matrix: which domains, on which CPUs, for how long. Pure.

use rampart_model::{
    Availability, Condition, CpuId, CpuSet, DomainKind, DomainPlan, DomainSelection,
    ExperimentPlan, Finding, GuestRole, LoadKind, LoadPlace, Machine, MeterKind, MeterPlan, Nanos,
    NotMeasured, SchedulingPolicy, Severity, TransferPlan,
};

use crate::EvaluateError;
use crate::transfer::plan::{self as transfers, DisturbanceWish, Planned, Wanted};

/// What the user wishes; an empty list or none means: propose it from the machine.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Total time.
    pub total: Option<Nanos>,
    /// The limit that verdicts use.
    pub deadline: Option<Nanos>,
    /// The domains; one that is named twice is there twice.
    pub domains: Vec<DomainSelection>,
    /// The loads with their places.
    pub conditions: Vec<Condition>,
    /// What is done to one domain while the others are watched; none: the usual, where the
    /// policy is a real-time one and two domains can be up at once.
    pub disturbances: Option<Vec<DisturbanceWish>>,
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
}

/// Two minutes: long enough for five repetitions of the standard matrix, short enough to wait.
pub const DEFAULT_TOTAL: Nanos = Nanos::from_secs(120);
/// On an emulated machine everything but the measured time takes several times as long.
const EMULATED_TOTAL: Nanos = Nanos::from_secs(240);

/// Short enough that two minutes show a quantile of 99.9 % in every cell of the standard matrix.
const DEFAULT_INTERVAL: Nanos = Nanos::from_micros(500);

/// On an emulated machine, where a guest of its own spends most of a millisecond on a wakeup: its
/// meter would leave nothing of its processor to what has to report. No verdict there rests on a
/// quantile anyway.
const EMULATED_INTERVAL: Nanos = Nanos::from_millis(4);

/// What one run costs besides its measured time: raising and lowering the wall, starting a
/// container and a load, warming up. Only used to share out the time; nothing relies on it.
const RUN_OVERHEAD: Nanos = Nanos::from_millis(500);
/// The same on an emulated machine, where starting a program takes a second.
const EMULATED_RUN_OVERHEAD: Nanos = Nanos::from_secs(4);
const WARM_UP: Nanos = Nanos::from_millis(300);

/// No run is longer, so that a killed evaluation loses little and repetitions stay interleaved.
const LONGEST_RUN: Nanos = Nanos::from_secs(60);
/// Shorter runs would be warm-up more than measurement.
const SHORTEST_RUN: Nanos = Nanos::SECOND;
/// With fewer the spread between runs is hardly known.
const USUAL_REPETITIONS: u64 = 5;

/// Part of the time that disturbances get where they are measured. They are the answer to one of
/// the four questions, and the matrix the answer to two.
const DISTURBANCE_SHARE: f64 = 0.5;
/// On an emulated machine, where the figures of the matrix say little.
const EMULATED_DISTURBANCE_SHARE: f64 = 0.7;

/// The proposed matrix, and what is left out of it.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The matrix.
    pub plan: ExperimentPlan,
    /// Guests that are up and loaded for the whole evaluation and not measured.
    pub neighbours: Vec<DomainPlan>,
    /// What was left out, and why.
    pub not_measured: Vec<NotMeasured>,
}

/// Proposes the matrix for a machine.
///
/// # Errors
/// If the wish cannot be fulfilled on this machine: unknown CPUs, domains that it cannot host
/// (when named), a time too short for the matrix.
pub fn propose(
    machine: &Machine,
    availability: &[Availability],
    request: &Request,
) -> Result<Proposal, EvaluateError> {
    let usable = machine
        .topology
        .online
        .intersection(&machine.topology.allowed);
    if usable.is_empty() {
        return Err(EvaluateError::NoCpu);
    }
    let mut findings = Vec::new();
    let mut not_measured = Vec::new();
    let (chosen, neighbours) = chosen(availability, request, &mut not_measured)?;
    let wishes = wishes(request, machine.virtualisation.emulated, &mut not_measured);
    let separate = chosen
        .iter()
        .filter(|(_, availability)| availability.domain.kind != DomainKind::Host)
        .count();
    let wanted_cores = if wishes.is_some() { separate.max(1) } else { 1 };
    let real_time = real_time_cpus(machine, &usable, request.cpus.as_ref(), wanted_cores)?;
    let mut housekeeping = usable.difference(&real_time);
    if housekeeping.is_empty() {
        housekeeping = usable.clone();
        findings.push(
            Finding::new(
                Severity::Warning,
                "machine",
                "every usable CPU is measured, so no CPU is left for ordinary work: task and \
                 container stand without a shield, and the meter's own reader shares a measured CPU",
            )
            .values(format!("{} usable CPU(s)", usable.len()), "one more than is measured"),
        );
    }
    let own = wishes
        .as_ref()
        .filter(|_| separate > 1)
        .and_then(|_| transfers::own_cpus(machine, &real_time, separate));
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
    let domains: Vec<DomainPlan> = chosen
        .into_iter()
        .map(|(name, availability)| DomainPlan {
            name,
            selection: availability.domain,
            cpus: match availability.domain.kind {
                DomainKind::Host => host_cpus(&housekeeping, each),
                _ => own_cpus.next().unwrap_or_default(),
            },
            description: availability.description.clone(),
        })
        .collect();
    let neighbours: Vec<DomainPlan> = neighbours
        .into_iter()
        .map(|(name, availability)| DomainPlan {
            name,
            selection: availability.domain,
            cpus: housekeeping.clone(),
            description: availability.description.clone(),
        })
        .collect();
    for neighbour in &neighbours {
        findings.push(
            Finding::new(
                Severity::Note,
                neighbour.name.as_str(),
                "a neighbour: it is up and loaded for the whole evaluation, on the housekeeping CPUs, and is not measured",
            )
            .values(neighbour.description.as_str(), "nothing"),
        );
    }

    let conditions = conditions(
        &usable,
        &real_time,
        &request.conditions,
        machine.virtualisation.emulated,
        &mut not_measured,
    )?;
    let meters = if request.meters.is_empty() {
        vec![MeterKind::Wakeup]
    } else {
        request.meters.clone()
    };
    let interval = request
        .interval
        .unwrap_or(if machine.virtualisation.emulated {
            EMULATED_INTERVAL
        } else {
            DEFAULT_INTERVAL
        });
    let deadline = request.deadline.unwrap_or(interval);

    let (overhead, usual_total) = if machine.virtualisation.emulated {
        (EMULATED_RUN_OVERHEAD, EMULATED_TOTAL)
    } else {
        (RUN_OVERHEAD, DEFAULT_TOTAL)
    };
    let total = request.total.unwrap_or(usual_total);
    let cells = (domains.len() * conditions.len() * meters.len()) as u64;
    let transfer = disturbances(
        wishes.as_deref(),
        request,
        &domains,
        (total, cells, interval),
        machine.virtualisation.emulated,
        &mut not_measured,
    )?;
    let matrix_time = match &transfer {
        Some(_) => total.saturating_sub(disturbance_budget(total, machine.virtualisation.emulated)),
        None => total,
    };
    let (repetitions, run_duration) = share_time(matrix_time, cells, overhead)?;
    let meters: Vec<MeterPlan> = meters
        .into_iter()
        .map(|kind| {
            let defaults = MeterPlan::new(kind, CpuSet::new());
            MeterPlan {
                policy: request.policy.unwrap_or(defaults.policy),
                duration: run_duration,
                warm_up: WARM_UP,
                interval,
                work: request.work.unwrap_or(defaults.work),
                deadline: Some(deadline),
                block: block_of(run_duration),
                ..defaults
            }
        })
        .collect();
    for meter in &meters {
        let plan = MeterPlan {
            cpus: real_time.clone(),
            ..meter.clone()
        };
        let problems = plan.findings();
        if !problems.is_empty() {
            return Err(EvaluateError::BadPlan { findings: problems });
        }
    }
    Ok(Proposal {
        plan: ExperimentPlan {
            transfer,
            housekeeping,
            domains,
            meters,
            conditions,
            repetitions,
            run_duration,
            deadline,
            deadline_from_user: request.deadline.is_some(),
            total,
            seed: request.seed.unwrap_or(1),
            findings,
        },
        neighbours,
        not_measured,
    })
}

const fn disturbance_share(emulated: bool) -> f64 {
    if emulated {
        EMULATED_DISTURBANCE_SHARE
    } else {
        DISTURBANCE_SHARE
    }
}

fn disturbance_budget(total: Nanos, emulated: bool) -> Nanos {
    Nanos((total.0 as f64 * disturbance_share(emulated)) as u64)
}

/// Domains by the names that they get, in the order of the kinds.
type Named<'a> = Vec<(String, &'a Availability)>;

/// The domains to measure, and the neighbours that are only to be there.
fn chosen<'a>(
    availability: &'a [Availability],
    request: &Request,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<(Named<'a>, Named<'a>), EvaluateError> {
    let (mut measured, mut neighbours) = (Vec::new(), Vec::new());
    for availability in availability {
        let selection = availability.domain;
        let named = request
            .domains
            .iter()
            .filter(|one| **one == selection)
            .count();
        if !availability.available {
            if named > 0 {
                return Err(EvaluateError::DomainUnavailable {
                    domain: selection.to_string(),
                    findings: availability.findings.clone(),
                });
            }
            not_measured.push(NotMeasured {
                what: format!("domain {selection}"),
                findings: availability.findings.clone(),
            });
            continue;
        }
        let times = if request.domains.is_empty() {
            usize::from(selection == DomainSelection::of(selection.kind))
        } else {
            named
        };
        if times == 0 {
            not_measured.push(NotMeasured {
                what: format!("domain {selection}"),
                findings: vec![
                    Finding::new(Severity::Note, "--domains", "not asked for")
                        .mend(format!("rampart evaluate --domains host,{selection}")),
                ],
            });
            continue;
        }
        let place = if selection.guest == Some(GuestRole::Noisy) {
            &mut neighbours
        } else {
            &mut measured
        };
        place.extend((1..=times).map(|number| {
            let name = match times {
                1 => selection.to_string(),
                _ => format!("{selection}-{number}"),
            };
            (name, availability)
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
    Ok((measured, neighbours))
}

/// What is to be done to domains; none where nothing is.
fn wishes(
    request: &Request,
    emulated: bool,
    not_measured: &mut Vec<NotMeasured>,
) -> Option<Vec<DisturbanceWish>> {
    if let Some(asked) = &request.disturbances {
        let nothing = asked.is_empty() || asked.contains(&DisturbanceWish::Nothing);
        if nothing {
            not_measured.push(NotMeasured {
                what: DISTURBANCES.to_owned(),
                findings: vec![
                    Finding::new(Severity::Note, "--disturb", "not asked for")
                        .mend("rampart evaluate --disturb block,cpu,cache"),
                ],
            });
        }
        return (!nothing).then(|| asked.clone());
    }
    let real_time = request.policy.is_none_or(|policy| policy.is_real_time());
    if !real_time {
        not_measured.push(NotMeasured {
            what: DISTURBANCES.to_owned(),
            findings: vec![
                Finding::new(
                    Severity::Note,
                    "--disturb",
                    "under a time-sharing policy latencies depend on everything that runs, so that what crosses a wall does not stand out",
                )
                .mend("run where real-time policies are granted, or insist with --disturb block"),
            ],
        });
        return None;
    }
    Some(DisturbanceWish::usual(emulated))
}

/// What the document calls the part that says who disturbs whom.
const DISTURBANCES: &str = "who disturbs whom";

/// Plans who disturbs whom within its part of the time; what cannot be done is told.
fn disturbances(
    wishes: Option<&[DisturbanceWish]>,
    request: &Request,
    domains: &[DomainPlan],
    (total, cells, interval): (Nanos, u64, Nanos),
    emulated: bool,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<TransferPlan>, EvaluateError> {
    let Some(wishes) = wishes else {
        return Ok(None);
    };
    let explicit = request.disturbances.is_some();
    let defaults = MeterPlan::new(MeterKind::Wakeup, CpuSet::new());
    let budget = disturbance_budget(total, emulated);
    let overhead = if emulated {
        EMULATED_RUN_OVERHEAD
    } else {
        RUN_OVERHEAD
    };
    if let Err(too_short) = share_time(total.saturating_sub(budget), cells, overhead) {
        // The matrix alone may still fit.
        if explicit {
            return Err(match too_short {
                EvaluateError::TooShort { cells, needed, .. } => EvaluateError::TooShort {
                    total,
                    cells,
                    needed: Nanos((needed.0 as f64 / (1.0 - disturbance_share(emulated))) as u64),
                },
                other => other,
            });
        }
        not_measured.push(NotMeasured {
            what: DISTURBANCES.to_owned(),
            findings: vec![
                Finding::new(
                    Severity::Note,
                    "--for",
                    "the time is not enough for the matrix and for disturbances",
                )
                .mend(format!("rampart evaluate --for {}", Nanos(total.0 * 2))),
            ],
        });
        return Ok(None);
    }
    let planned = transfers::plan(&Wanted {
        domains,
        wishes,
        explicit,
        interval,
        policy: request.policy.unwrap_or(defaults.policy),
        budget,
        emulated,
    })?;
    Ok(match planned {
        Planned::Transfers { plan, left_out } => {
            not_measured.extend(left_out.into_iter().map(|(name, finding)| NotMeasured {
                what: format!("disturbance {name}"),
                findings: vec![finding],
            }));
            Some(plan)
        }
        Planned::Nothing(finding) => {
            not_measured.push(NotMeasured {
                what: DISTURBANCES.to_owned(),
                findings: vec![finding],
            });
            None
        }
    })
}

/// The CPUs for real-time work that an evaluation of one domain would take: the user's; else those
/// that the boot line isolated; else the last whole core.
///
/// # Errors
/// If this process may use no CPU, or the user's are not usable.
pub fn propose_cpus(machine: &Machine, asked: Option<&CpuSet>) -> Result<CpuSet, EvaluateError> {
    let usable = machine
        .topology
        .online
        .intersection(&machine.topology.allowed);
    if usable.is_empty() {
        return Err(EvaluateError::NoCpu);
    }
    real_time_cpus(machine, &usable, asked, 1)
}

/// The CPUs for real-time work: the user's; else those that the boot line isolated; else the
/// last whole cores, because low-numbered CPUs take most interrupts: as many as are wanted, but
/// one is left for ordinary work, and one is given up in any case.
fn real_time_cpus(
    machine: &Machine,
    usable: &CpuSet,
    asked: Option<&CpuSet>,
    wanted_cores: usize,
) -> Result<CpuSet, EvaluateError> {
    if let Some(asked) = asked {
        if asked.is_empty() || !asked.is_subset(usable) {
            return Err(EvaluateError::CpusUnusable {
                asked: asked.clone(),
                usable: usable.clone(),
            });
        }
        return Ok(asked.clone());
    }
    let isolated = machine.topology.isolated.intersection(usable);
    if !isolated.is_empty() && isolated.len() < usable.len() {
        return Ok(isolated);
    }
    let mut cores: Vec<CpuSet> = Vec::new();
    for cpu in usable.iter().collect::<Vec<CpuId>>().into_iter().rev() {
        if !cores.iter().any(|core| core.iter().any(|one| one == cpu)) {
            cores.push(transfers::core_of(machine, cpu).intersection(usable));
        }
    }
    let given = wanted_cores.min(cores.len().saturating_sub(1)).max(1);
    let last = cores
        .iter()
        .take(given)
        .fold(CpuSet::new(), |all, core| all.union(core));
    // A single core with two siblings has no whole core to give away; one sibling is then
    // better than nothing, and the machine's findings name the sharing.
    if last.len() < usable.len() || usable.len() == 1 {
        Ok(last)
    } else {
        Ok(usable
            .iter()
            .next_back()
            .map(CpuSet::single)
            .unwrap_or_default())
    }
}

/// As many housekeeping CPUs as there are real-time ones, so that maxima over CPUs compare; the
/// boot CPU only if there is no other.
fn host_cpus(housekeeping: &CpuSet, count: usize) -> CpuSet {
    housekeeping.iter().rev().take(count).collect()
}

fn conditions(
    usable: &CpuSet,
    real_time: &CpuSet,
    asked: &[Condition],
    emulated: bool,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Vec<Condition>, EvaluateError> {
    let has_others = usable.len() > real_time.len() && usable.len() > 1;
    let place = if has_others {
        LoadPlace::Others
    } else {
        LoadPlace::Same
    };
    let mut conditions = Vec::new();
    if asked.is_empty() {
        conditions.push(Condition::IDLE);
        // Where CPUs are threads of an emulator, loads on all others slow the measured one down
        // however good the wall; loads in one domain at a time are among the disturbances.
        let standard: &[LoadKind] = if emulated {
            &[]
        } else {
            &[LoadKind::Cpu, LoadKind::Cache]
        };
        conditions.extend(standard.iter().map(|load| Condition {
            load: *load,
            place: Some(place),
        }));
        let left_out = LoadKind::ALL
            .into_iter()
            .filter(|load| *load != LoadKind::Idle && !standard.contains(load));
        for load in left_out {
            not_measured.push(NotMeasured {
                what: format!("load {}", load.word()),
                findings: vec![
                    Finding::new(Severity::Note, "--loads", "not part of the standard matrix")
                        .mend(format!("rampart evaluate --loads idle,{}", load.word())),
                ],
            });
        }
        return Ok(conditions);
    }
    for condition in asked {
        if condition.place == Some(LoadPlace::Others) && !has_others {
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

/// Repetitions and measured time of each run.
///
/// Runs of one cell differ more than seconds within a run do, so comparisons live from
/// repetitions: five where each still gets a second, fewer where not. With more time both grow:
/// the fewest repetitions whose runs last no more seconds than there are repetitions.
fn share_time(total: Nanos, cells: u64, overhead: Nanos) -> Result<(u32, Nanos), EvaluateError> {
    let cells = cells.max(1);
    let run_for =
        |repetitions: u64| Nanos(total.0 / (cells * repetitions)).saturating_sub(overhead);
    let mut repetitions = USUAL_REPETITIONS;
    while repetitions > 1 && run_for(repetitions) < SHORTEST_RUN {
        repetitions -= 1;
    }
    if run_for(repetitions) < SHORTEST_RUN {
        let needed = Nanos(cells * (SHORTEST_RUN + overhead).0);
        return Err(EvaluateError::TooShort {
            total,
            cells,
            needed,
        });
    }
    while repetitions >= USUAL_REPETITIONS
        && run_for(repetitions) > LONGEST_RUN.min(Nanos::from_secs(repetitions))
    {
        repetitions += 1;
    }
    // A tenth of a second is as exact as anyone plans.
    let run = Nanos(run_for(repetitions).0 / 100_000_000 * 100_000_000);
    Ok((
        u32::try_from(repetitions).unwrap_or(u32::MAX),
        run.min(LONGEST_RUN),
    ))
}

/// A run is cut into equal blocks of about a second, in long runs up to ten seconds.
fn block_of(run: Nanos) -> Nanos {
    let wanted = (run.0 / 6).clamp(1_000_000_000, 10_000_000_000);
    Nanos(run.0 / (run.0 / wanted).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_is_never_exceeded(seconds in 1u64..200_000, cells in 1u64..60) {
            match share_time(Nanos::from_secs(seconds), cells, RUN_OVERHEAD) {
                Ok((repetitions, run)) => {
                    prop_assert!(run >= SHORTEST_RUN && run <= LONGEST_RUN);
                    let blocks = run.0 as f64 / block_of(run).0 as f64;
                    prop_assert!((blocks - blocks.round()).abs() < 1e-6, "{blocks}");
                    let used = (run + RUN_OVERHEAD).0 * cells * u64::from(repetitions);
                    prop_assert!(used <= Nanos::from_secs(seconds).0);
                }
                Err(EvaluateError::TooShort { needed, .. }) => {
                    prop_assert!(Nanos::from_secs(seconds) < needed);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn the_standard_matrix_gets_five_repetitions_in_two_minutes() {
        let (repetitions, run) = share_time(DEFAULT_TOTAL, 9, RUN_OVERHEAD).expect("fits");
        assert_eq!((repetitions, run), (5, Nanos::from_millis(2100)));
        assert_eq!(block_of(run), Nanos::from_millis(1050));
    }

    #[test]
    fn a_day_is_cut_into_runs_of_a_minute() {
        let (repetitions, run) =
            share_time(Nanos::from_secs(86_400), 9, RUN_OVERHEAD).expect("fits");
        assert_eq!((repetitions, run), (159, Nanos::from_millis(59_800)));
    }
}
