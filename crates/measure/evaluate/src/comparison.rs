// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The comparison of the domains: a table of questions, after OSADL's talk at the Embedded Open Source
//! Summit 2023, and a summary of each domain. Both rest on the verdicts of the first meter alone.

use std::collections::BTreeMap;

use rampart_model::{
    Answers, Comparison, ComparisonEntry, ComparisonRow, DomainKernel, EvaluatedDomain,
    EvaluationSettings, MeterKind, Question, ReachedDeadlines, Record, Verdict, VerdictFigures,
    VerdictOutcome, grouped,
};

use crate::emulated_answers;
use crate::isolation::isolation;
use crate::summary_sentence::sentence;

/// Returns summaries and table. On an `emulated` machine no answer rests on a time.
pub(crate) fn compare(
    settings: &EvaluationSettings,
    records: &[Record],
    verdicts: &[Verdict],
    reached: Vec<ReachedDeadlines>,
    emulated: bool,
) -> Comparison {
    let Some(meter) = settings.meters.first().map(|meter| meter.meter) else {
        return Comparison::default();
    };
    let row =
        |question: &str, answer: &dyn Fn(&EvaluatedDomain) -> ComparisonEntry| ComparisonRow {
            question: question.to_owned(),
            entries: settings.domains.iter().map(answer).collect(),
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
    let mut comparison = Comparison {
        sentences: settings
            .domains
            .iter()
            .map(|domain| {
                let times = !without_times(domain);
                let text = sentence(settings, domain, records, verdicts, meter, times);
                (domain.name.clone(), text)
            })
            .collect(),
        rows: vec![
            row("meets the deadline", &|domain| {
                if without_times(domain) {
                    emulated_answers::real_time(domain, records, verdicts)
                } else if settings.deadline_is_named(&domain.name) {
                    asked(domain, Question::Deadline).entry(domain, &DEADLINE)
                } else {
                    without_deadline(domain, meter, records, &reached)
                }
            }),
            row("no worse than on the host", &|domain| {
                if domain.selection.kind.is_housekeeping() {
                    answered(domain, "–", None, "it is the host")
                } else if without_times(domain) {
                    let same = asked(domain, Question::SameAsHost);
                    emulated_answers::same_as_host(settings, domain, records, verdicts, &same.0)
                } else {
                    asked(domain, Question::SameAsHost).entry(domain, &SAME_AS_HOST)
                }
            }),
            row("isolation", &|domain| {
                isolation(settings, domain, verdicts, without_times(domain)).unwrap_or_else(|| {
                    asked(domain, Question::Interference).entry(domain, &ISOLATION_FROM_LOADS)
                })
            }),
            row("survives a host crash", &|domain| {
                survives_host_crash(domain, verdicts)
            }),
        ],
        ..Comparison::default()
    };
    comparison.reached = reached;
    comparison
}

/// Returns the answer for a domain without a deadline from the user: the smallest round deadline
/// that it met under every condition.
fn without_deadline(
    domain: &EvaluatedDomain,
    meter: MeterKind,
    records: &[Record],
    reached: &[ReachedDeadlines],
) -> ComparisonEntry {
    let own: Vec<&ReachedDeadlines> = reached
        .iter()
        .filter(|reached| {
            records.iter().any(|record| {
                record.id == reached.record
                    && record.domain == domain.name
                    && record.settings.meter == meter
            })
        })
        .collect();
    let Some(worst) = own.iter().max_by_key(|reached| reached.worst) else {
        return answered(domain, "not measured", None, "no valid run was measured");
    };
    let cycles = own.iter().map(|reached| reached.cycles).sum();
    let (answer, held) = match worst.deadlines.last() {
        Some((deadline, 0)) => (
            format!("would meet {deadline}"),
            format!("a deadline of {deadline} would have been met"),
        ),
        _ => (
            "no deadline given".to_owned(),
            "no round deadline would have been met".to_owned(),
        ),
    };
    let reason = format!(
        "no deadline was given. The worst of {} cycles was {}, {held}",
        grouped(cycles),
        worst.worst
    );
    answered(domain, &answer, None, &reason)
}

/// The answer if the verdicts decide nothing.
pub(crate) const NOT_ENOUGH_DATA: &str = "not enough data";

/// Returns an answer that rests on no verdict.
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

    /// Lists the conditions of the verdicts: `idle, cpu@others`.
    pub(crate) fn conditions(verdicts: &[&Verdict]) -> String {
        let words: Vec<String> = verdicts
            .iter()
            .map(|verdict| verdict.condition.to_string())
            .collect();
        words.join(", ")
    }

    /// The conditions of some of the verdicts in words: `while idle and under a cache load on other CPUs`.
    pub(crate) fn in_words(&self, verdicts: &[&Verdict]) -> String {
        if verdicts.len() > 1 && verdicts.len() == self.0.len() {
            return "under all conditions".to_owned();
        }
        let words: Vec<String> = verdicts
            .iter()
            .map(|verdict| verdict.condition.in_words())
            .collect();
        words.join(" and ")
    }

    /// Answers yes if all verdicts hold, no if one fails, and otherwise that data is missing.
    fn entry(&self, domain: &EvaluatedDomain, words: &Words) -> ComparisonEntry {
        let bad: Vec<&Verdict> = [
            self.with(VerdictOutcome::Fails),
            self.with(VerdictOutcome::Leaks),
        ]
        .concat();
        let held = self.with(VerdictOutcome::Holds);
        let subjects = self.what_fails();
        let subjects = subjects.map_or_else(String::new, |subjects| format!(": {subjects}"));
        let (answer, outcome, reason) = if self.0.is_empty() {
            (
                "not measured".to_owned(),
                None,
                "no valid run was measured".to_owned(),
            )
        } else if bad.len() == self.0.len() {
            (
                format!("{}{subjects}", words.no.0),
                Some(words.no.1),
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if !bad.is_empty() {
            (
                format!(
                    "{} under {} of {} conditions{subjects}",
                    words.partly,
                    bad.len(),
                    self.0.len()
                ),
                Some(VerdictOutcome::Leaks),
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if held.len() == self.0.len() {
            (
                words.yes.to_owned(),
                Some(VerdictOutcome::Holds),
                format!(
                    "{} under {}{}",
                    words.good,
                    Self::conditions(&held),
                    self.beside_others()
                ),
            )
        } else {
            let open = Self::conditions(&self.with(VerdictOutcome::Inconclusive));
            let so_far = if held.is_empty() {
                String::new()
            } else {
                format!("{} under {}. ", words.good, Self::conditions(&held))
            };
            (
                self.decided_so_far().map_or_else(
                    || NOT_ENOUGH_DATA.to_owned(),
                    |(decided, open)| format!("{decided} {}, {open} open", words.yes),
                ),
                Some(VerdictOutcome::Inconclusive),
                format!("{so_far}not enough data under {open}, measure longer"),
            )
        };
        ComparisonEntry {
            verdicts: self.0.iter().map(|verdict| verdict.id.clone()).collect(),
            ..answered(domain, &answer, outcome, &reason)
        }
    }
}

impl Asked<'_> {
    /// Returns the subjects that hold under every condition, and those that are open, where no
    /// verdict fails and not all hold: `p50` and `p99 and stalls`. `None` if all are open.
    pub(crate) fn decided_so_far(&self) -> Option<(String, String)> {
        let mut holds: BTreeMap<String, bool> = BTreeMap::new();
        for verdict in &self.0 {
            let answers = verdict.figures.as_ref()?.answers()?;
            for (subject, outcome) in answers.by_subject() {
                *holds.entry(subject).or_insert(true) &= outcome == VerdictOutcome::Holds;
            }
        }
        let named = |wanted: bool| {
            let subjects = holds.iter().filter(|(_, holds)| **holds == wanted);
            let subjects: Vec<&str> = subjects.map(|(subject, _)| subject.as_str()).collect();
            (!subjects.is_empty()).then(|| subjects.join(" and "))
        };
        Some((named(true)?, named(false)?))
    }

    /// Returns the condition ` (beside other programs)` if a verdict is on what a load adds to them.
    pub(crate) fn beside_others(&self) -> &'static str {
        if self.0.iter().any(|verdict| verdict.beside().is_some()) {
            " (beside other programs)"
        } else {
            ""
        }
    }

    /// Returns the subjects that fail or leak under some condition: `p50 and stalls`. `None` if no
    /// verdict has answers, or each subject fails.
    pub(crate) fn what_fails(&self) -> Option<String> {
        let mut fails: BTreeMap<String, bool> = BTreeMap::new();
        for verdict in &self.0 {
            let answers = verdict.figures.as_ref().and_then(VerdictFigures::answers);
            for (subject, outcome) in answers.into_iter().flat_map(Answers::by_subject) {
                let bad = matches!(outcome, VerdictOutcome::Fails | VerdictOutcome::Leaks);
                *fails.entry(subject).or_insert(false) |= bad;
            }
        }
        let failing = fails.iter().filter(|(_, fails)| **fails);
        let failing: Vec<&str> = failing.map(|(subject, _)| subject.as_str()).collect();
        (!failing.is_empty() && failing.len() < fails.len()).then(|| failing.join(" and "))
    }
}

/// The answers to one question.
struct Words {
    yes: &'static str,
    no: (&'static str, VerdictOutcome),
    /// What happens under some of the conditions.
    partly: &'static str,
    good: &'static str,
    bad: &'static str,
}

const DEADLINE: Words = Words {
    yes: "yes",
    no: ("no", VerdictOutcome::Fails),
    partly: "missed",
    good: "no cycle exceeded the deadline",
    bad: "the deadline was exceeded",
};

const SAME_AS_HOST: Words = Words {
    yes: "yes",
    no: ("no", VerdictOutcome::Fails),
    partly: "worse",
    good: "quantiles and stalls are not worse than on the host by more than the tolerance",
    bad: "a quantile or the rate of stalls is worse than on the host",
};

const ISOLATION_FROM_LOADS: Words = Words {
    yes: "isolated",
    no: ("not isolated", VerdictOutcome::Leaks),
    partly: "not isolated",
    good: "quantiles and the rate of stalls grow by no more than the tolerance",
    bad: "a quantile or the rate of stalls grows",
};

/// Answers from a crash of the host if one decided it, otherwise from how the kind is built: only a kind that needs no
/// kernel of the host has to be measured.
fn survives_host_crash(domain: &EvaluatedDomain, verdicts: &[Verdict]) -> ComparisonEntry {
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
            "it runs on the host's kernel (by construction, not measured)",
        ),
        DomainKernel::AboveHost => answered(
            domain,
            "no",
            Some(Fails),
            "its virtual CPUs are threads of the host's kernel (by construction, not measured)",
        ),
        DomainKernel::Apart => answered(domain, "not measured", None, "the host was not crashed"),
    };
    let is_apart = domain.selection.kind.kernel() == DomainKernel::Apart;
    let entry = match crashed {
        Some(verdict) if !is_host && (is_apart || verdict.outcome != Inconclusive) => {
            let answer = match verdict.outcome {
                Holds => "yes",
                Fails | Leaks => "no",
                Inconclusive => NOT_ENOUGH_DATA,
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

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::VerdictOutcome::{Fails, Holds, Inconclusive};
    use rampart_model::{Condition, DomainKind, DomainSelection, Exposure, QuantileAnswer};

    fn verdict(p50: VerdictOutcome, p99: VerdictOutcome) -> Verdict {
        let answer = |quantile, outcome| QuantileAnswer { quantile, outcome };
        Verdict {
            id: String::new(),
            question: Question::SameAsHost,
            domain: "task".to_owned(),
            meter: MeterKind::Wakeup,
            condition: Condition::IDLE,
            disturbance: None,
            outcome: Inconclusive,
            statement: String::new(),
            figures: Some(VerdictFigures::SameAsHost {
                host: String::new(),
                ratios: Vec::new(),
                tolerance: 1.25,
                batches: (1, 1),
                smallest_detectable: None,
                answers: Some(Answers {
                    quantiles: vec![answer(0.5, p50), answer(0.99, p99)],
                    ..Answers::default()
                }),
            }),
            exposure: Exposure::default(),
            records: Vec::new(),
        }
    }

    /// What holds under one condition and is open under another is open.
    #[test]
    fn an_open_comparison_has_the_answers_that_hold_under_every_condition() {
        let so_far = |verdicts: &[Verdict]| {
            let asked = Asked(verdicts.iter().collect());
            asked.decided_so_far()
        };
        let (typical, none) = (
            verdict(Holds, Inconclusive),
            verdict(Inconclusive, Inconclusive),
        );
        let decided = Some(("p50".to_owned(), "p99".to_owned()));
        assert_eq!(so_far(&[typical.clone(), verdict(Holds, Holds)]), decided);
        assert_eq!(so_far(&[typical.clone(), none]), None);
        let slower = verdict(VerdictOutcome::Fails, Holds);
        let what_fails = |verdicts: &[&Verdict]| Asked(verdicts.to_vec()).what_fails();
        assert_eq!(what_fails(&[&typical, &slower]).as_deref(), Some("p50"));
        assert_eq!(what_fails(&[&typical]), None);
    }

    /// A domain for which there were no CPUs during the crash.
    #[test]
    fn an_undecided_crash_leaves_the_answer_of_the_kind() {
        let answer = |kind, outcome| {
            let domain = EvaluatedDomain {
                policy: None,
                deadline: None,
                name: "task".to_owned(),
                selection: DomainSelection::of(kind),
                cpus: rampart_model::CpuSet::new(),
                description: String::new(),
            };
            let crash = Verdict {
                question: Question::Crash,
                outcome,
                statement: "measured".to_owned(),
                ..verdict(Inconclusive, Inconclusive)
            };
            let entry = survives_host_crash(&domain, &[crash]);
            (entry.answer, entry.outcome)
        };
        let no = || ("no".to_owned(), Some(Fails));
        for kind in [DomainKind::Task, DomainKind::Container, DomainKind::Vm] {
            assert_eq!(answer(kind, Inconclusive), no());
            assert_eq!(answer(kind, Holds), ("yes".to_owned(), Some(Holds)));
        }
        let open = (NOT_ENOUGH_DATA.to_owned(), Some(Inconclusive));
        assert_eq!(answer(DomainKind::Cell, Inconclusive), open);
        assert_eq!(answer(DomainKind::Cell, Fails), no());
    }
}
