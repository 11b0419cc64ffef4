// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate --plan`: measures the domains of a plan.

use std::path::{Path, PathBuf};

use clap::Args;
use rampart_evaluate::PlanRequest;
use rampart_host::MachineRoot;
use rampart_model::DomainSelection;
use rampart_supervise::{PlanFile, read_plan_text};

use crate::failure::Failure;

/// Options that measure a plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plan")]
pub(crate) struct PlanOptions {
    /// Measure the domains of this plan, each on its CPUs with its policy and
    /// deadline, and the host
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Apply and release the plan in turn, and report what it changes. No plan
    /// may be active
    #[arg(long, requires = "plan")]
    pub(crate) before_after: bool,

    /// Also measure without each single change of the plan, and report which
    /// change matters. Without --for it takes as long as needed
    #[arg(long, requires = "plan")]
    pub(crate) ablate: bool,

    /// Text of the plan if its file is on another machine
    #[arg(long, hide = true, requires = "plan", allow_hyphen_values = true)]
    pub(crate) plan_text: Option<String>,
}

impl PlanOptions {
    /// Returns the arguments that pass the plan to another machine, which has no file of it.
    pub(crate) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
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

    /// Reads the plan and checks that it fits this machine. Returns `None` without `--plan`.
    pub(crate) fn read(&self) -> Result<Option<PlanFile>, Failure> {
        let Some(file) = &self.plan else {
            return Ok(None);
        };
        let text = self.text(file)?;
        let read = PlanFile::from_text(file, text, &MachineRoot::system())?;
        read.check_fit()?;
        Ok(Some(read))
    }

    /// Returns the request to evaluate a plan.
    pub(crate) fn request(&self, read: &PlanFile, domains: &[String]) -> PlanRequest {
        PlanRequest::of(read, domains, self.before_after, self.ablate)
    }
}

/// Parses the domains of `--domains` of an evaluation without a plan.
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

    #[test]
    fn another_machine_gets_the_text_of_the_plan() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("plan.toml");
        let options = PlanOptions {
            plan: Some(file.clone()),
            before_after: true,
            ablate: false,
            plan_text: None,
        };
        options.remote_arguments().expect_err("no file");
        std::fs::write(&file, "[machine]\n").expect("written");
        let words = options.remote_arguments().expect("words");
        assert_eq!(words[1], file.display().to_string());
        assert_eq!(words[2..], ["--plan-text", "[machine]\n"]);
        let there = PlanOptions {
            plan: Some("/nowhere".into()),
            plan_text: Some("[machine".to_owned()),
            ..options
        };
        there.read().expect_err("no plan");
    }
}
