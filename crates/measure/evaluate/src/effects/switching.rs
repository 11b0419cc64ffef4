// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches between variants of a plan: reverts the plan and applies the next variant. The plan is
//! reverted when the evaluation ends; if the process is killed, `rampart release` reverts it.

use std::collections::BTreeMap;
use std::slice;

use rampart_domain::IsolationChoice;
use rampart_model::{
    EvaluatedDomain, Finding, PlanChange, PlanVariant, Severity, StepKind, VariantSettings,
};

use super::PlanSwitch;

/// A variant that failed to apply this often is left out.
const FAILURES_BEFORE_GIVING_UP: u32 = 2;

/// The variant that is in effect.
#[derive(Debug)]
pub(crate) struct Switching<'a> {
    switch: Option<&'a dyn PlanSwitch>,
    variants: Vec<VariantSettings>,
    /// The variant of the last visit, and whether it is in effect.
    present: Option<(usize, bool)>,
    /// Whether a part of the plan may be in effect.
    applied: bool,
    failures: BTreeMap<usize, u32>,
    /// All findings so far, each once.
    findings: Vec<Finding>,
    reported: usize,
    /// Whether a setting could not be reverted: later measurements belong to no variant.
    lost: bool,
}

impl<'a> Switching<'a> {
    /// Creates the state in which no part of the plan is in effect.
    pub(crate) fn new(switch: Option<&'a dyn PlanSwitch>, variants: &[VariantSettings]) -> Self {
        Self {
            switch,
            variants: variants.to_vec(),
            present: None,
            applied: false,
            failures: BTreeMap::new(),
            findings: Vec::new(),
            reported: 0,
            lost: false,
        }
    }

    /// Returns whether the next variant differs from the present one, so that running domains must
    /// end first.
    pub(crate) fn changes(&self, variant: usize) -> bool {
        !self.variants.is_empty() && self.present.is_none_or(|(present, _)| present != variant)
    }

    /// Switches the machine to a variant and returns whether that succeeded. No domain may run if
    /// [`Self::changes`] is true.
    pub(crate) fn enter(&mut self, variant: usize) -> bool {
        if !self.changes(variant) {
            return self.present.is_none_or(|(_, active)| active);
        }
        self.revert();
        let given_up = |count: &u32| *count >= FAILURES_BEFORE_GIVING_UP;
        let active =
            !self.lost && !self.failures.get(&variant).is_some_and(given_up) && self.apply(variant);
        self.present = Some((variant, active));
        active
    }

    /// Returns whether no comparison is possible any more.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    fn apply(&mut self, variant: usize) -> bool {
        let Some(plan) = self.variants.get(variant).map(|plan| plan.variant.clone()) else {
            return false;
        };
        let leave_out: &[PlanChange] = match &plan {
            PlanVariant::Before => return true,
            PlanVariant::After => &[],
            PlanVariant::Without(change) => slice::from_ref(change),
        };
        let Some(switch) = self.switch else {
            return false;
        };
        self.applied = true;
        match switch.apply(leave_out) {
            Ok(plan) => {
                for finding in plan.findings {
                    self.find(finding);
                }
                true
            }
            Err(why) => {
                self.find(Finding {
                    severity: Severity::Error,
                    what: format!("{plan}: {}", why.what),
                    ..*why
                });
                *self.failures.entry(variant).or_default() += 1;
                self.revert();
                false
            }
        }
    }

    /// Reverts the part of the plan that is in effect.
    pub(crate) fn revert(&mut self) {
        self.present = None;
        let Some(switch) = self.switch.filter(|_| self.applied) else {
            return;
        };
        match switch.release() {
            Ok(left) => {
                self.applied = false;
                for finding in left {
                    self.find(finding);
                }
            }
            Err(why) => {
                self.lost = true;
                self.find(*why);
            }
        }
    }

    fn find(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Returns the findings since the last call.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        let new = self
            .findings
            .get(self.reported..)
            .unwrap_or_default()
            .to_vec();
        self.reported = self.findings.len();
        new
    }

    /// Returns the isolation of a domain in a variant.
    pub(crate) fn isolation(&self, variant: usize, domain: &EvaluatedDomain) -> IsolationChoice {
        match self.variants.get(variant).map(|plan| &plan.variant) {
            Some(PlanVariant::Before) => IsolationChoice::Bare,
            Some(PlanVariant::Without(change))
                if change.kind == StepKind::Isolation && change.name == domain.name =>
            {
                IsolationChoice::Bare
            }
            _ => IsolationChoice::Usual,
        }
    }
}

impl Drop for Switching<'_> {
    fn drop(&mut self) {
        self.revert();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::ActivePlan;
    use std::cell::RefCell;

    /// Records all calls.
    #[derive(Debug, Default)]
    struct Fake {
        asked: RefCell<Vec<String>>,
        refuses: Option<&'static str>,
        keeps: bool,
    }

    impl PlanSwitch for Fake {
        fn apply(&self, leave_out: &[PlanChange]) -> Result<ActivePlan, Box<Finding>> {
            let names: Vec<&str> = leave_out.iter().map(|change| &*change.name).collect();
            self.asked
                .borrow_mut()
                .push(format!("apply -{}", names.join(",")));
            if self.refuses.is_some_and(|name| names.contains(&name)) {
                return Err(Box::new(Finding::new(Severity::Error, "/sys/x", "refused")));
            }
            Ok(serde_json::from_value(serde_json::json!({
                "schema_version": 1, "tool_version": "0", "state": "active", "applied_at": 0,
                "boot": "", "file": "", "text": "",
                "resolved": {
                    "schema_version": 1, "fingerprint": "", "housekeeping": "0", "real_time": "1",
                    "smt": "idle-sibling", "cpus": [], "domains": [], "interrupts": [],
                    "caches": [], "nodes": [], "host": {}, "boot": {}, "findings": []
                },
                "domains": [],
                "changes": {
                    "schema_version": 1, "tool_version": "0", "steps": [], "boot_arguments": []
                }
            }))
            .expect("an active plan"))
        }

        fn release(&self) -> Result<Vec<Finding>, Box<Finding>> {
            self.asked.borrow_mut().push("release".to_owned());
            if self.keeps {
                return Err(Box::new(Finding::new(
                    Severity::Error,
                    "/sys/x",
                    "it stays",
                )));
            }
            Ok(Vec::new())
        }
    }

    fn variants() -> Vec<VariantSettings> {
        let without = |name: &str| {
            PlanVariant::Without(PlanChange {
                kind: StepKind::Knob,
                name: name.to_owned(),
                title: String::new(),
            })
        };
        [
            PlanVariant::After,
            PlanVariant::Before,
            without("a"),
            without("b"),
        ]
        .into_iter()
        .map(|variant| VariantSettings { variant, visits: 1 })
        .collect()
    }

    #[test]
    fn applies_each_variant_once_per_visit_and_reverts_the_last() {
        let fake = Fake::default();
        {
            let mut switching = Switching::new(Some(&fake), &variants());
            for variant in [0, 0, 2, 2, 1, 1, 3] {
                assert!(switching.enter(variant));
            }
        }
        assert_eq!(
            *fake.asked.borrow(),
            [
                "apply -", "release", "apply -a", "release", "apply -b", "release"
            ]
        );
    }

    #[test]
    fn reverts_a_refused_variant_and_gives_up_after_two_failures() {
        let fake = Fake {
            refuses: Some("a"),
            ..Fake::default()
        };
        let mut switching = Switching::new(Some(&fake), &variants());
        for _ in 0..3 {
            assert!(!switching.enter(2) && !switching.enter(2));
            assert!(switching.enter(1));
        }
        let reported = switching.findings();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].what.contains("without a: refused"));
        assert!(switching.findings().is_empty() && !switching.is_lost());
        assert_eq!(*fake.asked.borrow(), ["apply -a", "release"].repeat(2));
    }

    #[test]
    fn enters_no_variant_after_a_failed_release() {
        let fake = Fake {
            keeps: true,
            ..Fake::default()
        };
        let mut switching = Switching::new(Some(&fake), &variants());
        assert!(switching.enter(0));
        assert!(!switching.enter(1) && switching.is_lost());
        assert!(!switching.enter(0));
    }

    #[test]
    fn switches_nothing_without_variants() {
        let fake = Fake::default();
        let mut switching = Switching::new(Some(&fake), &[]);
        assert!(!switching.changes(0) && switching.enter(0));
        drop(switching);
        assert!(fake.asked.borrow().is_empty());
    }
}
