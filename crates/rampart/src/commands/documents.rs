// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schemas, completions and man pages.

use anyhow::Context;
use clap::CommandFactory;
use rampart_model::{
    BlockerEvent, BlockerRequest, Blocking, Blocktest, Check, Evaluation, ExitCode, KnobCatalogue,
    Measurement, MeterEvent, MeterRequest, ResolvedPlan, Status, SupervisedDomain,
};
use schemars::schema_for;

use crate::arguments::{Arguments, Completions, Document, Man, Schema};
use crate::failure::Failure;
use crate::output;

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

pub(crate) fn completions(arguments: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "rampart",
        &mut script,
    );
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::Success)
}

pub(crate) fn man(arguments: &Man) -> Result<ExitCode, Failure> {
    let failed = || {
        format!(
            "{}: the man pages cannot be written there",
            arguments.directory.display()
        )
    };
    std::fs::create_dir_all(&arguments.directory).with_context(failed)?;
    clap_mangen::generate_to(Arguments::command(), &arguments.directory).with_context(failed)?;
    output::eprint(&format!(
        "Man pages are in {}.",
        arguments.directory.display()
    ));
    Ok(ExitCode::Success)
}
