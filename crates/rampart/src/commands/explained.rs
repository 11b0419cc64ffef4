// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst samples of `rampart measure --explain` with their causes, for a terminal.

use std::fmt::Write as _;

use rampart_model::{Cause, CauseKind, ExplainedWorst, Measurement};

/// So many causes stand on a line; the rest is summed up.
const SHOWN: usize = 4;

/// A line a sample; nothing where nothing was explained.
pub(crate) fn text(measurement: &Measurement) -> String {
    let mut text = String::new();
    if measurement.explained.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "\nThe {} worst samples, with what had the CPU in their time:",
        measurement.explained.len()
    );
    for worst in &measurement.explained {
        let since = worst
            .event
            .at
            .saturating_sub(measurement.started_monotonic)
            .as_secs_f64();
        let _ = writeln!(
            text,
            "CPU {:<3} {:>9} at {since:.6} s: {}",
            worst.cpu.0,
            worst.event.value,
            causes(worst)
        );
    }
    text
}

fn causes(worst: &ExplainedWorst) -> String {
    let mut words: Vec<String> = worst.causes.iter().take(SHOWN).map(cause).collect();
    if let Some(rest @ [_, ..]) = worst.causes.get(SHOWN..) {
        let sum: rampart_model::Nanos = rest.iter().map(|cause| cause.duration).sum();
        words.push(format!("{} others {sum}", rest.len()));
    }
    words.push(format!("unexplained {}", worst.unexplained));
    words.join(", ")
}

fn cause(cause: &Cause) -> String {
    let sort = match cause.kind {
        CauseKind::Nmi => "NMI",
        CauseKind::Interrupt => "interrupt",
        CauseKind::Softirq => "softirq",
        CauseKind::Thread => "thread",
        CauseKind::Unseen => "not seen:",
    };
    format!("{sort} {} {}", cause.name, cause.duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{CpuId, Nanos, WorstEvent};

    #[test]
    fn long_lists_are_summed_up() {
        let worst = ExplainedWorst {
            cpu: CpuId(1),
            event: WorstEvent {
                at: Nanos(10),
                value: Nanos(9_000),
                sequence: 0,
            },
            causes: (1..=6)
                .map(|number| Cause {
                    kind: CauseKind::Interrupt,
                    name: format!("timer:{number}"),
                    start: Nanos(number),
                    duration: Nanos(1_000),
                })
                .collect(),
            unexplained: Nanos(3_000),
        };
        let text = causes(&worst);
        assert!(text.starts_with("interrupt timer:1 1"), "{text}");
        assert!(text.contains("2 others 2"), "{text}");
        assert!(!text.contains("timer:5"), "{text}");
        assert!(text.contains("unexplained 3"), "{text}");
    }
}
