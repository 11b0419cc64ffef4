// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is disturbed, who is watched meanwhile, and how long that takes. Pure.

use std::fmt;
use std::str::FromStr;

use rampart_model::{
    CpuId, CpuSet, Disturbance, DisturbanceKind, DomainKind, DomainPlan, Finding, LoadKind,
    Machine, Nanos, ParseDisturbanceError, Participant, SchedulingPolicy, Severity, Side,
    TransferGroup, TransferPlan,
};

use crate::EvaluateError;

/// What a round costs besides its own time: walls, meters, a load, warming up. Only used to share
/// out the time.
const ROUND_OVERHEAD: Nanos = Nanos::from_millis(1300);
/// The same on an emulated machine, where starting a program takes a second.
const EMULATED_ROUND_OVERHEAD: Nanos = Nanos::from_secs(5);
/// The quiet round from whose worst latency the length of the blocks follows.
const SHORTEST_QUIET: Nanos = Nanos::from_secs(2);
const LONGEST_QUIET: Nanos = Nanos::from_secs(10);
/// A round under a load, or of blocks: shorter ones would show no tail, or too few blocks.
const SHORTEST_ROUND: Nanos = Nanos::from_secs(2);
const LONGEST_ROUND: Nanos = Nanos::from_secs(10);
/// A round of blocks takes as long as enough of them need, which is not known before the quiet
/// round; this much is set aside.
const USUAL_BLOCK_ROUND: Nanos = Nanos::from_secs(5);
/// Rounds of one load: two are the fewest that tell how rounds differ, three tell it better.
const REPETITIONS: [usize; 2] = [3, 2];
/// Blocks in a round, where the time is enough for so many.
const BLOCKS: u32 = 40;
/// There blocks last a tenth of a second and more, and the pauses between them with them.
const EMULATED_BLOCKS: u32 = 20;
/// A tenth of a block, up to which a wall counts as holding, is then half of the worst quiet
/// latency.
const BLOCK_FACTOR: u32 = 5;
/// There a stopped CPU takes time from the others, which should stay small beside a block.
const EMULATED_BLOCK_FACTOR: u32 = 10;
/// In periods of the meter: the part of a period that has passed when a block begins is missing
/// from what the meter sees of it.
const SHORTEST_BLOCK_PERIODS: u64 = 10;

/// One entry of the wish for disturbances: `none`, `block`, `cache`, `block:host`,
/// `block:under:vm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisturbanceWish {
    /// None at all.
    Nothing,
    /// This, in every domain; for blocks also under each guest.
    Every(DisturbanceKind),
    /// This one alone.
    One(Disturbance),
}

impl FromStr for DisturbanceWish {
    type Err = ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::Nothing);
        }
        match text.parse::<DisturbanceKind>() {
            Ok(kind) => Ok(Self::Every(kind)),
            Err(_) => text.parse().map(Self::One),
        }
    }
}

impl fmt::Display for DisturbanceWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.pad("none"),
            Self::Every(kind) => kind.fmt(f),
            Self::One(disturbance) => disturbance.fmt(f),
        }
    }
}

impl DisturbanceWish {
    /// What is done without being asked for: blocks, and the two loads that reach through what
    /// domains share. On an emulated machine, where loads say little, one of them.
    #[must_use]
    pub fn usual(emulated: bool) -> Vec<Self> {
        let all = [
            DisturbanceKind::Block,
            DisturbanceKind::Load(LoadKind::Cache),
            DisturbanceKind::Load(LoadKind::Cpu),
        ];
        let kept = if emulated { 2 } else { all.len() };
        all.into_iter().take(kept).map(Self::Every).collect()
    }

    fn wants(&self, disturbance: &Disturbance) -> bool {
        match self {
            Self::Nothing => false,
            Self::Every(kind) => *kind == disturbance.kind,
            Self::One(one) => one == disturbance,
        }
    }
}

/// Real-time CPUs for each of `count` domains, none of them two domains': whole cores where there
/// are enough, otherwise single CPUs, with a finding. All get equally many. None where there are
/// fewer CPUs than domains.
pub(crate) fn own_cpus(
    machine: &Machine,
    real_time: &CpuSet,
    count: usize,
) -> Option<(Vec<CpuSet>, Option<Finding>)> {
    let mut cores: Vec<CpuSet> = Vec::new();
    for cpu in real_time.iter() {
        if cores.iter().any(|core| core.iter().any(|one| one == cpu)) {
            continue;
        }
        cores.push(core_of(machine, cpu).intersection(real_time));
    }
    if count == 0 || real_time.len() < count {
        return None;
    }
    let (units, finding) = if cores.len() >= count {
        (cores, None)
    } else {
        let finding = Finding::new(
            Severity::Warning,
            "cpus",
            "domains have siblings of one core, and disturb each other through what the core shares",
        )
        .values(
            format!("{} real-time cores", cores.len()),
            format!("{count}, one for each domain"),
        )
        .mend("give more cores with --cpus");
        (
            real_time.iter().map(CpuSet::single).collect(),
            Some(finding),
        )
    };
    let each = units.len() / count;
    let shares = units
        .chunks(each)
        .take(count)
        .map(|units| units.iter().fold(CpuSet::new(), |all, one| all.union(one)))
        .collect();
    Some((shares, finding))
}

/// A CPU with its siblings.
pub(crate) fn core_of(machine: &Machine, cpu: CpuId) -> CpuSet {
    machine
        .topology
        .cpus
        .iter()
        .find(|candidate| candidate.id == cpu)
        .map(|known| known.siblings.union(&CpuSet::single(cpu)))
        .unwrap_or_else(|| CpuSet::single(cpu))
}

/// What transfers are planned from.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) domains: &'a [DomainPlan],
    pub(crate) wishes: &'a [DisturbanceWish],
    /// Whether the user wrote the wishes, who is then told what is senseless about them.
    pub(crate) explicit: bool,
    pub(crate) interval: Nanos,
    pub(crate) policy: SchedulingPolicy,
    /// The time that may be used.
    pub(crate) budget: Nanos,
    /// Whether the machine is emulated: everything but the measured time takes longer there.
    pub(crate) emulated: bool,
}

impl Wanted<'_> {
    const fn overhead(&self) -> Nanos {
        if self.emulated {
            EMULATED_ROUND_OVERHEAD
        } else {
            ROUND_OVERHEAD
        }
    }
}

/// What was planned.
#[derive(Debug)]
pub(crate) enum Planned {
    Transfers {
        plan: TransferPlan,
        /// Loads for which the time was not enough.
        left_out: Vec<(String, Finding)>,
    },
    /// Nothing can be measured; the reason.
    Nothing(Finding),
}

/// Plans who is disturbed and who is watched.
///
/// # Errors
/// If a disturbance that the user named has no domain here, or the user's wish takes longer than
/// the budget.
pub(crate) fn plan(wanted: &Wanted<'_>) -> Result<Planned, EvaluateError> {
    let (mut groups, findings) = groups(wanted.domains);
    if groups.is_empty() {
        return Ok(Planned::Nothing(
            Finding::new(
                Severity::Note,
                "disturbances",
                "no two domains have CPUs of their own at the same time, so none can be watched while another is disturbed",
            )
            .values(
                format!("{} domain(s) on CPU {}", wanted.domains.len(), cpus_of(wanted.domains)),
                "two domains, each with a CPU of its own",
            )
            .mend("name more domains, or give more real-time CPUs with --cpus"),
        ));
    }
    for group in &mut groups {
        group.disturbances = possible(group, wanted.domains)
            .into_iter()
            .filter(|one| wanted.wishes.iter().any(|wish| wish.wants(one)))
            .collect();
    }
    if wanted.explicit {
        check_wishes(wanted.wishes, &groups, wanted.domains)?;
    }
    let is_block = |one: &Disturbance| one.kind == DisturbanceKind::Block;
    let blocks = count(&groups, is_block);
    let loads = count(&groups, |one| !is_block(one));
    let mut left_out = Vec::new();
    let shared = Times::share(
        wanted.budget,
        groups.len(),
        blocks,
        loads,
        wanted.overhead(),
    );
    let times =
        match shared {
            Some(times) => times,
            None if wanted.explicit || blocks == 0 => {
                return too_short(wanted, groups.len(), blocks, loads);
            }
            None => {
                // Blocks tell more in less time, and only they can say that a wall holds.
                let Some(times) =
                    Times::share(wanted.budget, groups.len(), blocks, 0, wanted.overhead())
                else {
                    return too_short(wanted, groups.len(), blocks, 0);
                };
                let needed = Times::least(groups.len(), blocks, loads, wanted.overhead());
                let mut named: Vec<String> = Vec::new();
                for group in &mut groups {
                    for load in group.disturbances.iter().filter(|one| !is_block(one)) {
                        let name = load.to_string();
                        if !named.contains(&name) {
                            named.push(name);
                        }
                    }
                    group.disturbances.retain(is_block);
                }
                left_out.extend(named.into_iter().map(|name| {
                    let finding = Finding::new(
                    Severity::Note,
                    name.as_str(),
                    "the time is not enough for loads in one domain while the others are watched",
                )
                .values(wanted.budget.to_string(), format!("{needed} for disturbances"))
                .mend(format!("rampart evaluate --for {}", Nanos(needed.0 * 2)));
                    (name, finding)
                }));
                times
            }
        };
    for group in &mut groups {
        let loads: Vec<Disturbance> = group
            .disturbances
            .iter()
            .filter(|one| !is_block(one))
            .cloned()
            .collect();
        for _ in 1..times.repetitions {
            group.disturbances.extend(loads.iter().cloned());
        }
    }
    groups.retain(|group| !group.disturbances.is_empty());
    Ok(Planned::Transfers {
        plan: TransferPlan {
            groups,
            interval: wanted.interval,
            policy: wanted.policy,
            quiet: times.quiet,
            loaded: times.round,
            blocks: if wanted.emulated {
                EMULATED_BLOCKS
            } else {
                BLOCKS
            },
            block_factor: if wanted.emulated {
                EMULATED_BLOCK_FACTOR
            } else {
                BLOCK_FACTOR
            },
            shortest_block: Nanos(wanted.interval.0.saturating_mul(SHORTEST_BLOCK_PERIODS)),
            findings,
        },
        left_out,
    })
}

fn too_short(
    wanted: &Wanted<'_>,
    groups: usize,
    blocks: usize,
    loads: usize,
) -> Result<Planned, EvaluateError> {
    let needed = Times::least(groups, blocks, loads, wanted.overhead());
    if wanted.explicit {
        return Err(EvaluateError::TooShortForDisturbances {
            budget: wanted.budget,
            rounds: (blocks + loads) as u64,
            needed,
        });
    }
    Ok(Planned::Nothing(
        Finding::new(
            Severity::Note,
            "disturbances",
            "the time is not enough to disturb one domain while the others are watched",
        )
        .values(wanted.budget.to_string(), needed.to_string())
        .mend(format!(
            "rampart evaluate --for {}",
            Nanos(needed.0.saturating_mul(2))
        )),
    ))
}

fn count(groups: &[TransferGroup], of: impl Fn(&Disturbance) -> bool) -> usize {
    groups
        .iter()
        .flat_map(|group| &group.disturbances)
        .filter(|one| of(one))
        .count()
}

fn cpus_of(domains: &[DomainPlan]) -> CpuSet {
    domains
        .iter()
        .fold(CpuSet::new(), |all, domain| all.union(&domain.cpus))
}

/// All domains at once where they have CPUs of their own; otherwise the host with each of the
/// others in turn, and a finding for each pair that is never up together.
fn groups(domains: &[DomainPlan]) -> (Vec<TransferGroup>, Vec<Finding>) {
    let apart = |one: &DomainPlan, other: &DomainPlan| {
        !one.cpus.is_empty()
            && !other.cpus.is_empty()
            && one.cpus.intersection(&other.cpus).is_empty()
    };
    let group = |members: &[&DomainPlan]| TransferGroup {
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
            .flat_map(|(place, one)| domains[place + 1..].iter().map(move |other| (one, other)))
    };
    if domains.len() >= 2 && pairs().all(|(one, other)| apart(one, other)) {
        return (vec![group(&domains.iter().collect::<Vec<_>>())], Vec::new());
    }
    let (mut groups, mut findings) = (Vec::new(), Vec::new());
    for (one, other) in pairs() {
        let with_host =
            one.selection.kind == DomainKind::Host || other.selection.kind == DomainKind::Host;
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
                format!("CPU {} and CPU {}", one.cpus, other.cpus),
                "real-time CPUs of its own for each domain",
            )
            .mend("give more real-time CPUs with --cpus, or measure fewer domains"),
        );
    }
    (groups, findings)
}

/// Everything that can be done to a group: blocks and loads in each, and blocks under guests.
fn possible(group: &TransferGroup, domains: &[DomainPlan]) -> Vec<Disturbance> {
    let kinds = std::iter::once(DisturbanceKind::Block).chain(
        LoadKind::ALL
            .into_iter()
            .filter(|load| *load != LoadKind::Idle)
            .map(DisturbanceKind::Load),
    );
    let mut all = Vec::new();
    for kind in kinds {
        for participant in &group.participants {
            let is_guest = domains.iter().any(|domain| {
                domain.name == participant.domain && domain.selection.kind == DomainKind::Vm
            });
            let mut add = |side| {
                all.push(Disturbance {
                    kind,
                    side,
                    domain: participant.domain.clone(),
                });
            };
            add(Side::Inside);
            if is_guest && kind == DisturbanceKind::Block {
                add(Side::Under);
            }
        }
    }
    all
}

/// A disturbance that the user named must be of a domain that is there.
fn check_wishes(
    wishes: &[DisturbanceWish],
    groups: &[TransferGroup],
    domains: &[DomainPlan],
) -> Result<(), EvaluateError> {
    for wish in wishes {
        let DisturbanceWish::One(one) = wish else {
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
            possible.dedup();
            return Err(EvaluateError::NoSuchDisturbance {
                asked: one.to_string(),
                possible,
            });
        }
    }
    Ok(())
}

/// How the time is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    quiet: Nanos,
    round: Nanos,
    /// How often each load comes.
    repetitions: usize,
    /// What a round costs besides.
    overhead: Nanos,
}

impl Times {
    fn needed(&self, groups: usize, blocks: usize, loads: usize) -> Nanos {
        let with_overhead =
            |time: Nanos, rounds: usize| Nanos((time + self.overhead).0 * rounds as u64);
        // Under loads each repetition has a quiet round too; the first is the one before.
        let quiet_beside = if loads > 0 {
            groups * (self.repetitions - 1)
        } else {
            0
        };
        with_overhead(self.quiet, groups)
            + with_overhead(self.round.max(USUAL_BLOCK_ROUND), blocks)
            + with_overhead(self.round, loads * self.repetitions + quiet_beside)
    }

    fn shortest(repetitions: usize, overhead: Nanos) -> Self {
        Self {
            overhead,
            quiet: SHORTEST_QUIET,
            round: SHORTEST_ROUND,
            repetitions,
        }
    }

    /// The least time that would do.
    fn least(groups: usize, blocks: usize, loads: usize, overhead: Nanos) -> Nanos {
        let fewest = REPETITIONS.into_iter().min().unwrap_or(1);
        Self::shortest(fewest, overhead).needed(groups, blocks, loads)
    }

    /// The most repetitions that fit, then the longest rounds.
    fn share(
        budget: Nanos,
        groups: usize,
        blocks: usize,
        loads: usize,
        overhead: Nanos,
    ) -> Option<Self> {
        let fits = |times: &Self| times.needed(groups, blocks, loads) <= budget;
        let mut times = REPETITIONS
            .into_iter()
            .map(|repetitions| Self::shortest(repetitions, overhead))
            .find(|times| fits(times))?;
        let step = Nanos::from_millis(500);
        loop {
            let longer = Self {
                quiet: (times.quiet + step).min(LONGEST_QUIET),
                round: (times.round + step).min(LONGEST_ROUND),
                ..times
            };
            if longer == times || !fits(&longer) {
                return Some(times);
            }
            times = longer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::DomainSelection;

    fn domain(name: &str, kind: DomainKind, cpus: &str) -> DomainPlan {
        DomainPlan {
            name: name.to_owned(),
            selection: DomainSelection::of(kind),
            cpus: cpus.parse().expect("CPUs"),
            description: String::new(),
        }
    }

    fn planned(
        domains: &[DomainPlan],
        wishes: &[&str],
        seconds: u64,
    ) -> Result<Planned, EvaluateError> {
        let explicit = !wishes.is_empty();
        let wishes: Vec<DisturbanceWish> = if explicit {
            wishes
                .iter()
                .map(|wish| wish.parse().expect("a wish"))
                .collect()
        } else {
            DisturbanceWish::usual(false)
        };
        plan(&Wanted {
            domains,
            wishes: &wishes,
            explicit,
            interval: Nanos::from_micros(500),
            policy: SchedulingPolicy::Fifo(80),
            emulated: false,
            budget: Nanos::from_secs(seconds),
        })
    }

    fn words(group: &TransferGroup) -> Vec<String> {
        group.disturbances.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn with_cpus_for_all_there_is_one_group_and_every_pair() {
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
    fn with_one_real_time_cpu_the_host_is_paired_with_each_and_the_rest_is_named() {
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
        assert_eq!(plan.findings[0].place, "task and container");
    }

    #[test]
    fn loads_give_way_when_the_time_is_short_and_blocks_last() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
        ];
        let Ok(Planned::Transfers { plan, left_out }) = planned(&domains, &[], 20) else {
            panic!("planned");
        };
        assert_eq!(words(&plan.groups[0]), ["block:host", "block:task"]);
        let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cpu:host", "cpu:task", "cache:host", "cache:task"]);
        assert!(matches!(planned(&domains, &[], 5), Ok(Planned::Nothing(_))));
        let refused = planned(&domains, &["block", "cpu"], 20).expect_err("asked for");
        assert!(refused.to_string().contains("give more time"), "{refused}");
    }

    #[test]
    fn the_budget_is_kept() {
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
            let used = (plan.loaded.max(USUAL_BLOCK_ROUND) + ROUND_OVERHEAD).0 * 5
                + (plan.loaded + ROUND_OVERHEAD).0 * (rounds - 5)
                + (plan.quiet + ROUND_OVERHEAD).0;
            assert!(used <= Nanos::from_secs(seconds).0, "{seconds} s");
        }
    }

    #[test]
    fn what_cannot_be_disturbed_is_refused_with_what_can() {
        let domains = [
            domain("host", DomainKind::Host, "0"),
            domain("task", DomainKind::Task, "1"),
        ];
        for wish in ["block:under:task", "block:vm"] {
            let refused = planned(&domains, &[wish], 60).expect_err(wish).to_string();
            assert!(
                refused.contains(wish) && refused.contains("block:host, block:task"),
                "{refused}"
            );
        }
        let alone = [domain("host", DomainKind::Host, "0")];
        assert!(matches!(
            planned(&alone, &["block"], 60),
            Ok(Planned::Nothing(_))
        ));
    }

    #[test]
    fn wishes_read_as_they_are_written() {
        for text in ["none", "block", "cache", "block:under:vm", "io:container"] {
            let wish: DisturbanceWish = text.parse().expect(text);
            assert_eq!(wish.to_string(), text);
        }
        for text in ["", "idle", "gpu", "block:"] {
            assert!(text.parse::<DisturbanceWish>().is_err(), "{text}");
        }
    }
}
