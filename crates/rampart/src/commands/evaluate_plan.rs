// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate --plan`: a plan of the machine as what is to be measured.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rampart_evaluate::PlanRequest;
use rampart_host::{MachineRoot, read_machine, read_surroundings};
use rampart_model::{DomainSelection, ExitCode};
use rampart_plan::Places;

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
            None => std::fs::read_to_string(file)
                .with_context(|| format!("{}: the plan cannot be read", file.display()))
                .map_err(|error| Failure::new(ExitCode::Usage, error)),
        }
    }

    /// The plan on this machine; none where none is named.
    pub(crate) fn request(&self, domains: &[String]) -> Result<Option<PlanRequest>, Failure> {
        let Some(file) = &self.plan else {
            return Ok(None);
        };
        let text = self.text(file)?;
        let name = file.display().to_string();
        let plan = rampart_plan::parse(&text, &name)
            .map_err(|error| Failure::new(ExitCode::Usage, error))?;
        let root = MachineRoot::system();
        let machine = read_machine(&root);
        let kernels: Vec<PathBuf> = plan
            .domains
            .iter()
            .filter_map(|domain| domain.kernel.as_ref().map(PathBuf::from))
            .collect();
        let surroundings = read_surroundings(&root, &kernels);
        let resolved = rampart_plan::resolve(&machine, &plan, &surroundings);
        if resolved.is_refused() {
            return Err(refused(&name, &text, &resolved));
        }
        Ok(Some(PlanRequest {
            file: name,
            plan,
            resolved,
            names: domains.to_vec(),
            before_after: self.before_after,
            ablate: self.ablate,
            steps: Vec::new(),
        }))
    }
}

/// The findings that refuse a plan on this machine.
fn refused(file: &str, text: &str, resolved: &rampart_model::ResolvedPlan) -> Failure {
    let places = Places::of(text);
    let findings: String = resolved
        .findings
        .iter()
        .filter(|finding| finding.refuses())
        .map(|finding| {
            let place = match places.line(finding.domain.as_deref()) {
                Some(line) => format!("{file}:{line}"),
                None => file.to_owned(),
            };
            rampart_plan::finding_line(&place, finding)
        })
        .collect();
    Failure::new(
        ExitCode::PreconditionMissing,
        anyhow::anyhow!(
            "{file}: the plan is refused on this machine, and nothing was measured\n{}",
            findings.trim_end()
        ),
    )
}

/// The domains of `--domains` where no plan gives them names.
pub(crate) fn selections(domains: &[String]) -> Result<Vec<DomainSelection>, Failure> {
    domains
        .iter()
        .map(|domain| {
            domain.parse().map_err(|error| {
                Failure::new(
                    ExitCode::Usage,
                    anyhow::Error::new(error).context(format!("--domains {domain}")),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        there.request(&[]).expect_err("no plan");
    }
}
