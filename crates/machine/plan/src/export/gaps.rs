// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the fields that a tool does not support.

use rampart_model::{Finding, PlannedDomain, Severity};

use super::answers::{Answer, DomainAnswers, MachineAnswers};
use super::{ExportSubject, MARK, field, words};

/// One unsupported field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Its domain; `None` for the machine.
    domain: Option<String>,
    finding: Finding,
}

/// The unsupported fields of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    /// Adds the tool's answers for the machine.
    pub(super) fn of_machine(&mut self, subject: &ExportSubject<'_>, tool: &MachineAnswers) {
        let fields = field::of_machine(subject.plan);
        let answers = fields.iter().map(|field| (field.word(), tool.of(*field)));
        self.answers(None, answers);
    }

    /// Adds the tool's answers for a domain.
    pub(super) fn of_domain(&mut self, domain: &PlannedDomain, tool: &DomainAnswers) {
        let fields = field::of_domain(domain);
        let answers = fields.iter().map(|field| (field.word(), tool.of(*field)));
        self.answers(Some(&domain.name), answers);
    }

    /// Adds one finding for all fields with the same answer.
    fn answers(
        &mut self,
        domain: Option<&str>,
        answers: impl Iterator<Item = (&'static str, Answer)>,
    ) {
        let mut groups: Vec<(Answer, Vec<&str>)> = Vec::new();
        for (word, answer) in answers.filter(|(_, answer)| *answer != Answer::Supported) {
            match groups.iter_mut().find(|(same, _)| *same == answer) {
                Some((_, words)) => words.push(word),
                None => groups.push((answer, vec![word])),
            }
        }
        for (answer, words) in groups {
            let of = domain.map_or("the machine".to_owned(), |name| format!("domain `{name}`"));
            let location = format!("{of}, {}", words.join(", "));
            let finding = match answer {
                Answer::Supported => continue,
                Answer::NotConcerned(what) => Finding::new(Severity::Note, location, what),
                Answer::Unsupported(what, fix) => {
                    Finding::new(Severity::Warning, location, what).fix(fix)
                }
            };
            self.add(domain, finding);
        }
    }

    /// Adds a finding that is not about a single field.
    pub(super) fn add(&mut self, domain: Option<&str>, finding: Finding) {
        self.0.push(Gap {
            domain: domain.map(str::to_owned),
            finding,
        });
    }

    /// Adds a domain that is not written, with the reason.
    pub(super) fn not_written(&mut self, domain: &PlannedDomain, why: String, fix: &str) {
        let location = format!("domain `{}`", domain.name);
        let finding = Finding::new(Severity::Warning, location, format!("not written: {why}"));
        self.add(Some(&domain.name), finding.fix(fix));
    }

    /// Returns all findings.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.0.into_iter().map(|gap| gap.finding).collect()
    }

    /// Returns the findings about one domain.
    pub(super) fn of(&self, domain: &str) -> Vec<Finding> {
        self.0
            .iter()
            .filter(|gap| gap.domain.as_deref() == Some(domain))
            .map(|gap| gap.finding.clone())
            .collect()
    }

    /// Returns the lines at the top of a file: its source, and the fields that it does not support. The
    /// caller formats them as comments.
    pub(super) fn head(
        &self,
        tool: &str,
        subject: &ExportSubject<'_>,
        part: Part<'_>,
    ) -> Vec<String> {
        let mut lines = vec![format!(
            "{MARK} {tool} from {}.",
            subject.file.escape_debug()
        )];
        if matches!(part, Part::Nothing) {
            return lines;
        }
        let unsupported: Vec<String> = self
            .0
            .iter()
            .filter(|gap| match part {
                Part::Machine => gap.domain.is_none(),
                Part::Domain(name) => gap.domain.as_deref() == Some(name),
                Part::All => true,
                Part::Nothing => false,
            })
            .flat_map(|gap| words::listed(&gap.finding.to_string()))
            .collect();
        if !unsupported.is_empty() {
            lines.push("Not supported by this file:".to_owned());
            lines.extend(unsupported);
        }
        lines
    }
}

/// The part of a plan that a file reports on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    /// The machine.
    Machine,
    /// One domain.
    Domain(&'a str),
    /// Everything.
    All,
    /// Nothing: another file does.
    Nothing,
}
