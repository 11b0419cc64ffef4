// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invented verdicts that fit the invented figures.

use rampart_model::{
    ComparisonEntry, ComparisonRow, Condition, Distribution, DomainKind, Evaluation, Interval,
    Nanos, Question, Record, Verdict, VerdictFigures, VerdictOutcome,
};

const CONFIDENCE: f64 = 0.95;
const TOLERANCE: f64 = 1.25;

/// Draws verdicts and the comparison from the records.
pub(crate) fn conclude(evaluation: &mut Evaluation) {
    let records = evaluation.records.clone();
    let mut verdicts = Vec::new();
    for record in records
        .iter()
        .filter(|record| record.plan.deadline.is_some())
    {
        verdicts.push(deadline(
            record,
            evaluation.plan.deadline_of(&record.domain),
        ));
    }
    for record in &records {
        let other = |domain: &str, condition: Condition| {
            records.iter().find(|other| {
                other.domain == domain
                    && other.condition == condition
                    && other.plan.meter == record.plan.meter
            })
        };
        if record.condition != Condition::IDLE
            && let Some(idle) = other(&record.domain, Condition::IDLE)
        {
            verdicts.push(compared(Question::Interference, record, idle));
        }
        if record.kind != DomainKind::Host
            && let Some(host) = other("host", record.condition)
        {
            verdicts.push(compared(Question::SameAsHost, record, host));
        }
    }
    evaluation.verdicts = verdicts;
    compare(evaluation);
}

fn whole(record: &Record) -> Distribution {
    let mut all = Distribution::default();
    for cpu in &record.cpus {
        all.merge(&cpu.series[0].seen);
    }
    all
}

fn verdict(question: Question, record: &Record) -> Verdict {
    Verdict {
        disturbance: None,
        id: question.id(&record.domain, record.plan.meter, &record.condition),
        question,
        domain: record.domain.clone(),
        meter: record.plan.meter,
        condition: record.condition,
        outcome: VerdictOutcome::Inconclusive,
        statement: "nothing valid was measured".to_owned(),
        figures: None,
        exposure: record.exposure,
        records: vec![record.id.clone()],
    }
}

fn deadline(record: &Record, deadline: Nanos) -> Verdict {
    let mut verdict = verdict(Question::Deadline, record);
    let over: u64 = record.cpus.iter().map(|cpu| cpu.over_deadline).sum();
    let Some(max) = whole(record).max else {
        return verdict;
    };
    let cycles = record.exposure.samples + record.exposure.missed;
    // The rule of three, with a rough allowance for what was seen.
    let upper_bound = (over as f64 + 3.0 + 2.0 * (over as f64).sqrt()) / cycles as f64;
    let between = Nanos((record.exposure.duration.0 as f64 / 2.995_732) as u64);
    verdict.outcome = if over > 0 {
        VerdictOutcome::Fails
    } else {
        VerdictOutcome::Holds
    };
    verdict.statement = if over > 0 {
        format!("{over} of {cycles} cycles came after {deadline}; the latest was {max}")
    } else {
        format!("none of {cycles} cycles came after {deadline}; the latest was {max}")
    };
    verdict.figures = Some(VerdictFigures::Deadline {
        deadline,
        cycles,
        exceedances: over,
        upper_bound,
        confidence: CONFIDENCE,
        time_between_violations: (over == 0).then_some(between),
        max,
    });
    verdict
}

/// An answer with what it amounts to.
pub(crate) type Word = (&'static str, VerdictOutcome);

/// What a question is answered where all verdicts on it are good, some are bad, all are bad.
struct Words {
    good: Word,
    some: Word,
    bad: Word,
}

/// Whether a deadline is met, or a latency the host's.
const AS_WISHED: Words = Words {
    good: ("yes", VerdictOutcome::Holds),
    some: ("not always", VerdictOutcome::Leaks),
    bad: ("no", VerdictOutcome::Fails),
};

/// Whether loads elsewhere affect the domain, if there were no blocks.
const APART_FROM_LOADS: Words = Words {
    good: ("holds", VerdictOutcome::Holds),
    some: ("limited", VerdictOutcome::Leaks),
    bad: ("leaks", VerdictOutcome::Leaks),
};

/// Rounded, so that the last digit does not depend on the platform's arithmetic.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn compared(question: Question, record: &Record, base: &Record) -> Verdict {
    let mut verdict = verdict(question, record);
    verdict.records.push(base.id.clone());
    let (upper, lower) = (whole(record), whole(base));
    let mut ratios = Vec::new();
    for (quantile, half_width) in [(0.5, 0.02), (0.99, 0.07), (0.999, 0.22)] {
        if let (Some(a), Some(b)) = (upper.quantile(quantile), lower.quantile(quantile)) {
            let estimate = a.0 as f64 / b.0 as f64;
            ratios.push((
                quantile,
                Interval {
                    estimate: rounded(estimate),
                    low: rounded(estimate * (1.0 - half_width)),
                    high: rounded(estimate * (1.0 + half_width)),
                    confidence: CONFIDENCE,
                },
            ));
        }
    }
    let Some((_, worst)) = ratios.iter().max_by(|a, b| a.1.low.total_cmp(&b.1.low)) else {
        return verdict;
    };
    let crosses = if question == Question::Interference {
        VerdictOutcome::Leaks
    } else {
        VerdictOutcome::Fails
    };
    verdict.outcome = if worst.low > TOLERANCE {
        crosses
    } else if ratios
        .iter()
        .all(|(_, interval)| interval.high <= TOLERANCE)
    {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    verdict.statement = format!(
        "the largest ratio is {:.2} ({:.2} to {:.2}), tolerated are {TOLERANCE}",
        worst.estimate, worst.low, worst.high
    );
    let batches = (12, 12);
    verdict.figures = Some(if question == Question::Interference {
        VerdictFigures::Interference {
            idle: base.id.clone(),
            factors: ratios,
            tolerance: TOLERANCE,
            batches,
        }
    } else {
        VerdictFigures::SameAsHost {
            host: base.id.clone(),
            ratios,
            tolerance: TOLERANCE,
            batches,
            smallest_detectable: 1.11,
        }
    });
    verdict
}

fn compare(evaluation: &mut Evaluation) {
    let names: Vec<(String, DomainKind)> = evaluation
        .plan
        .domains
        .iter()
        .map(|plan| (plan.name.clone(), plan.selection.kind))
        .collect();
    let deadline = evaluation.plan.deadline;
    let of = |question: Question, domain: &str| -> Vec<&Verdict> {
        evaluation
            .verdicts
            .iter()
            .filter(|verdict| verdict.question == question && verdict.domain == domain)
            .collect()
    };
    let cell = |question: Question, domain: &str, words: &Words| {
        let verdicts = of(question, domain);
        let all = |outcome| verdicts.iter().all(|verdict| verdict.outcome == outcome);
        let is_bad = |verdict: &&&Verdict| {
            matches!(
                verdict.outcome,
                VerdictOutcome::Fails | VerdictOutcome::Leaks
            )
        };
        let bad: Vec<&&Verdict> = verdicts.iter().filter(is_bad).collect();
        let (word, reason) = if verdicts.is_empty() {
            (None, "there is no valid record to draw it from".to_owned())
        } else if let Some(first) = bad.first() {
            let all = bad.len() == verdicts.len();
            (
                Some(if all { words.bad } else { words.some }),
                format!("under {}, {}", first.condition, first.statement),
            )
        } else if all(VerdictOutcome::Holds) {
            (Some(words.good), verdicts[0].statement.clone())
        } else {
            (
                Some(("not decided", VerdictOutcome::Inconclusive)),
                "the exposure does not decide it under each condition".to_owned(),
            )
        };
        ComparisonEntry {
            domain: domain.to_owned(),
            outcome: word.map(|(_, outcome)| outcome),
            answer: word.map_or("not measured", |(answer, _)| answer).to_owned(),
            reason,
            verdicts: verdicts.iter().map(|verdict| verdict.id.clone()).collect(),
        }
    };
    let row = |question: &str, cells: Vec<ComparisonEntry>| ComparisonRow {
        question: question.to_owned(),
        cells,
    };
    let rows = vec![
        row(
            &format!("meets the deadline of {deadline}"),
            names
                .iter()
                .map(|(name, _)| cell(Question::Deadline, name, &AS_WISHED))
                .collect(),
        ),
        row(
            "same latency as on the host",
            names
                .iter()
                .map(|(name, kind)| {
                    if *kind == DomainKind::Host {
                        ComparisonEntry {
                            domain: name.clone(),
                            answer: "is the host".to_owned(),
                            outcome: None,
                            reason: "the others are compared with it".to_owned(),
                            verdicts: Vec::new(),
                        }
                    } else {
                        cell(Question::SameAsHost, name, &AS_WISHED)
                    }
                })
                .collect(),
        ),
        row(
            "separation from neighbours",
            names
                .iter()
                .map(|(name, _)| cell(Question::Interference, name, &APART_FROM_LOADS))
                .collect(),
        ),
        row(
            "complete independence from the host",
            names
                .iter()
                .map(|(name, _)| ComparisonEntry {
                    domain: name.clone(),
                    answer: "no".to_owned(),
                    outcome: Some(VerdictOutcome::Fails),
                    reason: "it runs on the host's kernel and ends with it".to_owned(),
                    verdicts: Vec::new(),
                })
                .collect(),
        ),
    ];
    let sentences = names
        .iter()
        .map(|(name, _)| {
            let verdicts = of(Question::Deadline, name);
            let failing: Vec<String> = verdicts
                .iter()
                .filter(|verdict| verdict.outcome == VerdictOutcome::Fails)
                .map(|verdict| verdict.condition.to_string())
                .collect();
            let max = evaluation.records.iter().filter(|record| &record.domain == name).filter_map(|record| whole(record).max).max();
            let sentence = match max {
                None => "Nothing was measured.".to_owned(),
                Some(max) if failing.is_empty() => {
                    format!("Meets {deadline} in everything measured; the latest wake-up came after {max}.")
                }
                Some(max) => format!("Misses {deadline} under {}; the latest wake-up came after {max}.", failing.join(" and ")),
            };
            (name.clone(), sentence)
        })
        .collect();
    evaluation.comparison = rampart_model::Comparison { sentences, rows };
}
