// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate --plan`: a plan of the machine as what is to be measured.

use std::path::{Path, PathBuf};

use clap::Args;
use rampart_evaluate::{PlanRequest, PlanSwitch};
use rampart_host::{HostError, MachineRoot, StateDirectory};
use rampart_model::{
    ActivePlan, ChangeList, DomainSelection, Finding, PlanChange, Severity, StepAction,
};
use rampart_supervise::{PlanFile, read_plan_text};

use super::VERSION;
use crate::failure::Failure;

/// The plan to measure.
#[derive(Debug, Args)]
#[command(next_help_heading = "A plan of the machine")]
pub(crate) struct PlanOptions {
    /// Measure the domains of this plan, each on its own CPUs under its own policy and deadline,
    /// and the host to compare with
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Measure without and with the plan in turn: it is applied and taken back again and again, and
    /// what that changes is told. No plan may stand applied
    #[arg(long, requires = "plan")]
    pub(crate) before_after: bool,

    /// Measure also without each single change of the plan, and say which mattered and which
    /// backfired. Without --for it takes as long as that needs, which is told first
    #[arg(long, requires = "plan")]
    pub(crate) ablate: bool,

    /// The text of the plan, where its file is on another machine
    #[arg(long, hide = true, requires = "plan", allow_hyphen_values = true)]
    pub(crate) plan_text: Option<String>,
}

impl PlanOptions {
    /// The words that tell a far side of the plan: its file is here.
    pub(crate) fn words_there(&self) -> Result<Vec<String>, Failure> {
        match &self.plan {
            None => Ok(Vec::new()),
            Some(file) => Ok(vec![
                "--plan".to_owned(),
                file.display().to_string(),
                "--plan-text".to_owned(),
                self.text(file)?,
            ]),
        }
    }

    fn text(&self, file: &Path) -> Result<String, Failure> {
        match &self.plan_text {
            Some(text) => Ok(text.clone()),
            None => Ok(read_plan_text(file)?),
        }
    }

    /// The plan on this machine; none where none is named.
    pub(crate) fn read(&self) -> Result<Option<PlanFile>, Failure> {
        let Some(file) = &self.plan else {
            return Ok(None);
        };
        let text = self.text(file)?;
        let read = PlanFile::from_text(file, text, &MachineRoot::system())?;
        read.check_fit()?;
        Ok(Some(read))
    }

    /// What is asked of the evaluation of a plan.
    pub(crate) fn request(&self, read: &PlanFile, domains: &[String]) -> PlanRequest {
        let compares = self.before_after || self.ablate;
        PlanRequest {
            file: read.file.clone(),
            plan: read.plan.clone(),
            resolved: read.resolved.clone(),
            names: domains.to_vec(),
            before_after: self.before_after,
            ablate: self.ablate,
            steps: if compares {
                read.change_list(&MachineRoot::system(), VERSION).steps
            } else {
                Vec::new()
            },
        }
    }
}

/// Applies a plan as `rampart apply` does, and takes it back as `rampart release` does.
#[derive(Debug)]
pub(crate) struct Switch<'a>(pub(crate) &'a PlanFile);

impl PlanSwitch for Switch<'_> {
    fn apply(&self, leave_out: &[PlanChange]) -> Result<ActivePlan, Box<Finding>> {
        // As the machine is now: numbers of threads and interrupts move.
        let mut changes = self.0.change_list(&MachineRoot::system(), VERSION);
        leave(&mut changes, leave_out);
        let state = StateDirectory::standard();
        let applied = self.0.apply(&changes, &state, VERSION, &mut |_| {});
        applied.map_err(|error| problem(&self.0.file, &error))
    }

    fn release(&self) -> Result<Vec<Finding>, Box<Finding>> {
        let report = rampart_host::release(&StateDirectory::standard())
            .map_err(|error| problem(&self.0.file, &error))?;
        match report
            .left
            .iter()
            .find(|left| left.severity == Severity::Error)
        {
            Some(kept) => Err(Box::new(kept.clone())),
            None => Ok(report.left),
        }
    }
}

/// Makes skipped steps of those to leave out.
fn leave(changes: &mut ChangeList, leave_out: &[PlanChange]) {
    for step in &mut changes.steps {
        let named = |change: &PlanChange| change.kind == step.kind && change.name == step.name;
        if leave_out.iter().any(named) {
            step.action = StepAction::Skip;
            "left out, to see what it does".clone_into(&mut step.why);
        }
    }
}

fn problem(location: &str, error: &HostError) -> Box<Finding> {
    Box::new(
        Finding::new(Severity::Error, location, error.to_string()).fix("run `rampart release`"),
    )
}

/// The domains of `--domains` where no plan gives them names.
pub(crate) fn selections(domains: &[String]) -> Result<Vec<DomainSelection>, Failure> {
    domains
        .iter()
        .map(|domain| {
            domain
                .parse()
                .map_err(|error| Failure::usage(format!("--domains {domain}: {error}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::StepKind;

    #[test]
    fn a_far_side_gets_the_text_of_the_plan() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("plan.toml");
        let options = PlanOptions {
            plan: Some(file.clone()),
            before_after: true,
            ablate: false,
            plan_text: None,
        };
        options.words_there().expect_err("no file");
        std::fs::write(&file, "[machine]\n").expect("written");
        let words = options.words_there().expect("words");
        assert_eq!(words[1], file.display().to_string());
        assert_eq!(words[2..], ["--plan-text", "[machine]\n"]);
        let there = PlanOptions {
            plan: Some("/nowhere".into()),
            plan_text: Some("[machine".to_owned()),
            ..options
        };
        there.read().expect_err("no plan");
    }

    #[test]
    fn what_is_left_out_is_skipped_and_nothing_else() {
        let step = |kind, name: &str| rampart_model::ChangeStep {
            kind,
            name: name.to_owned(),
            title: String::new(),
            action: StepAction::Apply,
            why: String::new(),
            present: String::new(),
            wanted: String::new(),
            locations: Vec::new(),
            disruptive: None,
            fix: None,
            source: String::new(),
        };
        let mut changes = ChangeList {
            schema_version: 1,
            tool_version: String::new(),
            steps: vec![
                step(StepKind::Isolation, "ksm"),
                step(StepKind::Knob, "ksm"),
            ],
            boot_arguments: Vec::new(),
        };
        let change = PlanChange {
            kind: StepKind::Knob,
            name: "ksm".to_owned(),
            title: String::new(),
        };
        leave(&mut changes, &[change]);
        let actions: Vec<StepAction> = changes.steps.iter().map(|step| step.action).collect();
        assert_eq!(actions, [StepAction::Apply, StepAction::Skip]);
    }
}
