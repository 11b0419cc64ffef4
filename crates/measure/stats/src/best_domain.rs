// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The best domain of an evaluation: a choice from its verdicts.
//!
//! All measured domains are candidates. The criteria are applied in the order of [`Criterion`]. Each
//! rules out the candidates that another candidate is *shown* to be better than: by a verdict that
//! holds where the other's fails or leaks, or by an interval that lies beyond the other's by more than
//! the tolerance. A difference of two maxima shows nothing, so maxima decide nothing. If several
//! candidates remain, no difference between them was shown.
//!
//! On an emulated machine no time counts: there only blocks and a crash of the host decide.

use rampart_model::{
    Answers, Bench, Condition, DisturbanceKind, Evaluation, Interval, MeterKind, Question, Verdict,
    VerdictFigures, VerdictOutcome,
};

/// The highest quantile that decides. Higher quantiles are compared from a few runs on only.
const HIGHEST_QUANTILE: f64 = 0.99;

/// A property by which domains are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// It meets the deadline that the user set.
    Deadline,
    /// Its latency under the loads, or idle if no load was measured.
    Latency,
    /// Loads and blocks elsewhere do not reach it.
    Isolation,
    /// It survives a crash of the host.
    Crash,
}

/// The best domains of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestDomain<'a> {
    /// The domains that no other is shown to be better than, in the order of the settings.
    pub domains: Vec<&'a str>,
    /// The other measured domains, with the criterion that ruled each out.
    pub ruled_out: Vec<(&'a str, Criterion)>,
    /// Whether only the structure of the domains was compared, because times are emulated.
    pub by_structure: bool,
}

/// Returns the best domains, or `None` if no domain was measured.
#[must_use]
pub fn best_domain(evaluation: &Evaluation) -> Option<BestDomain<'_>> {
    let emulated =
        evaluation.machine.virtualisation.emulated || matches!(evaluation.bench, Bench::Sim { .. });
    let choice = Choice {
        evaluation,
        meter: evaluation.settings.meters.first()?.meter,
    };
    let names = || {
        evaluation
            .settings
            .domains
            .iter()
            .map(|of| of.name.as_str())
    };
    let mut domains: Vec<&str> = names().filter(|name| choice.is_measured(name)).collect();
    // Times of an emulated domain compare with none of the others.
    let real = |name: &&str| !choice.is_emulated(name);
    if !emulated && domains.iter().any(real) {
        domains.retain(real);
    }
    if domains.is_empty() {
        return None;
    }
    let by_structure = emulated || !domains.iter().any(real);
    let mut ruled_out = Vec::new();
    let criteria: &[Criterion] = if by_structure {
        &[Criterion::Isolation, Criterion::Crash]
    } else {
        &[
            Criterion::Deadline,
            Criterion::Latency,
            Criterion::Isolation,
            Criterion::Crash,
        ]
    };
    for criterion in criteria {
        let is_better = |one: &str, other: &str| match criterion {
            Criterion::Deadline => choice.meets_deadline(one, other),
            Criterion::Latency => choice.is_faster(one, other),
            Criterion::Isolation => choice.is_isolated(one, other, by_structure),
            Criterion::Crash => choice.survives(one, other),
        };
        let (worse, remaining): (Vec<&str>, Vec<&str>) = domains
            .iter()
            .partition(|domain| domains.iter().any(|other| is_better(other, domain)));
        // Different conditions may favour different domains in a circle, which decides nothing.
        if !remaining.is_empty() {
            domains = remaining;
            ruled_out.extend(worse.into_iter().map(|domain| (domain, *criterion)));
        }
    }
    Some(BestDomain {
        domains,
        ruled_out,
        by_structure,
    })
}

/// The verdicts that decide, those of the first meter.
struct Choice<'a> {
    evaluation: &'a Evaluation,
    meter: MeterKind,
}

impl<'a> Choice<'a> {
    fn is_measured(&self, domain: &str) -> bool {
        let of_matrix = self.evaluation.records.iter().any(|record| {
            record.domain == domain
                && record.settings.meter == self.meter
                && record.exposure.runs > 0
        });
        of_matrix
            || self
                .verdicts(domain, Question::Transfer)
                .any(|verdict| verdict.figures.is_some())
    }

    fn is_emulated(&self, domain: &str) -> bool {
        let mut records = self.evaluation.records.iter();
        records.any(|record| record.domain == domain && record.emulated)
    }

    fn verdicts(&self, domain: &str, question: Question) -> impl Iterator<Item = &'a Verdict> {
        let meter = self.meter;
        let verdicts = self.evaluation.verdicts.iter();
        verdicts.filter(move |verdict| {
            verdict.domain == domain && verdict.question == question && verdict.meter == meter
        })
    }

    /// Returns whether one domain meets its deadline everywhere and the other misses its own. Only
    /// deadlines that the user set count.
    fn meets_deadline(&self, one: &str, other: &str) -> bool {
        let settings = &self.evaluation.settings;
        settings.deadline_is_named(one)
            && settings.deadline_is_named(other)
            && all_hold(self.verdicts(one, Question::Deadline))
            && self.verdicts(other, Question::Deadline).any(is_negative)
    }

    /// Returns whether the latency of one domain is lower under some condition and higher under
    /// none.
    fn is_faster(&self, one: &str, other: &str) -> bool {
        let conditions = &self.evaluation.settings.conditions;
        let loaded: Vec<Condition> = conditions
            .iter()
            .copied()
            .filter(|condition| *condition != Condition::IDLE)
            .collect();
        let conditions = if loaded.is_empty() {
            vec![Condition::IDLE]
        } else {
            loaded
        };
        conditions.iter().any(|of| self.is_lower(one, other, *of))
            && !conditions.iter().any(|of| self.is_lower(other, one, *of))
    }

    /// Returns whether the latency of one domain is lower under a condition: its ratio to the host
    /// is lower, or it is as good as the host and the other has a longer tail or more stalls, or the
    /// other is the host and has more stalls.
    fn is_lower(&self, one: &str, other: &str, condition: Condition) -> bool {
        let by_ratio = match (self.to_host(one, condition), self.to_host(other, condition)) {
            (Some((one, allowed)), Some((other, also))) => other.low > one.high * allowed.max(also),
            _ => false,
        };
        let holds = |domain: &str| {
            let verdict = self.same_as_host(domain, condition);
            self.is_host(domain) || verdict.is_some_and(|of| of.outcome == VerdictOutcome::Holds)
        };
        let verdict = |domain: &str| self.same_as_host(domain, condition);
        by_ratio
            || holds(one) && verdict(other).is_some_and(is_worse)
            || self.is_host(other) && verdict(one).is_some_and(has_fewer_stalls)
    }

    fn is_host(&self, domain: &str) -> bool {
        let kind = self.evaluation.kind_of(domain);
        kind.is_some_and(|kind| kind.is_housekeeping())
    }

    fn same_as_host(&self, domain: &str, condition: Condition) -> Option<&'a Verdict> {
        let mut verdicts = self.verdicts(domain, Question::SameAsHost);
        verdicts.find(|verdict| verdict.condition == condition)
    }

    /// Returns the latency of a domain under a condition divided by that of the host, and the
    /// tolerated ratio. The host itself is 1.
    fn to_host(&self, domain: &str, condition: Condition) -> Option<(Interval, f64)> {
        if self.is_host(domain) {
            let host = Interval {
                estimate: 1.0,
                low: 1.0,
                high: 1.0,
                confidence: 1.0,
            };
            return Some((host, 1.0));
        }
        ratio_to_host(self.same_as_host(domain, condition)?)
    }

    /// Returns whether nothing reaches one domain and something reaches the other. By structure, the
    /// ordinary work of the machine reaches the host.
    fn is_isolated(&self, one: &str, other: &str, by_structure: bool) -> bool {
        let is_shared = |domain: &str| by_structure && self.is_host(domain);
        let from_outside = |domain| self.verdicts_from_outside(domain, by_structure);
        !is_shared(one)
            && all_hold(from_outside(one))
            && (is_shared(other) || from_outside(other).any(is_negative))
    }

    /// Returns the verdicts on loads and blocks in other domains; with `by_structure` only those on
    /// blocks. A block of the host's kernel under a guest does not count: the same block stops a task
    /// as well, as a block of its own.
    fn verdicts_from_outside(
        &self,
        domain: &str,
        by_structure: bool,
    ) -> impl Iterator<Item = &'a Verdict> {
        self.verdicts(domain, Question::Interference)
            .chain(self.verdicts(domain, Question::Transfer))
            .filter(move |verdict| match &verdict.disturbance {
                None => !by_structure,
                Some(by) => {
                    by.domain != verdict.domain
                        && (!by_structure || by.kind == DisturbanceKind::Block)
                }
            })
    }

    fn survives(&self, one: &str, other: &str) -> bool {
        all_hold(self.verdicts(one, Question::Crash))
            && self.verdicts(other, Question::Crash).any(is_negative)
    }
}

/// Returns whether there are verdicts, and all hold.
fn all_hold<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> bool {
    let mut verdicts = verdicts.peekable();
    verdicts.peek().is_some() && verdicts.all(|verdict| verdict.outcome == VerdictOutcome::Holds)
}

fn is_negative(verdict: &Verdict) -> bool {
    matches!(
        verdict.outcome,
        VerdictOutcome::Fails | VerdictOutcome::Leaks
    )
}

/// Returns whether a domain is worse than the host by more than its typical latency. A CPU that is
/// never idle, because other programs keep it busy, wakes sooner in the typical case, and later in the
/// worst ones.
fn is_worse(verdict: &Verdict) -> bool {
    let fails = |outcome: VerdictOutcome| outcome == VerdictOutcome::Fails;
    let beyond_typical = |answers: &Answers| {
        let mut quantiles = answers.quantiles.iter();
        quantiles.any(|answer| answer.quantile > 0.5 && fails(answer.outcome))
            || answers.stalls.iter().any(|answer| fails(answer.outcome))
            || answers.stolen.is_some_and(|answer| fails(answer.outcome))
    };
    let answers = verdict.figures.as_ref().and_then(VerdictFigures::answers);
    fails(verdict.outcome) && answers.is_none_or(beyond_typical)
}

/// Returns whether a domain is shown to have fewer stalls of some length than the host.
fn has_fewer_stalls(verdict: &Verdict) -> bool {
    let answers = verdict.figures.as_ref().and_then(VerdictFigures::answers);
    answers.is_some_and(|answers| {
        let mut stalls = answers.stalls.iter();
        stalls.any(|stalls| stalls.outcome == VerdictOutcome::Holds && stalls.fewer)
    })
}

/// Returns the ratio domain ÷ host that decides, and the tolerated ratio; `None` if the answer on it is
/// open.
fn ratio_to_host(verdict: &Verdict) -> Option<(Interval, f64)> {
    let Some(VerdictFigures::SameAsHost {
        ratios,
        tolerance,
        answers,
        ..
    }) = &verdict.figures
    else {
        return None;
    };
    let is_open = |quantile: f64| {
        let answer = answers.as_ref().and_then(|all| all.on_quantile(quantile));
        answer == Some(VerdictOutcome::Inconclusive)
    };
    let decides = ratios
        .iter()
        .filter(|(quantile, _)| *quantile <= HIGHEST_QUANTILE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .filter(|(quantile, _)| !is_open(*quantile))?;
    Some((decides.1, *tolerance))
}
