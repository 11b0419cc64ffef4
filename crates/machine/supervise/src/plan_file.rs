// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan file, read and resolved on a machine, and the changes that apply it.

use std::io;
use std::path::{Path, PathBuf};

use rampart_host::{
    Application, HostError, MachineRoot, StateDirectory, read_environment, read_knob_values,
    read_machine,
};
use rampart_model::{
    ActivePlan, ChangeList, ChangeStep, Environment, Machine, Plan, Reboot, ResolvedPlan,
};
use rampart_plan::{DomainLines, PlanError};
use rampart_rules::{Isolation, Subject};

/// Why a plan cannot be applied to a machine.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// The file cannot be read.
    #[error("cannot read the plan {}: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error that the kernel returned.
        cause: io::Error,
    },
    /// The file is not a plan.
    #[error(transparent)]
    Invalid(#[from] PlanError),
    /// The absolute path of the file cannot be written into a document.
    #[error("{}: the path is not valid UTF-8; fix: rename the file", .0.display())]
    PathNotUtf8(PathBuf),
    /// Findings of severity error refuse the plan on this machine.
    #[error("{file}: the plan does not fit this machine\n{findings}")]
    DoesNotFit {
        /// The file.
        file: String,
        /// One line for each finding.
        findings: String,
    },
    /// The kernel command line would change, and the plan does not allow a restart.
    #[error(
        "{0}: --boot changes the kernel command line, and the plan allows no restart (expected reboot = \"plan\", found \"never\"); fix: write reboot = \"plan\" under [boot]"
    )]
    RestartNotAllowed(String),
}

/// A plan file with the machine that it was resolved on.
#[derive(Debug)]
pub struct PlanFile {
    /// The file as the user named it.
    pub file: String,
    /// The absolute path of the file, `HOST:PATH` on another machine.
    pub path: String,
    /// The text of the file.
    pub text: String,
    /// The parsed plan.
    pub plan: Plan,
    /// The machine.
    pub machine: Machine,
    /// The other properties of the machine that rules read.
    pub environment: Environment,
    /// The plan resolved to CPUs of the machine, and the findings.
    pub resolved: ResolvedPlan,
    locations: DomainLines,
}

impl PlanFile {
    /// Reads a plan file and resolves it on the machine below `root`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a plan.
    pub fn read(file: &Path, root: &MachineRoot) -> Result<Self, PlanFileError> {
        let text = read_plan_text(file)?;
        Self::from_text(file, text, root)
    }

    /// Resolves the text of a plan file on the machine below `root`.
    ///
    /// # Errors
    /// If the text is not a plan.
    pub fn from_text(file: &Path, text: String, root: &MachineRoot) -> Result<Self, PlanFileError> {
        let plan = rampart_plan::parse(&text, &file.display().to_string())?;
        let machine = read_machine(root);
        let kernels: Vec<PathBuf> = plan
            .domains
            .iter()
            .filter_map(|domain| domain.kernel.as_ref().map(PathBuf::from))
            .collect();
        let environment = read_environment(root, &kernels);
        let unreadable = |cause| PlanFileError::Unreadable {
            path: file.to_owned(),
            cause,
        };
        let path = std::path::absolute(file).map_err(unreadable)?;
        let path = path
            .to_str()
            .ok_or_else(|| PlanFileError::PathNotUtf8(file.to_owned()))?;
        Ok(Self {
            path: path.to_owned(),
            file: file.display().to_string(),
            locations: DomainLines::of(&text),
            resolved: rampart_plan::resolve(&machine, &plan, &environment),
            text,
            plan,
            machine,
            environment,
        })
    }

    /// Returns the file and line of a domain, or the file if the domain has no line.
    #[must_use]
    pub fn location(&self, domain: Option<&str>) -> String {
        match self.locations.line(domain) {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        }
    }

    /// Checks that no finding refuses the plan on this machine.
    ///
    /// # Errors
    /// [`PlanFileError::DoesNotFit`] with every finding that refuses the plan.
    pub fn check_fit(&self) -> Result<(), PlanFileError> {
        if !self.resolved.is_refused() {
            return Ok(());
        }
        let findings: String = self
            .resolved
            .findings
            .iter()
            .filter(|finding| finding.refuses())
            .map(|finding| finding.line(&self.location(finding.domain.as_deref())) + "\n")
            .collect();
        Err(PlanFileError::DoesNotFit {
            file: self.file.clone(),
            findings: findings.trim_end().to_owned(),
        })
    }

    /// Checks that the plan allows a restart of the machine.
    ///
    /// # Errors
    /// [`PlanFileError::RestartNotAllowed`].
    pub fn check_restart(&self) -> Result<(), PlanFileError> {
        match self.resolved.boot.reboot {
            Reboot::Plan => Ok(()),
            _ => Err(PlanFileError::RestartNotAllowed(self.file.clone())),
        }
    }

    /// Lists the changes that apply the plan to the machine below `root`.
    #[must_use]
    pub fn change_list(&self, root: &MachineRoot, tool_version: &str) -> ChangeList {
        let isolation = Isolation::of(&self.resolved);
        let readings = read_knob_values(root, &self.resolved.real_time);
        let subject = Subject {
            machine: &self.machine,
            readings: &readings,
        };
        rampart_rules::change_list(&self.resolved, subject, &isolation, tool_version)
    }

    /// Returns the request that applies `changes`.
    #[must_use]
    pub fn application<'a>(
        &'a self,
        changes: &'a ChangeList,
        tool_version: &'a str,
    ) -> Application<'a> {
        Application {
            tool_version,
            file: &self.path,
            text: &self.text,
            resolved: &self.resolved,
            changes,
        }
    }

    /// Applies `changes` to this machine and calls `progress` for each step.
    ///
    /// # Errors
    /// If a step is refused; the steps before it are undone.
    pub fn apply(
        &self,
        changes: &ChangeList,
        state: &StateDirectory,
        tool_version: &str,
        progress: &mut dyn FnMut(&ChangeStep),
    ) -> Result<ActivePlan, HostError> {
        rampart_host::apply(state, &self.application(changes, tool_version), progress)
    }
}

/// Reads the text of a plan file.
///
/// # Errors
/// [`PlanFileError::Unreadable`].
pub fn read_plan_text(file: &Path) -> Result<String, PlanFileError> {
    std::fs::read_to_string(file).map_err(|cause| PlanFileError::Unreadable {
        path: file.to_owned(),
        cause,
    })
}
