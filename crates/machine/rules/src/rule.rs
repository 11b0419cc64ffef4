// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The static part of every judgement: its id, its severity, its text and its source.
//!
//! A rule is defined once, in one of the books of this crate. Every [`Finding`] of a rule is
//! created by the rule, so that no caller repeats its severity.

use rampart_model::{Finding, Severity};

/// One judgement of a machine, a guest, a plan or a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Stable id: lower-case words joined by hyphens. Plans name it in `waive` and `apply`.
    pub id: &'static str,
    /// What the rule reads or judges.
    pub book: RuleBook,
    /// Severity of every decided finding of this rule.
    pub severity: Severity,
    /// What is expected, in a few words without a full stop.
    pub title: &'static str,
    /// Why it is expected.
    pub reason: &'static str,
    /// Where the rule comes from: kernel document, profile, paper, thread.
    pub source: &'static str,
    /// Whether a plan may waive it.
    pub waivable: bool,
}

/// What a rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleBook {
    /// A machine: the catalogue of knobs and the facts that several files of the kernel show.
    Machine,
    /// A KVM guest and its host's readiness for it.
    Guest,
    /// A machine that hosts cells.
    Cells,
    /// The user who runs a command.
    Caller,
    /// A plan before it is applied.
    Plan,
    /// The active plan compared with the machine.
    State,
}

impl Rule {
    /// Returns a finding of this rule: its id and its severity.
    #[must_use]
    pub fn finding(&self, location: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding {
            rule: Some(self.id.to_owned()),
            ..Finding::new(self.severity, location, what)
        }
    }

    /// Returns a note that this rule could not be decided, because something could not be read.
    #[must_use]
    pub fn undecided(&self, location: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding {
            rule: Some(self.id.to_owned()),
            undecided: true,
            ..Finding::new(Severity::Note, location, what)
        }
    }
}

/// Returns every rule of every book.
pub fn all_rules() -> impl Iterator<Item = Rule> {
    let of_plans = crate::PLAN_RULES
        .into_iter()
        // Plans are judged by some knobs too.
        .filter(|rule| rule.book == RuleBook::Plan);
    let of_states = crate::STATE_RULES.into_iter().map(|rule| rule.rule);
    crate::all()
        .map(crate::Knob::rule)
        .chain(crate::cells::CELL_RULES)
        .chain(crate::ROOT_RULES)
        .chain(of_plans)
        .chain(of_states)
}

/// Returns the rule with this id.
#[must_use]
pub fn rule(id: &str) -> Option<Rule> {
    all_rules().find(|rule| rule.id == id)
}
