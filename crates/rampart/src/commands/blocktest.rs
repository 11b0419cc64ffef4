// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart blocktest`: blocks CPUs and measures which CPUs are affected.

use clap::Args;
use rampart_evaluate::{BlocktestRequest, blocktest};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{CpuList, ExitCode, Nanos, SchedulingPolicy};

use super::block::{self, BlockOptions};
use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
The test compares the worst latency in each window that contains a block with
windows that contain none. The transfer τ is the median excess divided by the
length of a block: 1 if a CPU is stopped for the whole block, 0 if it is not
affected. Watch a stopped CPU too, to prove that the blocks happened.

Examples:
  rampart blocktest --cpus 1               stop CPU 1, measure every CPU
  rampart blocktest --cpus 1 --watch 1,2   measure these CPUs only
  rampart blocktest --cpus 1 --length 20ms --count 100 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlocktestArguments {
    #[command(flatten)]
    pub(crate) blocks: BlockOptions,

    /// CPUs to measure [default: every usable CPU]
    #[arg(long, value_name = "CPUS", help_heading = "Meter")]
    pub(super) watch: Option<CpuList>,

    /// Period of the meter
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        help_heading = "Meter"
    )]
    pub(super) interval: Nanos,

    /// Scheduling policy of the measuring threads: other, fifo:N or rr:N
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "fifo:80",
        help_heading = "Meter"
    )]
    pub(super) policy: SchedulingPolicy,

    #[command(flatten)]
    pub(crate) on: super::on::On,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    /// How to show progress
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(super) show_progress: ShowProgress,
}

pub(crate) fn run(arguments: &BlocktestArguments) -> Result<ExitCode, Failure> {
    let program = super::meter_program()?;
    let settings = arguments.blocks.settings()?;
    let machine = read_machine(&MachineRoot::system());
    let watched = super::cpus_here(arguments.watch.as_ref())?;
    let interrupted = signals::stop_flag()?;
    let blocks = block::prepare(&program, &settings)?;
    let style = progress::style(arguments.show_progress);
    let bar = progress::bar(style, u64::from(settings.count));
    let request = BlocktestRequest {
        meter: &program,
        watched: &watched.unwrap_or_else(|| machine.topology.usable()),
        interval: arguments.interval,
        policy: arguments.policy,
        tool_version: super::VERSION,
    };
    let made = |count: u32| {
        bar.set_position(count.into());
        bar.set_message("blocks made");
    };
    let document = blocktest(&request, &machine, blocks, settings, &made, &interrupted);
    bar.finish_and_clear();
    let document = document?;
    if arguments.json {
        output::print_json(&document)?;
    } else {
        output::print_text(&rampart_present::blocktest(&document))?;
        for finding in &document.findings {
            output::finding(finding);
        }
    }
    Ok(ExitCode::of_work(document.count >= document.settings.count))
}
