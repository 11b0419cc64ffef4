// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schemas, completions and man pages.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use rampart_model::{
    BlockerEvent, BlockerRequest, Blocking, Blocktest, Check, Evaluation, ExitCode, KnobCatalogue,
    Measurement, MeterEvent, MeterRequest, ResolvedPlan, Status, SupervisedDomain,
};
use schemars::schema_for;

use crate::arguments;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// evaluation.json of `rampart evaluate`
    Evaluation,
    /// Output of `rampart measure --json`
    Measurement,
    /// Output of `rampart check --json`
    Check,
    /// Output of `rampart knobs --json`
    Knobs,
    /// Input of rampart-meter
    MeterRequest,
    /// Output of rampart-meter
    MeterEvent,
    /// Input of `rampart-meter block`
    BlockerRequest,
    /// Output of `rampart-meter block`
    BlockerEvent,
    /// Output of `rampart block --json`
    Block,
    /// Output of `rampart blocktest --json`
    Blocktest,
    /// domains/NAME.json in the state directory, written by `rampart up`
    SupervisedDomain,
    /// A plan, which is written in TOML
    Plan,
    /// Output of `rampart plan show --json`
    ResolvedPlan,
    /// Output of `rampart status --json`
    Status,
    /// Output of `rampart cell describe --json`
    CellDescription,
    /// An entry of `rampart cell list --json` and `rampart cell stats --json`
    Cell,
    /// An entry of `rampart detach --json`
    DetachedCpu,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart schema                   of the evaluation document
  rampart schema plan > plan.schema.json")]
pub(crate) struct Schema {
    /// Document to describe
    #[arg(default_value = "evaluation")]
    pub(crate) document: Document,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rampart completions bash > /etc/bash_completion.d/rampart")]
pub(crate) struct Completions {
    /// Shell of the script
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rampart man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Directory of the pages
    pub(crate) directory: PathBuf,
}

pub(crate) fn schema(arguments: &Schema) -> Result<ExitCode, Failure> {
    let schema = match arguments.document {
        Document::Evaluation => schema_for!(Evaluation),
        Document::Measurement => schema_for!(Measurement),
        Document::Check => schema_for!(Check),
        Document::Knobs => schema_for!(KnobCatalogue),
        Document::MeterRequest => schema_for!(MeterRequest),
        Document::MeterEvent => schema_for!(MeterEvent),
        Document::BlockerRequest => schema_for!(BlockerRequest),
        Document::BlockerEvent => schema_for!(BlockerEvent),
        Document::Block => schema_for!(Blocking),
        Document::Blocktest => schema_for!(Blocktest),
        Document::Plan => rampart_plan::schema(),
        Document::SupervisedDomain => schema_for!(SupervisedDomain),
        Document::ResolvedPlan => schema_for!(ResolvedPlan),
        Document::Status => schema_for!(Status),
        Document::CellDescription => schema_for!(rampart_model::device_tree::Description),
        Document::Cell => schema_for!(rampart_model::CellListEntry),
        Document::DetachedCpu => schema_for!(rampart_model::DetachedCpu),
    };
    output::print_json(&schema)?;
    Ok(ExitCode::Success)
}

pub(crate) fn completions(wanted: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        wanted.shell,
        &mut arguments::command(),
        "rampart",
        &mut script,
    );
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::Success)
}

pub(crate) fn man(wanted: &Man) -> Result<ExitCode, Failure> {
    let failed = || {
        format!(
            "{}: the man pages cannot be written there",
            wanted.directory.display()
        )
    };
    std::fs::create_dir_all(&wanted.directory).with_context(failed)?;
    clap_mangen::generate_to(arguments::command(), &wanted.directory).with_context(failed)?;
    output::eprint(&format!("Man pages are in {}.", wanted.directory.display()));
    Ok(ExitCode::Success)
}
