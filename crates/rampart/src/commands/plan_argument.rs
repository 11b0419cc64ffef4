// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan that a command works on: a file here, whose text goes to another machine.

use std::path::{Path, PathBuf};

use clap::Args;
use rampart_host::MachineRoot;
use rampart_supervise::{PlanFile, read_plan_text};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct PlanArgument {
    /// Plan file
    plan: PathBuf,

    /// Text of the plan if its file is on another machine
    #[arg(long, hide = true, allow_hyphen_values = true)]
    plan_text: Option<String>,
}

impl PlanArgument {
    pub(crate) fn file(&self) -> &Path {
        &self.plan
    }

    fn text(&self) -> Result<String, Failure> {
        match &self.plan_text {
            Some(text) => Ok(text.clone()),
            None => Ok(read_plan_text(&self.plan)?),
        }
    }

    /// Reads the plan and resolves it on the machine below `root`.
    pub(crate) fn read(&self, root: &MachineRoot) -> Result<PlanFile, Failure> {
        Ok(PlanFile::from_text(&self.plan, self.text()?, root)?)
    }

    /// Returns the last arguments of the same command on another machine, which has no file.
    pub(crate) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
        let file = self.plan.display().to_string();
        Ok(vec![
            format!("--plan-text={}", self.text()?),
            "--".to_owned(),
            file,
        ])
    }
}
