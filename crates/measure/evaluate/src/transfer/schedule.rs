// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans the disturbances, the watched domains, and the time that they need. Pure.

use rampart_load::METERS_OWN;
use rampart_model::{
    Disturbance, DisturbanceKind, DomainKind, DomainProgram, EvaluatedDomain, Finding, LoadKind,
    Nanos, Participant, SchedulingPolicy, Severity, Side, TransferGroup, TransferSettings,
};

use super::disturbance_request::DisturbanceRequest;
use super::round_time::Times;
use crate::EvaluateError;
use crate::measuring_costs::MeasuringCosts;

/// Shortest block in periods of the meter. The meter does not see the part of a period that has
/// passed when a block begins.
const SHORTEST_BLOCK_PERIODS: u64 = 10;

/// The input of the plan.
#[derive(Debug)]
pub(crate) struct TransferRequest<'a> {
    pub(crate) domains: &'a [EvaluatedDomain],
    pub(crate) requested: &'a [DisturbanceRequest],
    /// Whether the entries are from the user, who then gets an error for impossible ones.
    pub(crate) explicit: bool,
    pub(crate) interval: Nanos,
    pub(crate) policy: SchedulingPolicy,
    /// The time of the whole evaluation.
    pub(crate) total: Nanos,
    /// Number of entries of the matrix.
    pub(crate) entries: u64,
    pub(crate) matrix: Nanos,
    pub(crate) costs: &'a MeasuringCosts,
}

impl TransferRequest<'_> {
    /// Returns the time for disturbances.
    fn budget(&self) -> Nanos {
        self.costs.disturbance_budget(self.total)
    }

    /// Returns whether the rest of the time is enough for the matrix.
    fn leaves_the_matrix(&self) -> bool {
        self.total.saturating_sub(self.budget()) >= self.matrix
    }

    /// Returns the value of `--for` that leaves this time for disturbances.
    fn total_for(&self, disturbances: Nanos) -> Nanos {
        self.costs.total_for(self.matrix, disturbances)
    }
}

/// The planned disturbances.
#[derive(Debug)]
pub(crate) enum Planned {
    Transfers {
        plan: TransferSettings,
        /// Loads for which there was not enough time.
        left_out: Vec<(Disturbance, Finding)>,
    },
    /// The reason why no disturbance can be measured.
    Nothing(Finding),
}

/// Plans which domain is disturbed and which are watched.
///
/// # Errors
/// Returns an error if a requested disturbance has no domain here, or the requested disturbances
/// need more time than the budget.
pub(crate) fn plan(wanted: &TransferRequest<'_>) -> Result<Planned, EvaluateError> {
    let (mut groups, findings) = groups(wanted.domains);
    if groups.is_empty() {
        return Ok(Planned::Nothing(
            Finding::new(
                Severity::Note,
                "disturbances",
                "no two domains have CPUs of their own at the same time, so none can be watched while another is disturbed",
            )
            .values(
                placed(wanted.domains),
                "two domains, each with a CPU of its own",
            )
            .fix("name more domains, or give more real-time CPUs with --cpus"),
        ));
    }
    for group in &mut groups {
        group.disturbances = possible(group, wanted.domains)
            .into_iter()
            .filter(|one| wanted.requested.iter().any(|entry| entry.wants(one)))
            .collect();
    }
    if wanted.explicit {
        check_requested(wanted.requested, &groups, wanted.domains)?;
    }
    let is_block = |one: &Disturbance| one.kind == DisturbanceKind::Block;
    let blocks = count(&groups, is_block);
    let loads = count(&groups, |one| !is_block(one));
    let share = |loads| {
        let overhead = wanted.costs.round_overhead;
        let times = Times::share(wanted.budget(), groups.len(), blocks, loads, overhead);
        times.filter(|_| wanted.leaves_the_matrix())
    };
    let (times, left_out) = match (share(loads), share(0)) {
        (Some(times), _) => (times, Vec::new()),
        // Blocks give more information in less time, and only they can show that an isolation
        // holds.
        (None, Some(times)) if !wanted.explicit && blocks > 0 => {
            let overhead = wanted.costs.round_overhead;
            let needed = Times::least(groups.len(), blocks, loads, overhead);
            (times, leave_out_loads(&mut groups, wanted, needed))
        }
        _ if wanted.explicit || blocks == 0 => {
            return too_short(wanted, groups.len(), blocks, loads);
        }
        _ => return too_short(wanted, groups.len(), blocks, 0),
    };
    for group in &mut groups {
        let once = group.disturbances.clone();
        for turn in 1..times.repetitions.max(times.block_repetitions) {
            let repeated = once.iter().filter(|one| {
                let rounds = if is_block(one) {
                    times.block_repetitions
                } else {
                    times.repetitions
                };
                turn < rounds
            });
            group.disturbances.extend(repeated.cloned());
        }
    }
    groups.retain(|group| !group.disturbances.is_empty());
    Ok(Planned::Transfers {
        plan: TransferSettings {
            groups,
            interval: wanted.interval,
            policy: wanted.policy,
            quiet: times.quiet,
            loaded: times.round,
            blocks: wanted.costs.blocks,
            block_factor: wanted.costs.block_factor,
            shortest_block: Nanos(wanted.interval.0.saturating_mul(SHORTEST_BLOCK_PERIODS)),
            findings,
        },
        left_out,
    })
}

/// Removes the loads from all groups. Returns each with the reason.
fn leave_out_loads(
    groups: &mut [TransferGroup],
    wanted: &TransferRequest<'_>,
    needed: Nanos,
) -> Vec<(Disturbance, Finding)> {
    let is_block = |one: &Disturbance| one.kind == DisturbanceKind::Block;
    let mut loads: Vec<Disturbance> = Vec::new();
    for group in groups {
        for load in group.disturbances.iter().filter(|one| !is_block(one)) {
            if !loads.contains(load) {
                loads.push(load.clone());
            }
        }
        group.disturbances.retain(is_block);
    }
    let left_out = |load: Disturbance| {
        let finding = Finding::new(
            Severity::Note,
            load.to_string(),
            "the time is not enough for loads in one domain while the others are watched",
        )
        .values(
            wanted.budget().to_string(),
            format!("{needed} for disturbances"),
        )
        .fix(more_time(wanted.total_for(needed)));
        (load, finding)
    };
    loads.into_iter().map(left_out).collect()
}

fn too_short(
    wanted: &TransferRequest<'_>,
    groups: usize,
    blocks: usize,
    loads: usize,
) -> Result<Planned, EvaluateError> {
    let needed = Times::least(groups, blocks, loads, wanted.costs.round_overhead);
    let total = wanted.total_for(needed);
    let fits = wanted.leaves_the_matrix();
    match (wanted.explicit, fits) {
        (true, true) => Err(EvaluateError::TooShortForDisturbances {
            budget: wanted.budget(),
            rounds: (blocks + loads) as u64,
            needed,
            total,
        }),
        (true, false) => Err(EvaluateError::TooShort {
            total: wanted.total,
            entries: wanted.entries,
            needed: total,
        }),
        // The time may still be enough for the matrix alone.
        (false, _) => Ok(Planned::Nothing(
            Finding::new(
                Severity::Note,
                "disturbances",
                if fits {
                    "the time is not enough to disturb one domain while the others are watched"
                } else {
                    "the time is not enough for the matrix and for disturbances"
                },
            )
            .values(wanted.total.to_string(), total.to_string())
            .fix(more_time(total)),
        )),
    }
}

fn more_time(total: Nanos) -> String {
    format!("rampart evaluate --for {}", total.as_argument())
}

fn count(groups: &[TransferGroup], of: impl Fn(&Disturbance) -> bool) -> usize {
    groups
        .iter()
        .flat_map(|group| &group.disturbances)
        .filter(|one| of(one))
        .count()
}

/// Formats `host on CPU 0, task on CPU 1`.
fn placed(domains: &[EvaluatedDomain]) -> String {
    let placed: Vec<String> = domains
        .iter()
        .map(|domain| format!("{} on {}", domain.name, domain.cpus.named()))
        .collect();
    placed.join(", ")
}

/// Returns one group of all domains if they have separate CPUs. Otherwise returns the host with
/// each other domain in turn, and a finding for each pair that never runs at once.
fn groups(domains: &[EvaluatedDomain]) -> (Vec<TransferGroup>, Vec<Finding>) {
    let apart = |one: &EvaluatedDomain, other: &EvaluatedDomain| {
        !one.cpus.is_empty()
            && !other.cpus.is_empty()
            && one.cpus.intersection(&other.cpus).is_empty()
    };
    let group = |members: &[&EvaluatedDomain]| TransferGroup {
        participants: members
            .iter()
            .map(|domain| Participant {
                domain: domain.name.clone(),
                cpus: domain.cpus.clone(),
            })
            .collect(),
        disturbances: Vec::new(),
    };
    let pairs = || {
        domains
            .iter()
            .enumerate()
            .flat_map(|(index, one)| domains[index + 1..].iter().map(move |other| (one, other)))
    };
    if domains.len() >= 2 && pairs().all(|(one, other)| apart(one, other)) {
        return (vec![group(&domains.iter().collect::<Vec<_>>())], Vec::new());
    }
    let (mut groups, mut findings) = (Vec::new(), Vec::new());
    for (one, other) in pairs() {
        let with_host =
            one.selection.kind.is_housekeeping() || other.selection.kind.is_housekeeping();
        if with_host && apart(one, other) {
            groups.push(group(&[one, other]));
            continue;
        }
        findings.push(
            Finding::new(
                Severity::Note,
                format!("{} and {}", one.name, other.name),
                "they share CPUs, so that they are never up at the same time and cannot be watched while the other is disturbed",
            )
            .values(
                format!("{} and {}", one.cpus.named(), other.cpus.named()),
                "real-time CPUs of its own for each domain",
            )
            .fix("give more real-time CPUs with --cpus, or measure fewer domains"),
        );
    }
    (groups, findings)
}

/// Returns all possible disturbances of a group: blocks and loads in each domain, and blocks under
/// guests.
fn possible(group: &TransferGroup, domains: &[EvaluatedDomain]) -> Vec<Disturbance> {
    let kinds = std::iter::once(DisturbanceKind::Block).chain(
        LoadKind::ALL
            .into_iter()
            .filter(|load| *load != LoadKind::Idle)
            .map(DisturbanceKind::Load),
    );
    let mut all = Vec::new();
    for kind in kinds {
        for participant in &group.participants {
            let kind_of_domain = domains
                .iter()
                .find(|domain| domain.name == participant.domain)
                .map(|domain| domain.selection.kind);
            let is_above_host = kind_of_domain.is_some_and(DomainKind::is_above_host);
            let is_image =
                kind_of_domain.is_some_and(|kind| kind.program() == DomainProgram::Image);
            let meters_own = match kind {
                DisturbanceKind::Block => true,
                DisturbanceKind::Load(load) => METERS_OWN.contains(&load),
            };
            if is_image && !meters_own {
                // Such a domain has only the meter, without files.
                continue;
            }
            let mut add = |side| {
                all.push(Disturbance {
                    kind,
                    side,
                    domain: participant.domain.clone(),
                });
            };
            add(Side::Inside);
            if is_above_host && kind == DisturbanceKind::Block {
                add(Side::Under);
            }
        }
    }
    all
}

/// Checks that each requested disturbance belongs to a measured domain.
fn check_requested(
    requested: &[DisturbanceRequest],
    groups: &[TransferGroup],
    domains: &[EvaluatedDomain],
) -> Result<(), EvaluateError> {
    for entry in requested {
        let DisturbanceRequest::One(one) = entry else {
            continue;
        };
        let known = groups.iter().any(|group| group.disturbances.contains(one));
        if !known {
            let mut possible: Vec<String> = groups
                .iter()
                .flat_map(|group| possible(group, domains))
                .filter(|other| other.kind == one.kind)
                .map(|other| other.to_string())
                .collect();
            // The host is in every pair and appears repeatedly.
            possible.sort_unstable();
            possible.dedup();
            return Err(EvaluateError::NoSuchDisturbance {
                asked: one.to_string(),
                possible,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::round_time::USUAL_BLOCK_ROUND;
    use rampart_model::DomainSelection;

    fn domain(name: &str, kind: DomainKind, cpus: &str) -> EvaluatedDomain {
        EvaluatedDomain {
            policy: None,
            deadline: None,
            name: name.to_owned(),
            selection: DomainSelection::of(kind),
            cpus: cpus.parse().expect("CPUs"),
            description: String::new(),
        }
    }

    fn planned(
        domains: &[EvaluatedDomain],
        requested: &[&str],
        seconds: u64,
    ) -> Result<Planned, EvaluateError> {
        let explicit = !requested.is_empty();
        let requested: Vec<DisturbanceRequest> = if explicit {
            requested
                .iter()
                .map(|entry| entry.parse().expect("a request"))
                .collect()
        } else {
            DisturbanceRequest::usual(&MeasuringCosts::REAL)
        };
        plan(&TransferRequest {
            domains,
            requested: &requested,
            explicit,
            interval: Nanos::from_micros(500),
            policy: SchedulingPolicy::Fifo(80),
            costs: &MeasuringCosts::REAL,
            // Two fifths of the total are for disturbances.
            total: Nanos::from_millis(2500 * seconds),
            entries: 1,
            matrix: Nanos::SECOND,
        })
    }

    fn words(group: &TransferGroup) -> Vec<String> {
        group.disturbances.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plans_one_group_if_all_domains_have_cpus() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
            domain("vm", DomainKind::Vm, "2"),
        ];
        let Ok(Planned::Transfers { plan, left_out }) = planned(&domains, &[], 300) else {
            panic!("planned");
        };
        assert!(left_out.is_empty() && plan.findings.is_empty());
        assert_eq!(plan.groups.len(), 1);
        let all = words(&plan.groups[0]);
        let once = ["block:host", "block:task", "block:vm", "block:under:vm"];
        for word in once {
            assert_eq!(all.iter().filter(|one| *one == word).count(), 1, "{word}");
        }
        for word in ["cpu:host", "cache:task", "cache:vm"] {
            assert_eq!(all.iter().filter(|one| *one == word).count(), 3, "{word}");
        }
        assert_eq!(plan.shortest_block, Nanos::from_millis(5));
    }

    #[test]
    fn pairs_the_host_with_each_domain_on_one_real_time_cpu() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
            domain("container", DomainKind::Container, "1"),
        ];
        let Ok(Planned::Transfers { plan, .. }) = planned(&domains, &["block"], 60) else {
            panic!("planned");
        };
        let groups: Vec<Vec<String>> = plan.groups.iter().map(words).collect();
        assert_eq!(
            groups,
            [
                ["block:host", "block:task"],
                ["block:host", "block:container"]
            ]
        );
        assert_eq!(plan.findings.len(), 1);
        assert_eq!(plan.findings[0].location, "task and container");
    }

    #[test]
    fn leaves_out_loads_before_blocks_if_time_is_short() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
        ];
        let Ok(Planned::Transfers { plan, left_out }) = planned(&domains, &[], 20) else {
            panic!("planned");
        };
        assert_eq!(words(&plan.groups[0]), ["block:host", "block:task"]);
        let names: Vec<String> = left_out.iter().map(|(load, _)| load.to_string()).collect();
        assert_eq!(names, ["cpu:host", "cpu:task", "cache:host", "cache:task"]);
        assert!(matches!(planned(&domains, &[], 5), Ok(Planned::Nothing(_))));
        let refused = planned(&domains, &["block", "cpu"], 20).expect_err("asked for");
        assert!(refused.to_string().contains("fix: --for 77s"), "{refused}");
    }

    #[test]
    fn keeps_the_budget() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
            domain("container", DomainKind::Container, "2"),
            domain("vm", DomainKind::Vm, "3"),
        ];
        for seconds in (5..2000).step_by(7) {
            let Ok(Planned::Transfers { plan, .. }) = planned(&domains, &[], seconds) else {
                continue;
            };
            let rounds = plan.groups[0].disturbances.len() as u64;
            let used = (plan.loaded.max(USUAL_BLOCK_ROUND) + MeasuringCosts::REAL.round_overhead).0
                * 5
                + (plan.loaded + MeasuringCosts::REAL.round_overhead).0 * (rounds - 5)
                + (plan.quiet + MeasuringCosts::REAL.round_overhead).0;
            assert!(used <= Nanos::from_secs(seconds).0, "{seconds} s");
        }
    }

    #[test]
    fn repeats_every_disturbance_with_more_time() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
        ];
        let rounds = |seconds| {
            let Ok(Planned::Transfers { plan, .. }) = planned(&domains, &[], seconds) else {
                panic!("planned");
            };
            let all = words(&plan.groups[0]);
            ["block:task", "cpu:host"].map(|name| all.iter().filter(|one| *one == name).count())
        };
        assert_eq!(rounds(120), [1, 3]);
        let [blocks, loads] = rounds(1200);
        assert!(blocks > 3 && loads > 3, "{blocks} {loads}");
        assert_eq!(rounds(86_400), [30, 30]);
    }

    #[test]
    fn refuses_impossible_disturbances_and_lists_possible_ones() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
        ];
        for entry in ["block:under:task", "block:vm"] {
            let refused = planned(&domains, &[entry], 60)
                .expect_err(entry)
                .to_string();
            assert!(
                refused.contains(entry) && refused.contains("block:host, block:task"),
                "{refused}"
            );
        }
        let in_pairs = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
            domain("container", DomainKind::Container, "1"),
        ];
        let refused = planned(&in_pairs, &["block:vm"], 60).expect_err("no vm");
        let EvaluateError::NoSuchDisturbance { possible, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(possible, ["block:container", "block:host", "block:task"]);
        let alone = [domain("host", DomainKind::Host, "0")];
        assert!(matches!(
            planned(&alone, &["block"], 60),
            Ok(Planned::Nothing(_))
        ));
    }
}
