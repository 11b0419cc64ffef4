// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From leg to leg: takes the plan back, and applies what the next leg needs of it. Whatever ends
//! the evaluation, the plan is taken back; where it is killed, `rampart release` does it.

use std::collections::BTreeMap;
use std::slice;

use rampart_domain::IsolationChoice;
use rampart_model::{
    EvaluatedDomain, Finding, PlanChange, PlanVariant, Severity, StepKind, VariantSettings,
};

use super::PlanSwitch;

/// A leg that could not be entered this often is left out.
const FAILURES_BEFORE_GIVING_UP: u32 = 2;

/// Which leg stands.
#[derive(Debug)]
pub(crate) struct Switching<'a> {
    switch: Option<&'a dyn PlanSwitch>,
    variants: Vec<VariantSettings>,
    /// The leg that the last visit was to, and whether it stands.
    present: Option<(usize, bool)>,
    /// Whether something of the plan may stand.
    applied: bool,
    failures: BTreeMap<usize, u32>,
    /// What came up, each once.
    findings: Vec<Finding>,
    told: usize,
    /// Something could not be taken back: whatever is measured from then on is of no leg.
    lost: bool,
}

impl<'a> Switching<'a> {
    /// Nothing of the plan stands.
    pub(crate) fn new(switch: Option<&'a dyn PlanSwitch>, variants: &[VariantSettings]) -> Self {
        Self {
            switch,
            variants: variants.to_vec(),
            present: None,
            applied: false,
            failures: BTreeMap::new(),
            findings: Vec::new(),
            told: 0,
            lost: false,
        }
    }

    /// Whether another leg than the present one is next, so that what is up has to go first.
    pub(crate) fn changes(&self, variant: usize) -> bool {
        !self.variants.is_empty() && self.present.is_none_or(|(present, _)| present != variant)
    }

    /// Brings the machine into a leg; whether it is. Nothing of a domain may be up where
    /// [`Self::changes`].
    pub(crate) fn enter(&mut self, variant: usize) -> bool {
        if !self.changes(variant) {
            return self.present.is_none_or(|(_, stands)| stands);
        }
        self.take_back();
        let given_up = |count: &u32| *count >= FAILURES_BEFORE_GIVING_UP;
        let stands =
            !self.lost && !self.failures.get(&variant).is_some_and(given_up) && self.apply(variant);
        self.present = Some((variant, stands));
        stands
    }

    /// Whether nothing can be compared any more.
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
            self.find(Finding::new(
                Severity::Error,
                plan.to_string(),
                "this caller cannot apply plans",
            ));
            return false;
        };
        self.applied = true;
        match switch.apply(leave_out) {
            Ok(standing) => {
                for finding in standing.findings {
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
                self.take_back();
                false
            }
        }
    }

    /// Takes back what stands of the plan.
    pub(crate) fn take_back(&mut self) {
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

    /// What came up since it was asked last.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        let new = self.findings.get(self.told..).unwrap_or_default().to_vec();
        self.told = self.findings.len();
        new
    }

    /// The wall of a domain in a leg.
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
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::ActivePlan;
    use std::cell::RefCell;

    /// Writes down what is asked of it.
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
    fn each_leg_is_applied_once_a_visit_and_taken_back_at_the_end() {
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
    fn a_leg_that_is_refused_is_taken_back_and_given_up_after_twice() {
        let fake = Fake {
            refuses: Some("a"),
            ..Fake::default()
        };
        let mut switching = Switching::new(Some(&fake), &variants());
        for _ in 0..3 {
            assert!(!switching.enter(2) && !switching.enter(2));
            assert!(switching.enter(1));
        }
        let told = switching.findings();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].what.contains("without a: refused"));
        assert!(switching.findings().is_empty() && !switching.is_lost());
        assert_eq!(*fake.asked.borrow(), ["apply -a", "release"].repeat(2));
    }

    #[test]
    fn nothing_is_measured_any_more_when_the_plan_cannot_be_taken_back() {
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
    fn without_legs_nothing_is_switched() {
        let fake = Fake::default();
        let mut switching = Switching::new(Some(&fake), &[]);
        assert!(!switching.changes(0) && switching.enter(0));
        drop(switching);
        assert!(fake.asked.borrow().is_empty());
    }
}
