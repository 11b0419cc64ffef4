// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart block`: stops CPUs for a known time.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use rampart_host::{MachineRoot, read_machine};
use rampart_load::Blocks;
use rampart_model::{
    BLOCKING_SCHEMA_VERSION, BlockKind, BlockSettings, BlockSpread, Blocking, CpuList, CpuSet,
    ExitCode, Nanos,
};

use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::progress::{self, Style};
use crate::{output, signals};

const EXAMPLES: &str = "\
The kernel module blocksys stops a CPU with interrupts and preemption off.
Without the module a thread of policy fifo:99 spins, which stops other threads
but no interrupts. Ctrl-C ends early.

Examples:
  rampart block --cpus 1               stop CPU 1 50 times for 4 ms
  rampart block --cpus 1,2 --length 500us --count 1000 --spread even
  rampart block --cpus 1 --kind spin   without the kernel module
  rampart blocktest --cpus 1           also measure which CPUs are affected";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlockArguments {
    #[command(flatten)]
    pub(crate) blocks: BlockOptions,

    #[command(flatten)]
    pub(crate) on: super::on::On,

    /// Print the blocks as JSON
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

/// Options that describe the blocks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Blocks")]
pub(crate) struct BlockOptions {
    /// CPUs to stop, all at the same times [default of blocktest: the last]
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuList>,

    /// Length of a block
    #[arg(long, value_name = "TIME", default_value = "4ms")]
    pub(super) length: Nanos,

    /// Number of blocks
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    pub(super) count: u32,

    /// Distribution of the pauses
    #[arg(long, value_name = "HOW", default_value = "random")]
    pub(super) spread: Spread,

    /// Mean pause between two blocks [default: four times the length, at least
    /// 20ms]
    #[arg(long, value_name = "TIME")]
    pub(super) pause: Option<Nanos>,

    /// Seed of random pauses [default: from the time of day]
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,

    /// Means of stopping the CPUs [default: module if it is loaded, otherwise spin]
    #[arg(long, value_name = "KIND")]
    pub(super) kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Spread {
    /// The same time from start to start
    Even,
    /// Each pause 0.5 to 1.5 times the mean
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// The kernel module blocksys
    Module,
    /// A thread of policy fifo:99
    Spin,
}

impl BlockOptions {
    fn pause(&self) -> Nanos {
        let usual = Nanos(self.length.0.saturating_mul(4)).max(Nanos::from_millis(20));
        self.pause.unwrap_or(usual)
    }

    /// Returns the maximum duration of all blocks; a random pause is at most 1.5 times its mean.
    pub(crate) fn longest(&self) -> Nanos {
        let one = self.length.0.saturating_add(self.pause().0);
        Nanos(one.saturating_mul(self.count.into()).saturating_mul(2))
    }

    /// Returns the settings, by default for the last usable CPU.
    pub(crate) fn settings(&self) -> Result<BlockSettings, Failure> {
        let cpus = super::cpus_here(self.cpus.as_ref())?.unwrap_or_else(last_usable_cpu);
        let settings = BlockSettings {
            cpus,
            length: self.length,
            count: self.count,
            pause: self.pause(),
            spread: match self.spread {
                Spread::Even => BlockSpread::Even,
                Spread::Random => BlockSpread::Random,
            },
            seed: self.seed.unwrap_or_else(seed_from_time),
            kind: self.kind.map(|kind| match kind {
                Kind::Module => BlockKind::Module,
                Kind::Spin => BlockKind::Spin,
            }),
        };
        match settings.findings().into_iter().next() {
            None => Ok(settings),
            Some(finding) => Err(Failure::usage(format!("--{finding}"))),
        }
    }
}

/// Returns the last usable CPU: high numbers take the fewest interrupts of devices.
fn last_usable_cpu() -> CpuSet {
    let topology = read_machine(&MachineRoot::system()).topology;
    let usable = topology.usable();
    usable.iter().next_back().into_iter().collect()
}

fn seed_from_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Nanoseconds are short enough to be typed again.
    now.map_or(1, |now| u64::from(now.subsec_nanos()))
}

pub(crate) fn run(arguments: &BlockArguments) -> Result<ExitCode, Failure> {
    // `blocktest` has a default, which is harmless: it measures as well.
    if arguments.blocks.cpus.is_none() {
        return Err(Failure::usage(
            "block: no CPU is given; fix: add --cpus CPUS",
        ));
    }
    let program = super::meter_program()?;
    let settings = arguments.blocks.settings()?;
    let stop = signals::stop_flag()?;
    let blocks = prepare(&program, &settings)?;
    let style = progress::style(arguments.show_progress);
    let bar = progress::bar(style, u64::from(settings.count));
    let mut printed = Instant::now();
    let mut made = |count: u32| {
        let text = format!("block {count} of {}", settings.count);
        if style == Style::Lines && printed.elapsed() >= Duration::from_secs(5) {
            printed = Instant::now();
            output::eprint(&text);
        }
        bar.set_position(count.into());
        bar.set_message(text);
    };
    let outcome = blocks.run(&settings, &stop, &mut made);
    bar.finish_and_clear();
    let outcome = outcome?;
    let document = Blocking {
        schema_version: BLOCKING_SCHEMA_VERSION,
        tool_version: super::VERSION.to_owned(),
        settings,
        made: outcome.made,
        count: outcome.count,
        findings: outcome.findings,
    };
    if arguments.json {
        output::print_json(&document)?;
    } else {
        output::print_text(&rampart_present::blocking(&document))?;
        for finding in &document.findings {
            output::finding(finding);
        }
    }
    Ok(ExitCode::of_work(document.count >= document.settings.count))
}

/// Prepares the blocks and prints what they will do to the machine.
pub(crate) fn prepare(program: &Path, settings: &BlockSettings) -> Result<Blocks, Failure> {
    let blocks = Blocks::start(program, settings)?;
    output::eprint(&rampart_present::planned_blocks(settings, blocks.kind()));
    Ok(blocks)
}
