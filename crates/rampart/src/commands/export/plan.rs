// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports a plan: reads and resolves it, and writes or prints the files of a tool.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rampart_model::ExitCode;
use rampart_plan::{Engine, ExportSubject, Exported, MARK, Means};
use rampart_supervise::PlanFile;

use crate::commands::VERSION;
use crate::commands::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct FromPlan {
    /// Plan file
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,

    /// Directory to write the files into [default: standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    recorded: RecordedMachine,
}

#[derive(Debug, Args)]
pub(super) struct Systemd {
    #[command(flatten)]
    from: FromPlan,

    /// Write units that need no Rampart, as far as systemd can express the plan
    #[arg(long)]
    without_rampart: bool,

    /// Program that the units start [default: this one]
    #[arg(long, value_name = "FILE", conflicts_with = "without_rampart")]
    program: Option<PathBuf>,
}

/// Reads a plan that fits the machine.
fn fitting(from: &Path, recorded: &RecordedMachine) -> Result<PlanFile, Failure> {
    let read = PlanFile::read(from, &recorded.root()?)?;
    read.check_fit()?;
    Ok(read)
}

fn subject(read: &PlanFile) -> ExportSubject<'_> {
    ExportSubject {
        machine: &read.machine,
        environment: &read.environment,
        plan: &read.plan,
        resolved: &read.resolved,
        file: &read.path,
    }
}

pub(super) fn systemd(arguments: &Systemd) -> Result<ExitCode, Failure> {
    let read = fitting(&arguments.from.plan, &arguments.from.recorded)?;
    let program = match &arguments.program {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe()?,
    };
    let program = program.to_str().ok_or_else(|| {
        Failure::usage(format!(
            "{}: the path is not valid UTF-8; fix: name another program with --program",
            program.display()
        ))
    })?;
    let means = if arguments.without_rampart {
        Means::SystemdAlone
    } else {
        Means::Rampart(program)
    };
    let exported = rampart_plan::systemd(&subject(&read), means);
    deliver(&exported, arguments.from.out.as_deref())
}

pub(super) fn tuned(from: &FromPlan) -> Result<ExitCode, Failure> {
    let read = fitting(&from.plan, &from.recorded)?;
    let settings = read.change_list(&from.recorded.root()?, VERSION);
    let exported = rampart_plan::tuned(&subject(&read), &settings);
    deliver(&exported, from.out.as_deref())
}

pub(super) fn containers(from: &FromPlan, engine: Engine) -> Result<ExitCode, Failure> {
    let read = fitting(&from.plan, &from.recorded)?;
    let exported = rampart_plan::containers(&subject(&read), engine);
    deliver(&exported, from.out.as_deref())
}

pub(super) fn kubernetes(from: &FromPlan) -> Result<ExitCode, Failure> {
    let read = fitting(&from.plan, &from.recorded)?;
    let exported = rampart_plan::kubernetes(&subject(&read)).map_err(anyhow::Error::new)?;
    deliver(&exported, from.out.as_deref())
}

pub(super) fn libvirt(
    plan: &Path,
    recorded: &RecordedMachine,
    domain: Option<&str>,
    out: &Path,
) -> Result<ExitCode, Failure> {
    let read = fitting(plan, recorded)?;
    if let Some(name) = domain
        && read.plan.domain(name).is_none()
    {
        return Err(Failure::usage(format!(
            "--domain {name}: {} has no domain of this name; fix: name one of {}",
            plan.display(),
            read.plan
                .domains
                .iter()
                .map(|domain| domain.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    let exported = rampart_plan::libvirt(&subject(&read), domain)?;
    deliver(&exported, Some(out))
}

/// Writes or prints the files, and prints what they cannot express.
fn deliver(exported: &Exported, out: Option<&Path>) -> Result<ExitCode, Failure> {
    for finding in &exported.findings {
        output::finding(finding);
    }
    if exported.files.is_empty() {
        return Err(Failure::precondition(
            "the plan contains nothing that this tool can configure; no file was written",
        ));
    }
    let Some(directory) = out else {
        let several = exported.files.len() > 1;
        let mut text = String::new();
        for file in &exported.files {
            if several {
                text.push_str(&format!("# File: {}\n", file.path));
            }
            text.push_str(&file.text);
            if several {
                text.push('\n');
            }
        }
        output::print(&text)?;
        return Ok(ExitCode::Success);
    };
    let paths: Vec<PathBuf> = exported
        .files
        .iter()
        .map(|file| directory.join(&file.path))
        .collect();
    // Every path is checked before the first file is written.
    for path in &paths {
        refuse_strange(path)?;
    }
    let mut written = String::new();
    for (file, path) in exported.files.iter().zip(&paths) {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create the directory {}", parent.display()))?;
        }
        output::write(Some(path), &file.text)?;
        written.push_str(&format!("{}\n", path.display()));
    }
    output::print(&written)?;
    Ok(ExitCode::Success)
}

/// Refuses to replace a file that no export wrote.
fn refuse_strange(path: &Path) -> Result<(), Failure> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(anyhow::Error::new(error)
                .context(format!("cannot read {}", path.display()))
                .into());
        }
    };
    let head = bytes.get(..200.min(bytes.len())).unwrap_or_default();
    if String::from_utf8_lossy(head).contains(MARK) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: the file exists and no export wrote it; fix: name another directory with --out",
        path.display()
    )))
}
