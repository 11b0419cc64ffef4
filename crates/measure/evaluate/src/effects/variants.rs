// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives the variants that a plan is compared with, and the time that they need. Pure.

use rampart_model::{
    ChangeStep, EvaluationPart, Finding, Nanos, NotMeasured, PlanChange, PlanVariant, Severity,
    StepAction, StepKind, VariantSettings,
};

use super::PlanRequest;
use crate::EvaluateError;
use crate::matrix_time::{RunLimits, share_time, time_needed};
use crate::measuring_costs::MeasuringCosts;

/// Fewest runs of a variant; with fewer, the spread between runs is hardly known.
pub(crate) const FEWEST_REPETITIONS: u64 = 4;
/// Repetitions unless a time is given.
const USUAL_REPETITIONS: u64 = 5;
/// Length of a run unless a time is given.
const USUAL_RUN: Nanos = Nanos::from_secs(2);

/// The variants of a comparison.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Variants {
    /// The variants; empty if nothing is compared.
    pub(crate) variants: Vec<VariantSettings>,
    /// The changes that applying the plan makes.
    pub(crate) changes: Vec<PlanChange>,
    /// Parts of the plan that are the same in all variants.
    pub(crate) not_compared: Vec<NotMeasured>,
}

impl Variants {
    /// Returns the variants of a request.
    pub(crate) fn of(request: &PlanRequest) -> Self {
        if !request.compares() {
            return Self::default();
        }
        let changes: Vec<PlanChange> = request
            .steps
            .iter()
            .filter(|step| is_switched(step))
            .map(change)
            .collect();
        let others: Vec<PlanVariant> = request
            .before_after
            .then_some(PlanVariant::Before)
            .into_iter()
            .chain(
                changes
                    .iter()
                    .filter(|_| request.ablate)
                    .cloned()
                    .map(PlanVariant::Without),
            )
            .collect();
        let after = VariantSettings {
            variant: PlanVariant::After,
            visits: visits(others.len()),
        };
        let others = others
            .into_iter()
            .map(|variant| VariantSettings { variant, visits: 1 });
        Self {
            variants: [after].into_iter().chain(others).collect(),
            changes,
            not_compared: request.steps.iter().filter_map(same_in_all).collect(),
        }
    }

    /// Returns the number of turns of one repetition.
    fn turns(&self) -> u64 {
        self.variants
            .iter()
            .map(|variant| u64::from(variant.visits))
            .sum()
    }
}

/// Returns how often to measure the whole plan for each visit of the other variants. If one
/// treatment is compared with each of k others, √k times as many samples of it are optimal (C. W.
/// Dunnett, "A multiple comparison procedure for comparing several treatments with a control",
/// 1955).
fn visits(others: usize) -> u32 {
    ((others as f64).sqrt().round() as u32).max(1)
}

fn is_switched(step: &ChangeStep) -> bool {
    step.action == StepAction::Apply && step.kind != StepKind::KernelCommandLine
}

fn change(step: &ChangeStep) -> PlanChange {
    PlanChange {
        kind: step.kind,
        name: step.name.clone(),
        title: step.title.clone(),
    }
}

/// Returns why a step is not part of the comparison. Returns `None` if it is, if the plan leaves
/// the setting alone, or if the setting already has the wanted value.
fn same_in_all(step: &ChangeStep) -> Option<NotMeasured> {
    let why = match step.action {
        _ if is_switched(step) => return None,
        // The setting is the same with and without the plan.
        StepAction::Skip | StepAction::AsWanted => return None,
        StepAction::Expect => "the plan expects it from another program, which has not made it",
        StepAction::ByHand => "it is made manually and cannot change between runs",
        StepAction::Apply | StepAction::AtRestart => {
            "it needs a restart, so all variants run with its present value"
        }
    };
    let mut finding =
        Finding::new(Severity::Note, step.name.as_str(), why).values(&*step.present, &*step.wanted);
    if let Some(fix) = &step.fix {
        finding = finding.fix(fix.as_str());
    }
    Some(NotMeasured {
        part: EvaluationPart::Change(change(step)),
        findings: vec![finding],
    })
}

/// Returns the total time, the repetitions, and the length of a run. Without a requested time, the
/// total is the time that the comparison needs.
///
/// # Errors
/// Returns an error if the requested time is too short for the fewest short runs of each variant.
pub(crate) fn share_time_of_variants(
    variants: &Variants,
    entries: u64,
    total: Option<Nanos>,
    costs: &MeasuringCosts,
) -> Result<(Nanos, u32, Nanos), EvaluateError> {
    let entries = entries.max(1);
    let runs = entries.saturating_mul(variants.turns());
    // Compared with the machine without a plan, each turn applies or reverts one plan. Between two
    // plans, each turn reverts one and applies the next.
    let switches = if variants.variants.len() > 2 { 2 } else { 1 };
    let overhead = costs.run_overhead + Nanos(costs.switch.0 * switches / entries);
    let limits = RunLimits {
        overhead,
        ..RunLimits::of_new_meters(costs)
    };
    let total = total.unwrap_or_else(|| {
        time_needed(runs, USUAL_REPETITIONS, USUAL_RUN + overhead).max(costs.total)
    });
    let too_short = || EvaluateError::TooShortToCompare {
        total,
        variants: variants.variants.len(),
        needed: time_needed(runs, FEWEST_REPETITIONS, Nanos::SECOND + overhead),
    };
    let (repetitions, run) = share_time(total, runs, limits).map_err(|_| too_short())?;
    if u64::from(repetitions) < FEWEST_REPETITIONS {
        return Err(too_short());
    }
    Ok((total, repetitions, run))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rampart_model::{MachineSection, Plan};

    pub(crate) fn step(kind: StepKind, name: &str, action: StepAction) -> ChangeStep {
        ChangeStep {
            kind,
            name: name.to_owned(),
            title: format!("what {name} is"),
            action,
            why: String::new(),
            present: "0".to_owned(),
            wanted: "1".to_owned(),
            locations: Vec::new(),
            disruptive: None,
            fix: None,
            source: String::new(),
        }
    }

    pub(crate) fn request(before_after: bool, ablate: bool, knobs: usize) -> PlanRequest {
        let knobs = (0..knobs)
            .map(|number| step(StepKind::Knob, &format!("knob-{number}"), StepAction::Apply));
        PlanRequest {
            file: "plan.toml".to_owned(),
            plan: Plan {
                machine: MachineSection::default(),
                ..Plan::default()
            },
            resolved: serde_json::from_value(serde_json::json!({
                "schema_version": 1, "fingerprint": "", "housekeeping": "0", "real_time": "1",
                "smt": "idle-sibling", "cpus": [], "domains": [], "interrupts": [], "caches": [],
                "nodes": [], "host": {}, "boot": {}, "findings": []
            }))
            .expect("a resolved plan"),
            names: Vec::new(),
            before_after,
            ablate,
            steps: [
                step(StepKind::Isolation, "press", StepAction::Apply),
                step(
                    StepKind::KernelCommandLine,
                    "nohz_full",
                    StepAction::AtRestart,
                ),
                step(StepKind::Knob, "swappiness", StepAction::AsWanted),
                step(StepKind::Knob, "governor", StepAction::Skip),
            ]
            .into_iter()
            .chain(knobs)
            .collect(),
        }
    }

    #[test]
    fn derives_a_variant_from_each_applied_change_and_lists_the_others() {
        let variants = Variants::of(&request(true, true, 8));
        assert_eq!(variants.changes.len(), 9);
        // 10 others: before, the isolation, eight knobs.
        assert_eq!(variants.variants.len(), 11);
        assert_eq!(variants.variants[0].visits, 3);
        assert_eq!(variants.turns(), 13);
        let [one] = &variants.not_compared[..] else {
            panic!("{:?}", variants.not_compared);
        };
        let EvaluationPart::Change(change) = &one.part else {
            panic!("{one:?}");
        };
        assert_eq!(change.to_string(), "kernel command line nohz_full");
        assert!(
            variants.not_compared[0].findings[0]
                .what
                .contains("restart")
        );
        assert_eq!(
            variants.variants[2].variant.prefix(),
            "without isolation of press/"
        );

        let two = Variants::of(&request(true, false, 8));
        assert_eq!((two.variants.len(), two.turns()), (2, 2));
        assert_eq!(Variants::of(&request(false, false, 8)), Variants::default());
    }

    #[test]
    fn recognises_the_active_plan_by_its_settings() {
        let request = request(false, false, 0);
        let mut active = request.resolved.clone();
        active.fingerprint = "of another day".to_owned();
        assert!(request.is(&active));
        let skip = serde_json::from_value(serde_json::json!({ "action": "skip" }));
        active
            .host
            .insert("swappiness".to_owned(), skip.expect("a choice"));
        assert!(!request.is(&active));
    }

    #[test]
    fn ablation_includes_the_time_to_switch_two_plans() {
        let needed = |ablate: bool| {
            let variants = Variants::of(&request(!ablate, ablate, 1));
            assert_eq!(variants.variants.len(), if ablate { 3 } else { 2 });
            let least = share_time_of_variants(
                &variants,
                1,
                Some(Nanos::SECOND),
                &MeasuringCosts::EMULATED,
            );
            let Err(EvaluateError::TooShortToCompare { needed, .. }) = least else {
                panic!("a second is enough");
            };
            needed.0 / variants.turns()
        };
        assert!(needed(true) > needed(false) + MeasuringCosts::EMULATED.switch.0);
    }

    #[test]
    fn reports_the_sufficient_time_if_the_time_is_too_short() {
        let variants = Variants::of(&request(false, true, 8));
        let share = |total| share_time_of_variants(&variants, 6, total, &MeasuringCosts::REAL);
        let Err(EvaluateError::TooShortToCompare {
            needed,
            variants: 10,
            ..
        }) = share(Some(Nanos::from_secs(120)))
        else {
            panic!("two minutes are enough");
        };
        let (_, repetitions, run) = share(Some(needed)).expect("the time needed");
        assert_eq!(
            (u64::from(repetitions), run),
            (FEWEST_REPETITIONS, Nanos::SECOND)
        );
        let (total, repetitions, run) = share(None).expect("as long as it takes");
        assert!(u64::from(repetitions) == USUAL_REPETITIONS && run >= USUAL_RUN);
        assert!(total > needed);
    }
}
