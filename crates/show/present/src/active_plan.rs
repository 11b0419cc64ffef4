// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The application and the release of a plan.

use std::path::Path;

use rampart_model::{ActivePlan, ChangeStep, ReleaseReport, StepAction};

use crate::element::{Element, ListItem, Pair};
use crate::plan_picture::item;

/// Returns a step of a change list that is about to be applied.
#[must_use]
pub fn applied_step(step: &ChangeStep) -> String {
    format!("{}: {}", step.name, step.wanted)
}

/// Returns a plan that has been applied: domains, findings, number of changes, next commands.
#[must_use]
pub fn applied(plan: &ActivePlan) -> Vec<Element> {
    let domains = plan.domains.iter().map(|domain| {
        let text = format!("{}, {}", domain.cpus.named(), domain.isolation);
        item(&domain.name, text)
    });
    let findings = plan.findings.iter();
    let findings = findings.map(|finding| item(finding.severity.name(), finding.to_string()));
    let count = |action: StepAction| {
        let steps = plan.changes.steps.iter();
        steps.filter(|step| step.action == action).count()
    };
    vec![
        Element::List {
            items: domains.chain(findings).collect(),
        },
        Element::paragraph(format!(
            "{} is active: {} changed, {} already as wanted, {} skipped, {} wait for a restart, {} left \
             to you (list them: rampart apply {} --dry-run)",
            plan.file,
            count(StepAction::Apply),
            count(StepAction::AsWanted),
            count(StepAction::Skip),
            count(StepAction::AtRestart),
            count(StepAction::ByHand),
            plan.file,
        )),
        Element::paragraph(
            "Next: `rampart status` shows the plan, `rampart release` takes it back.",
        ),
    ]
}

/// Returns the restored values, and those that were not restored.
#[must_use]
pub fn released(report: &ReleaseReport) -> Vec<Element> {
    if report == &ReleaseReport::default() {
        return vec![Element::paragraph(
            "Nothing to restore: no plan is active and no run was killed.",
        )];
    }
    let restored = report.restored.iter().map(|restored| {
        let text = format!("{}: {}", restored.location, restored.what);
        item("restored", text)
    });
    let left = report.left.iter();
    let left = left.map(|finding| item("left", finding.to_string()));
    vec![Element::List {
        items: restored.chain(left).collect(),
    }]
}

/// The files of the boot loader that a plan needs.
#[derive(Debug, Clone, Copy)]
pub struct BootFiles<'a> {
    /// Arguments of the kernel command line.
    pub arguments: &'a [String],
    /// The files to write, or that were written.
    pub files: &'a [&'a Path],
    /// The command to run after them.
    pub command: Option<&'a [String]>,
}

/// Returns the files of the boot loader that `apply --boot` would write.
#[must_use]
pub fn boot_files(boot: &BootFiles<'_>) -> Vec<Element> {
    let mut items = written(boot);
    items.extend(boot.command.map(|words| item("then run", words.join(" "))));
    if items.is_empty() {
        items.push(item("", "already as wanted"));
    }
    vec![
        Element::Pairs {
            pairs: vec![Pair::new("Kernel command line", boot.arguments.join(" "))],
        },
        Element::List { items },
    ]
}

/// Returns the written files of the boot loader, and the next commands with the plan `file`.
#[must_use]
pub fn boot_files_written(boot: &BootFiles<'_>, file: &str) -> Vec<Element> {
    vec![
        Element::List {
            items: written(boot),
        },
        Element::paragraph(format!(
            "After the restart the kernel command line contains: {}",
            boot.arguments.join(" ")
        )),
        Element::paragraph(format!(
            "Next: restart the machine, then `rampart apply {file}`. `rampart release` takes it back."
        )),
    ]
}

fn written(boot: &BootFiles<'_>) -> Vec<ListItem> {
    let files = boot.files.iter();
    files
        .map(|path| item("written", path.display().to_string()))
        .collect()
}
