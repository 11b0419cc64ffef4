// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules that a plan has to keep, each with a name by which it can be waived.

mod boot;
mod caches;
mod cells;
mod cores;
mod guests;
mod host;
mod isolation;
mod limits;
mod memory;
mod owners;
mod priorities;
mod table;

use rampart_model::{
    Enforcement, Environment, Finding, KnobAction, Machine, Plan, PlanFinding, PlannedDomain,
    PreemptionModel, ResolvedDomain, ResolvedPlan, Severity,
};
use rampart_rules::{Division, Expected, Indivisible, Isolation, When};

use crate::claims::{Claim, Claims};

pub use table::{RULES, Rule};

/// What rules decide by.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) plan: &'a Plan,
    pub(crate) environment: &'a Environment,
    pub(crate) claims: &'a Claims,
    /// Without findings.
    pub(crate) resolved: &'a ResolvedPlan,
    /// The caches as the shares of the plan divide them, where that is known.
    pub(crate) division: Option<&'a Result<Division, Box<Indivisible>>>,
}

/// A domain as planned, as it asked, and as it was resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Each<'a> {
    pub(crate) planned: &'a PlannedDomain,
    pub(crate) claim: &'a Claim,
    pub(crate) resolved: &'a ResolvedDomain,
}

impl<'a> Context<'a> {
    /// The domains in the order of the plan.
    pub(crate) fn domains(&self) -> impl Iterator<Item = Each<'a>> + use<'a> {
        self.plan
            .domains
            .iter()
            .zip(&self.claims.domains)
            .zip(&self.resolved.domains)
            .map(|((planned, claim), resolved)| Each {
                planned,
                claim,
                resolved,
            })
    }

    /// What Rampart sets this knob to, as it does where the plan says nothing; none where the plan
    /// leaves it to others, and where the machine's kernel is not one that it is for.
    pub(crate) fn wanted(&self, knob: &str) -> Option<Expected> {
        let is_named = self.plan.host.contains_key(knob);
        if self.leaves(knob) || (rampart_rules::is_safety_net(knob) && !is_named) {
            return None;
        }
        let knob = rampart_rules::named(knob)?;
        let real_time = self.machine.preemption == PreemptionModel::RealTime;
        let for_others = knob.applies.iter().any(|when| match when {
            When::RealTimeKernel => !real_time,
            When::OrdinaryKernel => real_time,
            _ => false,
        });
        (!for_others).then(|| knob.expected_by(&Isolation::of(self.resolved)))
    }

    /// Whether the plan leaves this knob to somebody else, or as it is.
    pub(crate) fn leaves(&self, knob: &str) -> bool {
        rampart_rules::chosen(&self.plan.host, knob)
            .is_some_and(|choice| choice.action != KnobAction::Apply)
    }

    /// Whether the plan leaves what it asks for itself to somebody else, by the knob's name.
    pub(crate) fn leaves_by_name(&self, knob: &str) -> bool {
        let choice = self.plan.host.get(knob);
        choice.is_some_and(|choice| choice.action != KnobAction::Apply)
    }

    /// Whether the plan names this knob, for Rampart to give it a value.
    pub(crate) fn asks_for(&self, knob: &str) -> bool {
        let wanted = self
            .wanted(knob)
            .filter(|wanted| *wanted != Expected::Informational);
        wanted.is_some() && rampart_rules::chosen(&self.plan.host, knob).is_some()
    }
}

/// A finding about a domain.
pub(crate) fn about(
    rule: &'static str,
    domain: &PlannedDomain,
    severity: Severity,
    what: impl Into<String>,
) -> PlanFinding {
    let location = format!("domain `{}`", domain.name);
    PlanFinding {
        domain: Some(domain.name.clone()),
        ..machine(rule, severity, location, what)
    }
}

/// A finding about the machine.
pub(crate) fn machine(
    rule: &'static str,
    severity: Severity,
    location: impl Into<String>,
    what: impl Into<String>,
) -> PlanFinding {
    PlanFinding {
        rule: rule.to_owned(),
        domain: None,
        finding: Finding::new(severity, location, what),
        waived: None,
        impossible: false,
    }
}

/// A note about the machine: what a rule needs to know is not known.
pub(crate) fn unknown(
    rule: &'static str,
    location: impl Into<String>,
    what: impl Into<String>,
    needed: impl Into<String>,
    fix: impl Into<String>,
) -> PlanFinding {
    machine(rule, Severity::Note, location, what)
        .values("not read", needed)
        .fix(fix)
}

/// The same about a domain.
pub(crate) fn unknown_of(
    rule: &'static str,
    domain: &PlannedDomain,
    what: impl Into<String>,
    needed: impl Into<String>,
    fix: impl Into<String>,
) -> PlanFinding {
    about(rule, domain, Severity::Note, what)
        .values("not read", needed)
        .fix(fix)
}

/// What [`PlanFinding`]s are made with.
pub(crate) trait Say: Sized {
    fn values(self, present: impl Into<String>, needed: impl Into<String>) -> Self;
    fn fix(self, fix: impl Into<String>) -> Self;
    /// It cannot work like this, whoever waives it.
    fn impossible(self) -> Self;
}

impl Say for PlanFinding {
    fn values(mut self, present: impl Into<String>, needed: impl Into<String>) -> Self {
        self.finding = self.finding.values(present, needed);
        self
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.finding = self.finding.fix(fix);
        self
    }

    fn impossible(mut self) -> Self {
        self.impossible = true;
        self
    }
}

/// All findings, the gravest first, with the plan's waivers and its mildness applied.
pub(crate) fn check(context: &Context<'_>) -> Vec<PlanFinding> {
    let mut findings: Vec<PlanFinding> = RULES
        .iter()
        .flat_map(|rule| (rule.check)(context))
        .map(|finding| forgive(context.plan, finding))
        .collect();
    findings.extend(unused_waivers(context.plan, &findings));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.finding.severity));
    findings
}

fn forgive(plan: &Plan, mut finding: PlanFinding) -> PlanFinding {
    if finding.impossible || finding.finding.severity == Severity::Note {
        return finding;
    }
    finding.waived = plan
        .waivers
        .iter()
        .find(|waiver| {
            waiver.rule == finding.rule
                && (waiver.domain.is_none() || waiver.domain == finding.domain)
        })
        .map(|waiver| waiver.reason.clone());
    if plan.machine.policy == Enforcement::Warn && finding.finding.severity == Severity::Error {
        finding.finding.severity = Severity::Warning;
    }
    finding
}

/// A waiver that nothing needs hides what comes later.
fn unused_waivers(plan: &Plan, findings: &[PlanFinding]) -> Vec<PlanFinding> {
    plan.waivers
        .iter()
        .filter(|waiver| {
            !findings.iter().any(|finding| {
                finding.waived.is_some()
                    && finding.rule == waiver.rule
                    && (waiver.domain.is_none() || waiver.domain == finding.domain)
            })
        })
        .filter_map(|waiver| {
            let rule = RULES.iter().find(|rule| rule.name == waiver.rule)?;
            let what = "the plan waives a rule that it does not break";
            let finding = machine(rule.name, Severity::Note, "[[waive]]", what)
                .values(waiver.rule.clone(), "no waiver")
                .fix("remove it, so that it hides nothing later");
            Some(finding)
        })
        .collect()
}
