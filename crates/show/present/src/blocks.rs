// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: what stopped CPUs, how long, and which other CPUs were affected.

use std::collections::BTreeMap;

use rampart_model::{
    BlockKind, BlockSettings, BlockSpan, BlockSpread, Blocking, Blocktest, BlocktestCpu, CpuId,
    Nanos, plural,
};

use crate::element::{Element, ListItem};
use crate::format;
use crate::plan_picture::item;

/// Returns what is about to happen to the CPUs.
#[must_use]
pub fn planned_blocks(settings: &BlockSettings, kind: BlockKind) -> String {
    format!(
        "Stopping {} for {}, {} in about {}, {} (seed {}).",
        settings.cpus.named(),
        settings.length,
        plural(settings.count, "time"),
        settings.duration(),
        format::block_kind(kind),
        settings.seed,
    )
}

/// Returns the blocks with the actual lengths on each CPU.
#[must_use]
pub fn blocking(blocking: &Blocking) -> Vec<Element> {
    let settings = &blocking.settings;
    let spread = match settings.spread {
        BlockSpread::Even => "even",
        BlockSpread::Random => "random",
    };
    let items = lengths(&blocking.made.spans).into_iter();
    vec![
        Element::paragraph(format!(
            "{} of {} blocks of {} by {}, {spread} pauses of {}, seed {}",
            blocking.count,
            settings.count,
            settings.length,
            blocking.made.kind,
            settings.pause,
            settings.seed,
        )),
        Element::List {
            items: items
                .map(|(cpu, lengths)| item(format!("CPU {cpu}"), range(&lengths)))
                .collect(),
        },
    ]
}

/// Returns the sorted lengths of the blocks of each CPU.
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

fn range(sorted: &[Nanos]) -> String {
    let median = sorted.get(sorted.len() / 2);
    match (sorted.first(), median, sorted.last()) {
        (Some(shortest), Some(median), Some(longest)) => format!(
            "stopped {} for {shortest} to {longest}, median {median}",
            plural(sorted.len(), "time")
        ),
        _ => "not stopped".to_owned(),
    }
}

/// Returns which CPUs the blocks of a test affected, with the worst wakeup latencies of windows with
/// and without a block.
#[must_use]
pub fn blocktest(test: &Blocktest) -> Vec<Element> {
    vec![
        Element::paragraph(format!(
            "{} stopped {} for {}. Worst wakeup latency of windows with a block and without:",
            test.settings.cpus.named(),
            plural(test.count, "time"),
            test.settings.length
        )),
        Element::List {
            items: test.cpus.iter().map(affected).collect(),
        },
    ]
}

fn affected(cpu: &BlocktestCpu) -> ListItem {
    let stopped = if cpu.stopped { " (stopped)" } else { "" };
    let result = cpu.transfer.as_ref().map_or_else(
        || "nothing to compare".to_owned(),
        |found| format!("{}: {}", found.outcome, found.statement),
    );
    ListItem {
        items: vec![
            item("with", worst(&cpu.with_block)),
            item("without", worst(&cpu.without_block)),
        ],
        ..item(format!("CPU {}{stopped}", cpu.cpu), result)
    }
}

fn worst(latencies: &[Nanos]) -> String {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(median), Some(max)) => format!("median {median}, max {max} (n {})", sorted.len()),
        _ => "none (n 0)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_actual_lengths_of_each_cpu() {
        let span = |cpu: u32, length: u64| BlockSpan {
            cpu: CpuId(cpu),
            sequence: 0,
            start: Nanos(10),
            end: Nanos(10 + length),
        };
        let spans = [span(2, 500), span(1, 30), span(1, 10), span(1, 20)];
        let ranges: Vec<String> = lengths(&spans).values().map(|each| range(each)).collect();
        assert_eq!(
            ranges,
            [
                "stopped 3 times for 10 ns to 30 ns, median 20 ns",
                "stopped 1 time for 500 ns to 500 ns, median 500 ns"
            ]
        );
        assert_eq!(range(&[]), "not stopped");
    }

    #[test]
    fn reports_a_cpu_without_windows() {
        let empty = BlocktestCpu {
            cpu: CpuId(1),
            stopped: false,
            with_block: Vec::new(),
            without_block: vec![Nanos(3), Nanos(1), Nanos(2)],
            transfer: None,
        };
        let item = affected(&empty);
        assert_eq!(item.text.plain(), "nothing to compare");
        let sides: Vec<String> = item.items.iter().map(|side| side.text.plain()).collect();
        assert_eq!(sides, ["none (n 0)", "median 2 ns, max 3 ns (n 3)"]);
    }
}
