// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart block`: stops CPUs for a known time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use rampart_host::{MachineRoot, read_machine};
use rampart_load::{Blocks, BlocksError, BlocksOutcome, BlocksProgress};
use rampart_model::{
    BLOCKING_SCHEMA_VERSION, BlockKind, BlockSettings, BlockSpan, BlockSpread, Blocking, CpuId,
    CpuSet, ExitCode, Nanos, plural,
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

/// How much later than planned a block may come before its maker is taken for hung.
const SILENCE: Duration = Duration::from_secs(30);

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
    pub(crate) cpus: Option<CpuSet>,

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

    /// Who stops the CPUs [default: module if it is loaded, otherwise spin]
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

    /// How long all blocks take at most: a random pause is up to half as long again.
    pub(crate) fn longest(&self) -> Nanos {
        let one = self.length.0.saturating_add(self.pause().0);
        Nanos(one.saturating_mul(self.count.into()).saturating_mul(2))
    }

    /// The plan; where no CPU is named for the last one that may be used.
    pub(crate) fn plan(&self) -> Result<BlockSettings, Failure> {
        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => last_usable_cpu(),
        };
        let plan = BlockSettings {
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
        match plan.findings().into_iter().next() {
            None => Ok(plan),
            Some(finding) => Err(Failure::usage(format!("--{finding}"))),
        }
    }
}

/// High-numbered CPUs take the fewest interrupts of devices, and CPU 0 the work of the boot.
fn last_usable_cpu() -> CpuSet {
    let topology = read_machine(&MachineRoot::system()).topology;
    let usable = topology.usable();
    usable.iter().next_back().into_iter().collect()
}

fn seed_from_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Short enough to be typed again.
    now.map_or(1, |now| u64::from(now.subsec_nanos()))
}

pub(crate) fn run(arguments: &BlockArguments) -> Result<ExitCode, Failure> {
    // Who only stops CPUs says which; `blocktest` is there to be tried.
    if arguments.blocks.cpus.is_none() {
        return Err(Failure::usage(
            "block: no CPU is given; fix: add --cpus CPUS",
        ));
    }
    let program = super::meter_program()?;
    let plan = arguments.blocks.plan()?;
    let stop = signals::stop_flag()?;
    let mut blocks = begin(&program, &plan)?;
    let style = progress::style(arguments.show_progress);
    let bar = progress::bar(style, u64::from(plan.count));
    let result = blocks
        .go()
        .and_then(|()| follow(&mut blocks, &plan, (style, &bar), &stop));
    bar.finish_and_clear();
    result?;
    let outcome = blocks.finish()?;
    if arguments.json {
        let document = Blocking {
            schema_version: BLOCKING_SCHEMA_VERSION,
            tool_version: super::VERSION.to_owned(),
            plan: plan.clone(),
            made: outcome.made,
            count: outcome.count,
            findings: outcome.findings,
        };
        output::print_json(&document)?;
    } else {
        output::print(&text(&plan, &outcome))?;
        for finding in &outcome.findings {
            output::finding(finding);
        }
    }
    Ok(ExitCode::of_work(outcome.count >= plan.count))
}

/// Gets the blocks ready, and says what is about to be done to the machine.
pub(crate) fn begin(program: &Path, plan: &BlockSettings) -> Result<Blocks, Failure> {
    let blocks = Blocks::start(program, plan)?;
    let how = match blocks.kind() {
        BlockKind::Module => "the kernel module blocksys: interrupts and preemption off",
        BlockKind::Spin => "a spinning thread of FIFO 99: other threads wait, interrupts do not",
        BlockKind::Cell => "the program of the cell itself: interrupts masked",
    };
    output::say(&format!(
        "Stopping {} for {}, {} in about {}, by {how} (seed {}).",
        plan.cpus.named(),
        plan.length,
        plural(plan.count, "time"),
        plan.duration(),
        plan.seed,
    ));
    Ok(blocks)
}

/// Waits until all blocks were made, or an early end was asked for.
fn follow(
    blocks: &mut Blocks,
    plan: &BlockSettings,
    (style, bar): (Style, &ProgressBar),
    stop: &AtomicBool,
) -> Result<(), BlocksError> {
    let mut said = Instant::now();
    // A random pause is up to half as long again.
    let one = Duration::from_nanos(plan.length.0.saturating_add(plan.pause.0));
    let limit = one.saturating_mul(2) + SILENCE;
    let mut heard = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let last = match blocks.poll(Duration::from_millis(200))? {
            Some(BlocksProgress::Finished) => return Ok(()),
            Some(BlocksProgress::Made(spans)) => spans.last().copied(),
            None => None,
        };
        let Some(last) = last else {
            if heard.elapsed() >= limit {
                return Err(BlocksError::Silent {
                    program: "rampart-meter block".to_owned(),
                    what: "make its next block",
                    waited: limit,
                });
            }
            continue;
        };
        heard = Instant::now();
        let number = last.sequence + 1;
        bar.set_position(number.into());
        bar.set_message(format!("block {number} of {}", plan.count));
        if style == Style::Lines && said.elapsed() >= Duration::from_secs(5) {
            said = Instant::now();
            output::say(&format!("block {number} of {}", plan.count));
        }
    }
}

fn text(plan: &BlockSettings, outcome: &BlocksOutcome) -> String {
    let mut text = format!(
        "{} of {} blocks of {} by {}, {} pauses of {}, seed {}\n",
        outcome.count,
        plan.count,
        plan.length,
        outcome.made.kind,
        match plan.spread {
            BlockSpread::Even => "even",
            BlockSpread::Random => "random",
        },
        plan.pause,
        plan.seed,
    );
    for (cpu, lengths) in lengths(&outcome.made.spans) {
        let _ = writeln!(text, "CPU {cpu:<3} {}", spread_of(&lengths));
    }
    text
}

/// The lengths of the blocks of each CPU, the shortest first.
fn lengths(spans: &[BlockSpan]) -> BTreeMap<CpuId, Vec<Nanos>> {
    let mut by_cpu: BTreeMap<CpuId, Vec<Nanos>> = BTreeMap::new();
    for span in spans {
        by_cpu.entry(span.cpu).or_default().push(span.length());
    }
    for lengths in by_cpu.values_mut() {
        lengths.sort_unstable();
    }
    by_cpu
}

/// What sorted lengths amount to.
fn spread_of(lengths: &[Nanos]) -> String {
    match (
        lengths.first(),
        lengths.get(lengths.len() / 2),
        lengths.last(),
    ) {
        (Some(shortest), Some(median), Some(longest)) => format!(
            "stopped {}, really for {shortest} to {longest}, median {median}",
            plural(lengths.len(), "time")
        ),
        _ => "not stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_lengths_are_told_for_each_cpu() {
        let span = |cpu: u32, length: u64| BlockSpan {
            cpu: CpuId(cpu),
            sequence: 0,
            start: Nanos(10),
            end: Nanos(10 + length),
        };
        let spans = [span(2, 500), span(1, 30), span(1, 10), span(1, 20)];
        let lengths = lengths(&spans);
        let told: Vec<String> = lengths.values().map(|each| spread_of(each)).collect();
        assert_eq!(
            told,
            [
                "stopped 3 times, really for 10 ns to 30 ns, median 20 ns",
                "stopped 1 time, really for 500 ns to 500 ns, median 500 ns"
            ]
        );
        assert_eq!(spread_of(&[]), "not stopped");
    }
}
