// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers at a glance: a sentence for each domain and the table that OSADL's talk filled in
//! by hand (Embedded Open Source Summit 2023). Both rest on the leading meter's verdicts alone.

use rampart_model::{
    Comparison, ComparisonCell, ComparisonRow, DomainKind, DomainPlan, ExperimentPlan, MeterKind,
    Question, Record, Verdict, VerdictFigures, VerdictOutcome,
};

use crate::separation::separation;
use crate::wording::{factor, grouped, quantile_name};

/// Fills in sentences and table. On an `emulated` machine nothing rests on a time.
pub(crate) fn compare(
    plan: &ExperimentPlan,
    records: &[Record],
    verdicts: &[Verdict],
    emulated: bool,
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
            .map(|domain| {
                let sentence = sentence(domain, records, verdicts, &of, meter);
                (domain.name.clone(), sentence)
            })
            .collect(),
        rows: vec![
            row("real-time in the domain", &|domain| {
                if emulated || is_emulated(domain, records) {
                    real_time_in_structure(domain, records, verdicts)
                } else {
                    real_time(domain, &of(domain, Question::Deadline))
                }
            }),
            row("same latency as on the host", &|domain| {
                let mut cell = same(domain, &of(domain, Question::SameAsHost));
                if !cell.verdicts.is_empty() && (emulated || is_emulated(domain, records)) {
                    cell.reason.push_str(" (a ratio of emulated times)");
                }
                cell
            }),
            row("separation", &|domain| {
                separation(domain, verdicts).unwrap_or_else(|| {
                    separation_from_loads(domain, &of(domain, Question::Interference))
                })
            }),
            row("complete independence from the host", &|domain| {
                independence(domain, verdicts)
            }),
        ],
    }
}

/// The verdicts on one question about one domain.
struct Asked<'a>(Vec<&'a Verdict>);

impl<'a> Asked<'a> {
    fn new(verdicts: &'a [Verdict], domain: &str, meter: MeterKind, question: Question) -> Self {
        let asked = |verdict: &&Verdict| {
            verdict.domain == domain
                && verdict.meter == meter
                && verdict.question == question
                && verdict.disturbance.is_none()
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

fn is_emulated(domain: &DomainPlan, records: &[Record]) -> bool {
    records
        .iter()
        .any(|record| record.domain == domain.name && record.emulated)
}

/// Where no deadline can be judged: whether the threads had the real-time policy that they were
/// asked for, and whether blocks in other domains stop them.
fn real_time_in_structure(
    domain: &DomainPlan,
    records: &[Record],
    verdicts: &[Verdict],
) -> ComparisonCell {
    let granted = records
        .iter()
        .filter(|record| record.domain == domain.name)
        .flat_map(|record| &record.runs)
        .filter(|run| run.invalid.is_empty())
        .flat_map(|run| &run.threads)
        .map(|thread| thread.placement.policy)
        .find(|policy| policy.is_real_time());
    let from_others: Vec<&Verdict> = verdicts
        .iter()
        .filter(|verdict| {
            let by = verdict.disturbance.as_ref();
            verdict.domain == domain.name
                && verdict.question == Question::Transfer
                && by.is_some_and(|by| by.domain != domain.name)
        })
        .collect();
    let held = !from_others.is_empty()
        && from_others
            .iter()
            .all(|verdict| verdict.outcome == VerdictOutcome::Holds);
    let no_deadline = "the machine is emulated, its times mean nothing, and no deadline is judged";
    let (answer, reason) = match granted {
        Some(policy) if held => (
            "in structure",
            format!(
                "its threads have the policy {policy}, verified, and no block in another domain stops them; {no_deadline}"
            ),
        ),
        Some(policy) => (
            "not judged here",
            format!("its threads have the policy {policy}, verified; but {no_deadline}"),
        ),
        None => ("not judged here", no_deadline.to_owned()),
    };
    ComparisonCell {
        domain: domain.name.clone(),
        answer: answer.to_owned(),
        reason,
        verdicts: from_others
            .iter()
            .map(|verdict| verdict.id.clone())
            .collect(),
    }
}

fn separation_from_loads(domain: &DomainPlan, asked: &Asked<'_>) -> ComparisonCell {
    let words = Words {
        yes: "holds",
        some: "limited",
        no: "leaks",
        good: "no quantile grows beyond the tolerance",
        bad: "a quantile grows",
    };
    asked.cell(domain, &words)
}

/// From a crash of the host where there was one; otherwise as it follows from how a kind is built.
fn independence(domain: &DomainPlan, verdicts: &[Verdict]) -> ComparisonCell {
    let crashed = verdicts
        .iter()
        .find(|verdict| verdict.domain == domain.name && verdict.question == Question::Crash);
    let built = match domain.selection.kind {
        DomainKind::Host => ("–", "it is the host"),
        DomainKind::Task | DomainKind::Container => (
            "no",
            "it runs on the host's kernel and ends with it (by construction, not measured)",
        ),
        DomainKind::Vm => (
            "no",
            "its processors are threads of the host (by construction, not measured)",
        ),
        DomainKind::Detached | DomainKind::Cell => ("not measured", "the host was not crashed"),
    };
    let (answer, reason) = match crashed {
        Some(_) if domain.selection.kind == DomainKind::Host => built,
        Some(verdict) => (
            match verdict.outcome {
                VerdictOutcome::Holds => "yes",
                VerdictOutcome::Fails | VerdictOutcome::Leaks => "no",
                VerdictOutcome::Inconclusive => "not decided",
            },
            verdict.statement.as_str(),
        ),
        None => built,
    };
    ComparisonCell {
        domain: domain.name.clone(),
        answer: answer.to_owned(),
        reason: reason.to_owned(),
        verdicts: crashed.iter().map(|verdict| verdict.id.clone()).collect(),
    }
}

/// One sentence for a domain: deadline first, then the comparison with the host, then the load.
fn sentence<'a>(
    domain: &DomainPlan,
    records: &[Record],
    verdicts: &[Verdict],
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
    parts.extend(blocks_part(domain, verdicts));
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// What blocks in other domains did to it.
fn blocks_part(domain: &DomainPlan, verdicts: &[Verdict]) -> Option<String> {
    let mut felt: Vec<String> = Vec::new();
    let (mut held, mut open) = (0, 0);
    for verdict in verdicts {
        let Some(by) = &verdict.disturbance else {
            continue;
        };
        if verdict.domain != domain.name
            || verdict.question != Question::Transfer
            || by.domain == domain.name
        {
            continue;
        }
        match verdict.outcome {
            VerdictOutcome::Leaks | VerdictOutcome::Fails => felt.push(by.to_string()),
            VerdictOutcome::Holds => held += 1,
            VerdictOutcome::Inconclusive => open += 1,
        }
    }
    if !felt.is_empty() {
        Some(format!("blocks elsewhere stop it: {}", felt.join(", ")))
    } else if open > 0 {
        Some("whether blocks elsewhere stop it is not decided".to_owned())
    } else {
        (held > 0).then(|| "blocks elsewhere do not stop it".to_owned())
    }
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
