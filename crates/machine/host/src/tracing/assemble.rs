// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU did, put together from its trace events.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rampart_model::{CauseKind, Nanos};

use super::line::{Line, moment, parse};

/// Something that had a CPU for a time, with what interrupted it meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// What sort; [`CauseKind::Unseen`] for the idle loop.
    pub kind: CauseKind,
    /// Its name.
    pub name: Arc<str>,
    /// From then on (`CLOCK_MONOTONIC`).
    pub start: Nanos,
    /// Until then.
    pub end: Nanos,
}

/// How many intervals are kept for a CPU: some 40 bytes each.
const MOST: usize = 1 << 20;

/// How many stretches of lost events are told apart for a CPU; past that the last grows.
const MOST_LOST: usize = 1 << 12;

/// How many interruptions of one unfinished event are remembered.
const MOST_NESTED: usize = 1 << 16;

/// The idle loop.
const IDLE: &str = "idle";

/// A thread that has the CPU.
#[derive(Debug)]
struct RunningThread {
    number: u32,
    name: String,
    since: Nanos,
}

/// One CPU's events as they come.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    names: HashSet<Arc<str>>,
    /// Osnoise events that a later one may have been interrupted by: start on the trace's own
    /// clock, and length with what interrupted it.
    nested: Vec<(Nanos, Nanos)>,
    /// Interrupts that have begun: what, its number, name and start.
    open: Vec<(CauseKind, u32, Arc<str>, Nanos)>,
    /// The thread that has the CPU.
    running: Option<RunningThread>,
    /// The moment of the last event.
    last: Nanos,
    /// In the order of their ends.
    pub(super) intervals: VecDeque<Interval>,
    /// Events that the kernel had no room for.
    pub(super) lost: u64,
    /// Intervals that there was no room for here; the oldest.
    pub(super) dropped: u64,
    /// The end of the newest of these: before it the record has gaps.
    dropped_until: Nanos,
    /// Times whose events the kernel had no room for: from the last event before until the first
    /// after them.
    gaps: Vec<Span>,
    /// Since when events are missing of which none has come after.
    missing_since: Option<Nanos>,
}

/// A stretch of time (`CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From then on.
    pub start: Nanos,
    /// Until then.
    pub end: Nanos,
}

impl Assembler {
    /// Takes a line of the trace. One that cannot be read is none of ours.
    pub(super) fn take(&mut self, line: &str) {
        match parse(line) {
            Some(Line::Event {
                thread,
                at,
                name,
                rest,
            }) => {
                if let Some(start) = self.missing_since.take() {
                    self.missed(Span { start, end: at });
                }
                if let Some(thread) = thread.filter(|_| !name.ends_with("_noise")) {
                    self.correct(thread);
                }
                self.event(at, name, rest);
                self.last = at;
            }
            Some(Line::Lost(count)) => {
                self.lost += count;
                self.missing_since.get_or_insert(self.last);
                // Their ends may be among the lost.
                self.open.clear();
                self.running = None;
            }
            None => {}
        }
    }

    fn missed(&mut self, gap: Span) {
        let full = self.gaps.len() >= MOST_LOST;
        match self.gaps.last_mut() {
            Some(last) if full || gap.start <= last.end => {
                last.end = last.end.max(gap.end);
            }
            _ => self.gaps.push(gap),
        }
    }

    /// What is known of the CPU, and the times of which nothing or not all is known, both in the
    /// order of time.
    pub(super) fn finish(mut self) -> (Vec<Interval>, Vec<Span>) {
        if let Some(start) = self.missing_since.take() {
            let end = Nanos(u64::MAX);
            self.missed(Span { start, end });
        }
        let mut lost = Vec::with_capacity(self.gaps.len() + 1);
        if self.dropped > 0 {
            let (start, end) = (Nanos::ZERO, self.dropped_until);
            lost.push(Span { start, end });
        }
        lost.extend(self.gaps);
        (self.intervals.into(), lost)
    }

    fn event(&mut self, at: Nanos, name: &str, rest: &str) -> Option<()> {
        match name {
            "irq_noise" => self.noise(CauseKind::Interrupt, at, rest),
            "softirq_noise" => self.noise(CauseKind::Softirq, at, rest),
            "nmi_noise" => self.noise(CauseKind::Nmi, at, rest),
            "thread_noise" => self.noise(CauseKind::Thread, at, rest),
            "sched_switch" => self.switch(at, rest),
            "irq_handler_entry" => {
                let (number, name) = field(rest, "irq=")?.split_once(" name=")?;
                let number = number.parse().ok()?;
                self.enter(
                    CauseKind::Interrupt,
                    number,
                    &format!("{name}:{number}"),
                    at,
                )
            }
            "irq_handler_exit" => {
                let number = first_word(field(rest, "irq=")?).parse().ok()?;
                self.leave(CauseKind::Interrupt, number, at)
            }
            "softirq_entry" => {
                let number = first_word(field(rest, "vec=")?).parse().ok()?;
                let action = rest.split_once("[action=")?.1.trim_end_matches(']');
                self.enter(
                    CauseKind::Softirq,
                    number,
                    &format!("{action}:{number}"),
                    at,
                )
            }
            "softirq_exit" => {
                let number = first_word(field(rest, "vec=")?).parse().ok()?;
                self.leave(CauseKind::Softirq, number, at)
            }
            "nmi_handler" => self.nmi(at, rest),
            // Of inter-processor interrupts Arm tells the reason, x86 the vector.
            "ipi_entry" => self.enter(
                CauseKind::Interrupt,
                IPI,
                rest.trim_matches(|c| c == '(' || c == ')'),
                at,
            ),
            "ipi_exit" => self.leave(CauseKind::Interrupt, IPI, at),
            _ => {
                let number = first_word(field(rest, "vector=")?).parse::<u32>().ok()?;
                let key = number.checked_add(VECTORS)?;
                if let Some(name) = name.strip_suffix("_entry") {
                    self.enter(CauseKind::Interrupt, key, &format!("{name}:{number}"), at)
                } else {
                    self.leave(CauseKind::Interrupt, key, at)
                }
            }
        }
    }

    /// An osnoise event: it comes at the end of what it tells, with a start on the trace's own
    /// clock, which is not `CLOCK_MONOTONIC`, and with the length that is left when what
    /// interrupted it is taken off. So its real start is before its end by that length and that
    /// of all events which began after it.
    fn noise(&mut self, kind: CauseKind, at: Nanos, rest: &str) -> Option<()> {
        let (name, times) = match rest.rsplit_once(" start ") {
            Some((name, times)) => (name.trim(), times),
            None => ("nmi", rest.strip_prefix("start ")?),
        };
        let (start, duration) = times.split_once(" duration ")?;
        let start = moment(start)?;
        let mut gross = Nanos(duration.strip_suffix(" ns")?.parse().ok()?);
        while let Some((nested, length)) = self.nested.pop() {
            if nested < start {
                self.nested.push((nested, length));
                break;
            }
            gross += length;
        }
        if self.nested.len() >= MOST_NESTED {
            self.nested.drain(..MOST_NESTED / 2);
        }
        self.nested.push((start, gross));
        // The idle loop has this number on every CPU.
        let idle = kind == CauseKind::Thread && name.ends_with(":0");
        let kind = if idle { CauseKind::Unseen } else { kind };
        let name = self.name(if idle { IDLE } else { name });
        self.keep(Interval {
            kind,
            name,
            start: at.saturating_sub(gross),
            end: at,
        });
        Some(())
    }

    fn switch(&mut self, at: Nanos, rest: &str) -> Option<()> {
        let (previous, next) = rest.split_once(" ==> next_comm=")?;
        let (previous_name, previous) = field(previous, "prev_comm=")?.rsplit_once(" prev_pid=")?;
        let previous = first_word(previous).parse().ok()?;
        let (next_name, next) = next.rsplit_once(" next_pid=")?;
        let next = first_word(next).parse().ok();
        let begun = self.running.take();
        self.running = next.map(|number| RunningThread {
            number,
            name: next_name.to_owned(),
            since: at,
        });
        // A thread may change its name meanwhile, but not its number.
        let begun = begun.filter(|begun| begun.number == previous)?;
        self.had_the_cpu(previous, previous_name, begun.since, at);
        Some(())
    }

    /// Some kernels do not tell of a switch away from the idle loop. But every event tells who has
    /// the CPU; another than was known has it since the event before, at the earliest.
    fn correct(&mut self, (name, number): (&str, u32)) {
        let Some(known) = self.running.take_if(|known| known.number != number) else {
            return;
        };
        self.had_the_cpu(known.number, &known.name, known.since, self.last);
        self.running = Some(RunningThread {
            number,
            name: name.to_owned(),
            since: self.last,
        });
    }

    fn had_the_cpu(&mut self, number: u32, name: &str, start: Nanos, end: Nanos) {
        let (kind, name) = match number {
            0 => (CauseKind::Unseen, self.name(IDLE)),
            _ => (CauseKind::Thread, self.name(&format!("{name}:{number}"))),
        };
        self.keep(Interval {
            kind,
            name,
            start,
            end,
        });
    }

    fn enter(&mut self, kind: CauseKind, key: u32, name: &str, at: Nanos) -> Option<()> {
        let name = self.name(name);
        if self.open.len() < MOST_NESTED {
            self.open.push((kind, key, name, at));
        }
        Some(())
    }

    fn leave(&mut self, kind: CauseKind, key: u32, at: Nanos) -> Option<()> {
        let location = self
            .open
            .iter()
            .rposition(|(open, number, ..)| (*open, *number) == (kind, key))?;
        let (kind, _, name, start) = self.open.drain(location..).next()?;
        self.keep(Interval {
            kind,
            name,
            start,
            end: at,
        });
        Some(())
    }

    /// `perf_event_nmi_handler() delta_ns: 1234 handled: 1`, at its end.
    fn nmi(&mut self, at: Nanos, rest: &str) -> Option<()> {
        let (name, rest) = rest.split_once("() delta_ns: ")?;
        let length = Nanos(first_word(rest).parse().ok()?);
        let name = self.name(name);
        self.keep(Interval {
            kind: CauseKind::Nmi,
            name,
            start: at.saturating_sub(length),
            end: at,
        });
        Some(())
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        match self.names.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = name.into();
                self.names.insert(Arc::clone(&new));
                new
            }
        }
    }

    fn keep(&mut self, interval: Interval) {
        if self.intervals.len() >= MOST
            && let Some(oldest) = self.intervals.pop_front()
        {
            self.dropped += 1;
            self.dropped_until = self.dropped_until.max(oldest.end);
        }
        self.intervals.push_back(interval);
    }
}

/// Numbers of interrupt vectors, apart from those of interrupts.
const VECTORS: u32 = 1 << 30;
const IPI: u32 = u32::MAX;

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\t']).next().unwrap_or(text)
}
