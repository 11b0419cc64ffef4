// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers at a glance: a sentence for each domain and the table that OSADL's talk filled in
//! by hand (Embedded Open Source Summit 2023). Both rest on the leading meter's verdicts alone.

use rampart_model::{
    Comparison, ComparisonCell, ComparisonRow, DomainKind, DomainPlan, ExperimentPlan, MeterKind,
    Question, Record, Verdict, VerdictFigures, VerdictOutcome,
};

use crate::wording::{factor, grouped, quantile_name};

/// Fills in sentences and table.
pub(crate) fn compare(
    plan: &ExperimentPlan,
    records: &[Record],
    verdicts: &[Verdict],
) -> Comparison {
    let Some(meter) = plan.meters.first().map(|meter| meter.meter) else {
        return Comparison::default();
    };
    let row = |question: &str, answer: &dyn Fn(&DomainPlan) -> ComparisonCell| ComparisonRow {
        question: question.to_owned(),
        cells: plan.domains.iter().map(answer).collect(),
    };
    let of = |domain: &DomainPlan, question: Question| {
        Asked::new(verdicts, &domain.name, meter, question)
    };
    Comparison {
        sentences: plan
            .domains
            .iter()
            .map(|domain| (domain.name.clone(), sentence(domain, records, &of, meter)))
            .collect(),
        rows: vec![
            row("real-time in the domain", &|domain| {
                real_time(domain, &of(domain, Question::Deadline))
            }),
            row("same latency as on the host", &|domain| {
                same(domain, &of(domain, Question::SameAsHost))
            }),
            row("separation from a neighbour's load", &|domain| {
                separation(domain, &of(domain, Question::Interference))
            }),
            row("complete independence from the host", &independence),
        ],
    }
}

/// The verdicts on one question about one domain.
struct Asked<'a>(Vec<&'a Verdict>);

impl<'a> Asked<'a> {
    fn new(verdicts: &'a [Verdict], domain: &str, meter: MeterKind, question: Question) -> Self {
        let asked = |verdict: &&Verdict| {
            verdict.domain == domain && verdict.meter == meter && verdict.question == question
        };
        Self(verdicts.iter().filter(asked).collect())
    }

    fn with(&self, outcome: VerdictOutcome) -> Vec<&'a Verdict> {
        self.0
            .iter()
            .copied()
            .filter(|verdict| verdict.outcome == outcome)
            .collect()
    }

    /// `under idle, cpu@others`
    fn conditions(verdicts: &[&Verdict]) -> String {
        let words: Vec<String> = verdicts
            .iter()
            .map(|verdict| verdict.condition.to_string())
            .collect();
        words.join(", ")
    }

    /// Yes if all hold, no if all fail, not always if some do, else undecided.
    fn cell(&self, domain: &DomainPlan, words: &Words<'_>) -> ComparisonCell {
        let bad: Vec<&Verdict> = [
            self.with(VerdictOutcome::Fails),
            self.with(VerdictOutcome::Leaks),
        ]
        .concat();
        let held = self.with(VerdictOutcome::Holds);
        let (answer, reason) = if self.0.is_empty() {
            (
                "not measured",
                "nothing valid was measured that would answer it".to_owned(),
            )
        } else if bad.len() == self.0.len() {
            (
                words.no,
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if !bad.is_empty() {
            (
                words.some,
                format!("{} under {}", words.bad, Self::conditions(&bad)),
            )
        } else if held.len() == self.0.len() {
            (
                words.yes,
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
                format!("{so_far}the exposure does not decide it under {open}; measure longer"),
            )
        };
        ComparisonCell {
            domain: domain.name.clone(),
            answer: answer.to_owned(),
            reason,
            verdicts: self.0.iter().map(|verdict| verdict.id.clone()).collect(),
        }
    }
}

/// How one question is answered.
struct Words<'a> {
    yes: &'a str,
    some: &'a str,
    no: &'a str,
    good: &'a str,
    bad: &'a str,
}

fn real_time(domain: &DomainPlan, asked: &Asked<'_>) -> ComparisonCell {
    let words = Words {
        yes: "yes",
        some: "not always",
        no: "no",
        good: "no cycle exceeded the deadline",
        bad: "the deadline was exceeded",
    };
    asked.cell(domain, &words)
}

fn same(domain: &DomainPlan, asked: &Asked<'_>) -> ComparisonCell {
    if domain.selection.kind == DomainKind::Host {
        return ComparisonCell {
            domain: domain.name.clone(),
            answer: "–".to_owned(),
            reason: "it is the host".to_owned(),
            verdicts: Vec::new(),
        };
    }
    let words = Words {
        yes: "yes",
        some: "not always",
        no: "no",
        good: "no quantile is worse than the host's beyond the tolerance",
        bad: "a quantile is worse than the host's",
    };
    asked.cell(domain, &words)
}

fn separation(domain: &DomainPlan, asked: &Asked<'_>) -> ComparisonCell {
    let words = Words {
        yes: "holds",
        some: "limited",
        no: "leaks",
        good: "no quantile grows beyond the tolerance",
        bad: "a quantile grows",
    };
    asked.cell(domain, &words)
}

/// Follows from how a kind is built; it is not measured here.
fn independence(domain: &DomainPlan) -> ComparisonCell {
    let (answer, reason) = match domain.selection.kind {
        DomainKind::Host => ("–", "it is the host"),
        DomainKind::Task | DomainKind::Container => (
            "no",
            "it runs on the host's kernel and ends with it (by construction, not measured)",
        ),
        DomainKind::Vm => (
            "no",
            "its processors are threads of the host (by construction, not measured)",
        ),
        DomainKind::Detached | DomainKind::Cell => {
            ("not measured", "this version does not crash the host")
        }
    };
    ComparisonCell {
        domain: domain.name.clone(),
        answer: answer.to_owned(),
        reason: reason.to_owned(),
        verdicts: Vec::new(),
    }
}

/// One sentence for a domain: deadline first, then the comparison with the host, then the load.
fn sentence<'a>(
    domain: &DomainPlan,
    records: &[Record],
    of: &dyn Fn(&DomainPlan, Question) -> Asked<'a>,
    meter: MeterKind,
) -> String {
    let measured: Vec<&Record> = records
        .iter()
        .filter(|record| {
            record.domain == domain.name && record.plan.meter == meter && record.exposure.runs > 0
        })
        .collect();
    if measured.is_empty() {
        return "Nothing valid was measured.".to_owned();
    }
    let mut parts = vec![deadline_part(&of(domain, Question::Deadline))];
    if domain.selection.kind != DomainKind::Host {
        let same = of(domain, Question::SameAsHost);
        parts.push(match overall(&same) {
            VerdictOutcome::Holds => "it is as good as the host".to_owned(),
            VerdictOutcome::Fails => {
                let worse = same.with(VerdictOutcome::Fails);
                format!(
                    "it is worse than the host under {}",
                    Asked::conditions(&worse)
                )
            }
            _ => "whether it is as good as the host is not decided".to_owned(),
        });
    }
    let loads = of(domain, Question::Interference);
    if !loads.0.is_empty() {
        parts.push(match overall(&loads) {
            VerdictOutcome::Holds => "a load beside it does not reach it".to_owned(),
            VerdictOutcome::Leaks => leak_part(&loads),
            _ => "whether a load beside it reaches it is not decided".to_owned(),
        });
    }
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// The worst outcome among the verdicts.
fn overall(asked: &Asked<'_>) -> VerdictOutcome {
    for outcome in [
        VerdictOutcome::Fails,
        VerdictOutcome::Leaks,
        VerdictOutcome::Inconclusive,
    ] {
        if !asked.with(outcome).is_empty() {
            return outcome;
        }
    }
    if asked.0.is_empty() {
        VerdictOutcome::Inconclusive
    } else {
        VerdictOutcome::Holds
    }
}

fn deadline_part(asked: &Asked<'_>) -> String {
    let (mut total, mut over, mut worst) = (0, 0, None);
    let mut limit = None;
    for verdict in &asked.0 {
        if let Some(VerdictFigures::Deadline {
            deadline,
            cycles,
            exceedances,
            max,
            ..
        }) = &verdict.figures
        {
            total += cycles;
            over += exceedances;
            limit = Some(*deadline);
            worst = worst.max(Some((*max, verdict.condition)));
        }
    }
    let (Some(limit), Some((max, condition))) = (limit, worst) else {
        return "no deadline was judged".to_owned();
    };
    let figures = format!("worst {max} under {condition}");
    match overall(asked) {
        VerdictOutcome::Holds => format!(
            "meets {limit} in all of {} cycles, {figures}",
            grouped(total)
        ),
        VerdictOutcome::Fails => {
            format!(
                "misses {limit} in {} of {} cycles, {figures}",
                grouped(over),
                grouped(total)
            )
        }
        _ => format!(
            "whether it meets {limit} is not decided after {} cycles, {figures}",
            grouped(total)
        ),
    }
}

fn leak_part(asked: &Asked<'_>) -> String {
    let mut worst: Option<(f64, String)> = None;
    for verdict in asked.with(VerdictOutcome::Leaks) {
        if let Some(VerdictFigures::Interference { factors, .. }) = &verdict.figures {
            for (quantile, interval) in factors {
                if worst
                    .as_ref()
                    .is_none_or(|(estimate, _)| interval.estimate > *estimate)
                {
                    let words = format!(
                        "a load beside it reaches it: {} grows ×{} under {}",
                        quantile_name(*quantile),
                        factor(interval.estimate),
                        verdict.condition
                    );
                    worst = Some((interval.estimate, words));
                }
            }
        }
    }
    worst.map_or_else(
        || "a load beside it reaches it".to_owned(),
        |(_, words)| words,
    )
}
