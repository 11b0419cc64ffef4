// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report on an evaluation, as elements.

mod answer;
mod causes;
mod cells;
mod crash;
mod detached;
mod effects;
mod figures;
mod findings;
mod first_answer;
mod guests;
mod interval;
mod latency;
mod machine;
mod matrix;
mod next_command;
mod provenance;
mod settings;
mod timeline;
mod unwanted_activity;
mod verdicts;
mod worst;

pub(crate) use answer::inconclusive;
pub(crate) use causes::explained;
pub(crate) use findings::{findings, part_words};

use std::collections::HashMap;

use rampart_model::{
    Accelerator, Bench, Condition, Evaluation, MeterKind, Question, Record, Series, Verdict,
    VerdictOutcome,
};

use crate::element::{Element, Outcome, SpanStyle, Text};

/// Returns the report on an evaluation.
#[must_use]
pub fn report(evaluation: &Evaluation) -> Vec<Element> {
    let report = Report::new(evaluation);
    let sections = [
        answer::head,
        first_answer::first_answer,
        answer::answers,
        answer::circumstances,
        answer::comparison,
        effects::effects,
        matrix::matrix,
        crash::crash,
        latency::latency,
        figures::figures,
        worst::worst,
        verdicts::deadline,
        verdicts::interference,
        verdicts::same_as_host,
        settings::settings,
        guests::guests,
        cells::cells,
        detached::detached,
        machine::machine,
        findings::findings_section,
        findings::not_measured,
        provenance::reading,
        provenance::provenance,
    ];
    sections
        .into_iter()
        .flat_map(|section| section(&report))
        .collect()
}

/// The evaluation, with data that several sections need.
pub(crate) struct Report<'a> {
    pub(crate) evaluation: &'a Evaluation,
    /// Number of each verdict, by id. Ids may hold any character, anchors may not.
    verdicts: HashMap<&'a str, usize>,
    /// The domains, in the order of the plan.
    pub(crate) domains: Vec<&'a str>,
    /// The conditions, in the order of the plan.
    pub(crate) conditions: Vec<Condition>,
    /// The measured quantities, those of the plan's first meter first.
    pub(crate) quantities: Vec<(MeterKind, Series)>,
}

impl<'a> Report<'a> {
    fn new(evaluation: &'a Evaluation) -> Self {
        let verdicts = evaluation.verdicts.iter().enumerate();
        let verdicts = verdicts
            .map(|(index, of)| (of.id.as_str(), index))
            .collect();
        let plan = &evaluation.settings;
        let planned = plan.domains.iter().map(|domain| domain.name.as_str());
        let measured = evaluation
            .records
            .iter()
            .map(|record| record.domain.as_str());
        let conditions = plan.conditions.iter().copied();
        let others = evaluation.records.iter().map(|record| record.condition);
        let mut quantities = once(evaluation.records.iter().flat_map(|record| {
            let series = record.cpus.iter().flat_map(|cpu| &cpu.series);
            series.map(|series| (record.settings.meter, series.series))
        }));
        quantities.sort_by_key(|(meter, _)| {
            let order = plan.meters.iter().position(|plan| plan.meter == *meter);
            order.unwrap_or(plan.meters.len())
        });
        Self {
            evaluation,
            verdicts,
            domains: once(planned.chain(measured)),
            conditions: once(conditions.chain(others)),
            quantities,
        }
    }

    /// Returns the anchor of a verdict.
    pub(crate) fn anchor(&self, verdict: &Verdict) -> Option<String> {
        let index = self.verdicts.get(verdict.id.as_str())?;
        Some(format!("verdict-{index}"))
    }

    /// Returns how a verdict is shown, as a colour and a word. A miss of a deadline that the user did
    /// not set is a figure and not a failure.
    pub(crate) fn outcome(&self, verdict: &Verdict) -> (Outcome, String) {
        let settings = &self.evaluation.settings;
        let is_set =
            verdict.question != Question::Deadline || settings.deadline_is_named(&verdict.domain);
        match verdict.outcome {
            VerdictOutcome::Fails if !is_set => (Outcome::Own, "misses".to_owned()),
            outcome => (outcome.into(), outcome.to_string()),
        }
    }

    /// Returns the number of the curve that a domain has.
    pub(crate) fn curve(&self, domain: &str) -> usize {
        let found = self.domains.iter().position(|name| *name == domain);
        found.unwrap_or_default()
    }

    /// Returns the records of a meter under a condition, in the order of the domains.
    pub(crate) fn records(&self, meter: MeterKind, condition: Condition) -> Vec<&'a Record> {
        let mut records: Vec<&Record> = self
            .evaluation
            .records
            .iter()
            .filter(|record| record.settings.meter == meter && record.condition == condition)
            .collect();
        records.sort_by_key(|record| self.curve(&record.domain));
        records
    }

    /// Returns whether the CPUs of a domain are emulated, so that its times are not meaningful.
    pub(crate) fn is_emulated(&self, domain: &str) -> bool {
        // A simulated machine may not detect itself that it is simulated.
        matches!(self.evaluation.bench, Bench::Sim { .. })
            || self
                .evaluation
                .records
                .iter()
                .any(|record| record.domain == domain && record.emulated)
            || self
                .evaluation
                .transfers
                .iter()
                .flat_map(|round| &round.watched)
                .filter(|watched| watched.domain == domain)
                .filter_map(|watched| watched.guest.as_ref())
                .any(|guest| guest.accelerator == Accelerator::Tcg)
    }

    /// Returns the name of a domain before its figures. Emulated domains are marked, in text only if
    /// other domains are not emulated.
    pub(crate) fn name(&self, domain: &str) -> Text {
        let name = Text::from(domain);
        if !self.is_emulated(domain) {
            return name;
        }
        let all = self.domains.iter().all(|domain| self.is_emulated(domain));
        let style = if all {
            SpanStyle::Faint
        } else {
            SpanStyle::Plain
        };
        name.and(style, " emulated")
    }
}

/// Returns each value once, in the order of the first occurrences.
pub(crate) fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
