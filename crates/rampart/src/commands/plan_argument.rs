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

    /// That machine and path, `HOST:PATH`
    #[arg(long, hide = true, requires = "plan_text", allow_hyphen_values = true)]
    plan_from: Option<String>,
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
        let mut read = PlanFile::from_text(&self.plan, self.text()?, root)?;
        if let Some(from) = &self.plan_from {
            read.path.clone_from(from);
        }
        Ok(read)
    }

    /// Returns the last arguments of the same command on another machine, which has no file.
    pub(crate) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
        let file = self.plan.display().to_string();
        let from = self.plan_from.clone().unwrap_or_else(|| {
            let path = std::path::absolute(&self.plan).unwrap_or_else(|_| self.plan.clone());
            let system = rustix::system::uname();
            format!("{}:{}", system.nodename().to_string_lossy(), path.display())
        });
        Ok(vec![
            format!("--plan-text={}", self.text()?),
            format!("--plan-from={from}"),
            "--".to_owned(),
            file,
        ])
    }
}
