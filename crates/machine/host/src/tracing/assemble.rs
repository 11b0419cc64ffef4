// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reconstructs what a CPU executed from its trace events.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rampart_model::{CauseKind, Nanos};

use super::line::{Line, moment, parse};

/// A time in which a thread, interrupt or softirq had a CPU, including what interrupted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceInterval {
    /// The kind; [`CauseKind::Unseen`] for the idle loop.
    pub kind: CauseKind,
    /// Its name.
    pub name: Arc<str>,
    /// Start (`CLOCK_MONOTONIC`).
    pub start: Nanos,
    /// End.
    pub end: Nanos,
}

/// Limit of intervals kept for a CPU, some 40 bytes each.
const MOST: usize = 1 << 20;

/// Limit of times of lost events for a CPU; beyond it the last one grows.
const MOST_LOST: usize = 1 << 12;

/// Limit of interruptions kept for one unfinished event.
const MOST_NESTED: usize = 1 << 16;

/// The idle loop.
pub(super) const IDLE: &str = "idle";

/// A thread that has the CPU.
#[derive(Debug)]
struct RunningThread {
    number: u32,
    name: String,
    since: Nanos,
}

/// The state of one CPU while its events are read.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    names: HashSet<Arc<str>>,
    /// Osnoise events that may have interrupted a later one: start on the trace's own clock, and
    /// length including interruptions.
    nested: Vec<(Nanos, Nanos)>,
    /// Interrupts that have begun: kind, number, name and start.
    open: Vec<(CauseKind, u32, Arc<str>, Nanos)>,
    /// The thread that has the CPU.
    running: Option<RunningThread>,
    /// The time of the last event.
    last: Nanos,
    /// In the order of their ends.
    pub(super) intervals: VecDeque<TraceInterval>,
    /// Number of events that the kernel lost.
    pub(super) lost: u64,
    /// Number of the oldest intervals dropped here.
    pub(super) dropped: u64,
    /// End of the newest dropped interval: before it the record has gaps.
    dropped_until: Nanos,
    /// Times of lost events: from the last event before to the first after them.
    gaps: Vec<TraceSpan>,
    /// Start of a time of lost events that no event has ended yet.
    missing_since: Option<Nanos>,
}

/// A span of time (`CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSpan {
    /// Start.
    pub start: Nanos,
    /// End.
    pub end: Nanos,
}

impl Assembler {
    /// Processes a line of the trace. Ignores a line that cannot be parsed.
    pub(super) fn take(&mut self, line: &str) {
        match parse(line) {
            Some(Line::Event {
                thread,
                at,
                name,
                rest,
            }) => {
                if let Some(start) = self.missing_since.take() {
                    self.missed(TraceSpan { start, end: at });
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
                // The ends of these interrupts may be among the lost events.
                self.open.clear();
                self.running = None;
            }
            None => {}
        }
    }

    fn missed(&mut self, gap: TraceSpan) {
        let full = self.gaps.len() >= MOST_LOST;
        match self.gaps.last_mut() {
            Some(last) if full || gap.start <= last.end => {
                last.end = last.end.max(gap.end);
            }
            _ => self.gaps.push(gap),
        }
    }

    /// Returns the intervals of the CPU, and the times that are not or not completely known, both in
    /// the order of time.
    pub(super) fn finish(mut self) -> (Vec<TraceInterval>, Vec<TraceSpan>) {
        if let Some(start) = self.missing_since.take() {
            let end = Nanos(u64::MAX);
            self.missed(TraceSpan { start, end });
        }
        let mut lost = Vec::with_capacity(self.gaps.len() + 1);
        if self.dropped > 0 {
            let (start, end) = (Nanos::ZERO, self.dropped_until);
            lost.push(TraceSpan { start, end });
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
            // Arm reports the reason of inter-processor interrupts, x86 the vector.
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

    /// Processes an osnoise event. It comes at the end of the noise, with a start on the trace's own
    /// clock, which is not `CLOCK_MONOTONIC`, and the length without interruptions. So its real start
    /// is its end minus that length and the lengths of all events that began after it.
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
        self.keep(TraceInterval {
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

    /// Corrects the running thread: some kernels do not report a switch away from the idle loop, but
    /// every event has the running thread. Another one has had the CPU since the previous event.
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
        self.keep(TraceInterval {
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
        self.keep(TraceInterval {
            kind,
            name,
            start,
            end: at,
        });
        Some(())
    }

    /// Processes `perf_event_nmi_handler() delta_ns: 1234 handled: 1`, which comes at its end.
    fn nmi(&mut self, at: Nanos, rest: &str) -> Option<()> {
        let (name, rest) = rest.split_once("() delta_ns: ")?;
        let length = Nanos(first_word(rest).parse().ok()?);
        let name = self.name(name);
        self.keep(TraceInterval {
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

    fn keep(&mut self, interval: TraceInterval) {
        if self.intervals.len() >= MOST
            && let Some(oldest) = self.intervals.pop_front()
        {
            self.dropped += 1;
            self.dropped_until = self.dropped_until.max(oldest.end);
        }
        self.intervals.push_back(interval);
    }
}

/// Offset of interrupt vectors, to distinguish them from interrupt numbers.
const VECTORS: u32 = 1 << 30;
const IPI: u32 = u32::MAX;

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\t']).next().unwrap_or(text)
}
