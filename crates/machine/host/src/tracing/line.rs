// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses lines of a `trace_pipe`.

use rampart_model::Nanos;

/// A line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// An event.
    Event {
        /// Name and number of the running thread; 0 is the idle loop.
        thread: Option<(&'a str, u32)>,
        /// The time, in microseconds as the kernel writes it.
        at: Nanos,
        /// Name of the event.
        name: &'a str,
        /// The rest of the line.
        rest: &'a str,
    },
    /// The kernel lost this many events.
    Lost(u64),
}

/// Parses `TASK-PID [CPU] FLAGS SECONDS.MICROS: NAME: REST`; a task may have any name.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    if let Some((_, lost)) = line.split_once("[LOST ") {
        let count = lost.split(' ').next()?.parse().ok()?;
        return Some(Line::Lost(count));
    }
    line.match_indices(": ").find_map(|(location, separator)| {
        let (before, after) = (
            line.get(..location)?,
            line.get(location + separator.len()..)?,
        );
        let at = moment(before.rsplit(' ').next()?)?;
        let (task, _) = before.rsplit_once(" [")?;
        let (name, rest) = after.split_once(':')?;
        let thread = task.trim().rsplit_once('-');
        Some(Line::Event {
            thread: thread.and_then(|(name, number)| Some((name, number.parse().ok()?))),
            at,
            name,
            rest: rest.trim(),
        })
    })
}

/// Parses `SECONDS.FRACTION` with up to nine digits.
pub(super) fn moment(text: &str) -> Option<Nanos> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let fraction = fraction.parse::<u64>().ok()? * scale;
    let seconds = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(fraction).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_events_with_and_without_flags_and_with_any_task_name() {
        let event = |thread, at, name, rest| {
            Some(Line::Event {
                thread: Some(thread),
                at: Nanos(at),
                name,
                rest,
            })
        };
        assert_eq!(
            parse(
                "          <idle>-0       [001]     14.794969: irq_noise: call:251 start 1.5 duration 2 ns"
            ),
            event(
                ("<idle>", 0),
                14_794_969_000,
                "irq_noise",
                "call:251 start 1.5 duration 2 ns"
            )
        );
        assert_eq!(
            parse(
                "          rcuc/1-27      [001] D..h212    15.912846: nmi_noise: start 1.5 duration 2 ns"
            ),
            event(
                ("rcuc/1", 27),
                15_912_846_000,
                "nmi_noise",
                "start 1.5 duration 2 ns"
            )
        );
        assert_eq!(
            parse("  a: 1.5 b: [0] -12      [001] d..2.   2.000001: local_timer_exit: vector=236"),
            event(
                ("a: 1.5 b: [0] ", 12),
                2_000_001_000,
                "local_timer_exit",
                "vector=236"
            )
        );
        assert_eq!(parse("CPU:1 [LOST 42 EVENTS]"), Some(Line::Lost(42)));
        assert_eq!(parse("# tracer: nop"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn moments_are_exact() {
        assert_eq!(moment("15.968565633"), Some(Nanos(15_968_565_633)));
        assert_eq!(moment("0.000001"), Some(Nanos(1_000)));
        for text in [
            "",
            "1",
            "1.",
            ".1",
            "-1.0",
            "1.0000000001",
            "99999999999999999999.0",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
