// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tool has no words for, collected while its files are written.

use rampart_model::{Finding, PlannedDomain, Severity};

use super::field::{self, DomainField, MachineField};
use super::{MARK, Subject, words};

/// What a tool makes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Its files say it.
    Said,
    /// It is no matter for the tool: Rampart's own judgement, or decided by now.
    Apart(&'static str),
    /// The tool has no word for it; why, and what does it instead.
    Lost(&'static str, &'static str),
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// The domain that it is about; none: the machine.
    domain: Option<String>,
    finding: Finding,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    /// What the tool answers for everything that the plan says of the machine.
    pub(super) fn of_machine(
        &mut self,
        subject: &Subject<'_>,
        answer: impl Fn(MachineField) -> Answer,
    ) {
        let fields = field::of_machine(subject.plan);
        let answers = fields.iter().map(|field| (field.word(), answer(*field)));
        self.answers(None, answers);
    }

    /// The same for a domain.
    pub(super) fn of_domain(
        &mut self,
        domain: &PlannedDomain,
        answer: impl Fn(DomainField) -> Answer,
    ) {
        let fields = field::of_domain(domain);
        let answers = fields.iter().map(|field| (field.word(), answer(*field)));
        self.answers(Some(&domain.name), answers);
    }

    /// Fields with the same answer are told together.
    fn answers(
        &mut self,
        domain: Option<&str>,
        answers: impl Iterator<Item = (&'static str, Answer)>,
    ) {
        let mut told: Vec<(Answer, Vec<&str>)> = Vec::new();
        for (word, answer) in answers.filter(|(_, answer)| *answer != Answer::Said) {
            match told.iter_mut().find(|(same, _)| *same == answer) {
                Some((_, words)) => words.push(word),
                None => told.push((answer, vec![word])),
            }
        }
        for (answer, words) in told {
            let of = domain.map_or("the machine".to_owned(), |name| format!("domain `{name}`"));
            let location = format!("{of}, {}", words.join(", "));
            let finding = match answer {
                Answer::Said => continue,
                Answer::Apart(what) => Finding::new(Severity::Note, location, what),
                Answer::Lost(what, fix) => Finding::new(Severity::Warning, location, what).fix(fix),
            };
            self.add(domain, finding);
        }
    }

    /// Something that no single field is about.
    pub(super) fn add(&mut self, domain: Option<&str>, finding: Finding) {
        self.0.push(Gap {
            domain: domain.map(str::to_owned),
            finding,
        });
    }

    /// A domain that is not written at all, and why.
    pub(super) fn not_written(&mut self, domain: &PlannedDomain, why: String, fix: &str) {
        let location = format!("domain `{}`", domain.name);
        let finding = Finding::new(Severity::Warning, location, format!("not written: {why}"));
        self.add(Some(&domain.name), finding.fix(fix));
    }

    /// The findings for who asked.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.0.into_iter().map(|gap| gap.finding).collect()
    }

    /// The findings about one domain.
    pub(super) fn of(&self, domain: &str) -> Vec<Finding> {
        self.0
            .iter()
            .filter(|gap| gap.domain.as_deref() == Some(domain))
            .map(|gap| gap.finding.clone())
            .collect()
    }

    /// The head of a file: what it is, and what it does not say of the machine or of one domain.
    /// Each line stands alone; the caller makes comments of them.
    pub(super) fn head(&self, tool: &str, subject: &Subject<'_>, part: Part<'_>) -> Vec<String> {
        let mut lines = vec![format!(
            "{MARK} {tool} from {}.",
            subject.file.escape_debug()
        )];
        if matches!(part, Part::Nothing) {
            return lines;
        }
        let told: Vec<String> = self
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
        if !told.is_empty() {
            lines.push("What this file does not say:".to_owned());
            lines.extend(told);
        }
        lines
    }
}

/// Of what a file tells the gaps.
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
