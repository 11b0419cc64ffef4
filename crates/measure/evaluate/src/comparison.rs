// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers at a glance: the table that OSADL's talk filled in by hand (Embedded Open Source
//! Summit 2023), with a sentence for each domain. Both rest on the leading meter's verdicts alone.

use rampart_model::{
    Comparison, ComparisonEntry, ComparisonRow, DomainKernel, EvaluatedDomain, EvaluationSettings,
    MeterKind, Question, Record, Verdict, VerdictOutcome,
};

use crate::emulated_answers;
use crate::separation::separation;
use crate::summary_sentence::sentence;

/// Fills in sentences and table. On an `emulated` machine nothing rests on a time.
pub(crate) fn compare(
    plan: &EvaluationSettings,
    records: &[Record],
    verdicts: &[Verdict],
    emulated: bool,
) -> Comparison {
    let Some(meter) = plan.meters.first().map(|meter| meter.meter) else {
        return Comparison::default();
    };
    let row =
        |question: &str, answer: &dyn Fn(&EvaluatedDomain) -> ComparisonEntry| ComparisonRow {
            question: question.to_owned(),
            cells: plan.domains.iter().map(answer).collect(),
        };
    let asked = |domain: &EvaluatedDomain, question: Question| {
        Asked::new(verdicts, &domain.name, meter, question)
    };
    let without_times = |domain: &EvaluatedDomain| {
        emulated
            || records
                .iter()
                .any(|record| record.domain == domain.name && record.emulated)
    };
    Comparison {
        sentences: plan
            .domains
            .iter()
            .map(|domain| {
                let times = !without_times(domain);
                let text = sentence(plan, domain, records, verdicts, meter, times);
                (domain.name.clone(), text)
            })
            .collect(),
        rows: vec![
            row("real-time in the domain", &|domain| {
                if without_times(domain) {
                    emulated_answers::real_time(domain, records, verdicts)
                } else {
                    real_time(domain, &asked(domain, Question::Deadline))
                }
            }),
            row("same latency as on the host", &|domain| {
                if domain.selection.kind.is_housekeeping() {
                    answered(domain, "–", None, "it is the host")
                } else if without_times(domain) {
                    let same = asked(domain, Question::SameAsHost);
                    emulated_answers::same_as_host(plan, domain, records, verdicts, &same.0)
                } else {
                    same(domain, &asked(domain, Question::SameAsHost))
                }
            }),
            row("separation", &|domain| {
                separation(plan, domain, verdicts, without_times(domain)).unwrap_or_else(|| {
                    separation_from_loads(domain, &asked(domain, Question::Interference))
                })
            }),
            row("complete independence from the host", &|domain| {
                independence(domain, verdicts)
            }),
        ],
    }
}

/// An answer that rests on no verdict.
pub(crate) fn answered(
    domain: &EvaluatedDomain,
    answer: &str,
    outcome: Option<VerdictOutcome>,
    reason: &str,
) -> ComparisonEntry {
    ComparisonEntry {
        domain: domain.name.clone(),
        answer: answer.to_owned(),
        outcome,
        reason: reason.to_owned(),
        verdicts: Vec::new(),
    }
}

/// The verdicts on one question about one domain.
pub(crate) struct Asked<'a>(pub(crate) Vec<&'a Verdict>);

impl<'a> Asked<'a> {
    pub(crate) fn new(
        verdicts: &'a [Verdict],
        domain: &str,
        meter: MeterKind,
        question: Question,
    ) -> Self {
        let asked = |verdict: &&Verdict| {
            verdict.domain == domain
                && verdict.meter == meter
                && verdict.question == question
                && verdict.disturbance.is_none()
        };
        Self(verdicts.iter().filter(asked).collect())
    }

    pub(crate) fn with(&self, outcome: VerdictOutcome) -> Vec<&'a Verdict> {
        self.0
            .iter()
            .copied()
            .filter(|verdict| verdict.outcome == outcome)
            .collect()
    }

    /// `under idle, cpu@others`
    pub(crate) fn conditions(verdicts: &[&Verdict]) -> String {
        let words: Vec<String> = verdicts
            .iter()
            .map(|verdict| verdict.condition.to_string())
            .collect();
        words.join(", ")
    }

    /// Yes if all hold, no if all fail, not always if some do, else undecided.
    fn entry(&self, domain: &EvaluatedDomain, words: &Words<'_>) -> ComparisonEntry {
        let bad: Vec<&Verdict> = [
            self.with(VerdictOutcome::Fails),
            self.with(VerdictOutcome::Leaks),
        ]
        .concat();
        let held = self.with(VerdictOutcome::Holds);
        let (answer, outcome, reason) = if self.0.is_empty() {
            (
                "not measured",
                None,
                "nothing valid was measured that would answer it".to_owned(),
            )
        } else if bad.len() == self.0.len() {
            (
                words.no.0,
                Some(words.no.1),
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if !bad.is_empty() {
            (
                words.some,
                Some(VerdictOutcome::Leaks),
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if held.len() == self.0.len() {
            (
                words.yes,
                Some(VerdictOutcome::Holds),
                format!("{} under {}", words.good, Self::conditions(&held)),
            )
        } else {
            let open = Self::conditions(&self.with(VerdictOutcome::Inconclusive));
            let so_far = if held.is_empty() {
                String::new()
            } else {
                format!("{} under {}; ", words.good, Self::conditions(&held))
            };
            (
                "not decided",
                Some(VerdictOutcome::Inconclusive),
                format!("{so_far}the exposure does not decide it under {open}; measure longer"),
            )
        };
        ComparisonEntry {
            verdicts: self.0.iter().map(|verdict| verdict.id.clone()).collect(),
            ..answered(domain, answer, outcome, &reason)
        }
    }
}

/// How one question is answered.
struct Words<'a> {
    yes: &'a str,
    some: &'a str,
    no: (&'a str, VerdictOutcome),
    good: &'a str,
    bad: &'a str,
}

fn real_time(domain: &EvaluatedDomain, asked: &Asked<'_>) -> ComparisonEntry {
    let words = Words {
        yes: "yes",
        some: "not always",
        no: ("no", VerdictOutcome::Fails),
        good: "no cycle exceeded the deadline",
        bad: "the deadline was exceeded",
    };
    asked.entry(domain, &words)
}

fn same(domain: &EvaluatedDomain, asked: &Asked<'_>) -> ComparisonEntry {
    let words = Words {
        yes: "yes",
        some: "not always",
        no: ("no", VerdictOutcome::Fails),
        good: "no quantile is worse than the host's beyond the tolerance",
        bad: "a quantile is worse than the host's",
    };
    asked.entry(domain, &words)
}

fn separation_from_loads(domain: &EvaluatedDomain, asked: &Asked<'_>) -> ComparisonEntry {
    let words = Words {
        yes: "holds",
        some: "limited",
        no: ("leaks", VerdictOutcome::Leaks),
        good: "no quantile grows beyond the tolerance",
        bad: "a quantile grows",
    };
    asked.entry(domain, &words)
}

/// From a crash of the host where there was one; otherwise as it follows from how a kind is built.
fn independence(domain: &EvaluatedDomain, verdicts: &[Verdict]) -> ComparisonEntry {
    use VerdictOutcome::{Fails, Holds, Inconclusive, Leaks};
    let crashed = verdicts
        .iter()
        .find(|verdict| verdict.domain == domain.name && verdict.question == Question::Crash);
    let is_host = domain.selection.kind.is_housekeeping();
    let built = match domain.selection.kind.kernel() {
        DomainKernel::Host if is_host => answered(domain, "–", None, "it is the host"),
        DomainKernel::Host => answered(
            domain,
            "no",
            Some(Fails),
            "it runs on the host's kernel and ends with it (by construction, not measured)",
        ),
        DomainKernel::AboveHost => answered(
            domain,
            "no",
            Some(Fails),
            "its processors are threads of the host (by construction, not measured)",
        ),
        DomainKernel::Apart => answered(domain, "not measured", None, "the host was not crashed"),
    };
    let entry = match crashed {
        Some(verdict) if !is_host => {
            let answer = match verdict.outcome {
                Holds => "yes",
                Fails | Leaks => "no",
                Inconclusive => "not decided",
            };
            answered(domain, answer, Some(verdict.outcome), &verdict.statement)
        }
        _ => built,
    };
    ComparisonEntry {
        verdicts: crashed.iter().map(|verdict| verdict.id.clone()).collect(),
        ..entry
    }
}
