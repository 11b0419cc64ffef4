// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed work quantum and control loop, attached and detached: repeats the same work and reports how much longer than the
//! shortest the worst repetition took; waits for the ends of periods of 1 ms, and reports how much the worst one differs
//! from their mean; with the interrupts of the CPU. Each of the four takes SECONDS. As root:
//!
//! ```sh
//! fixed_work CPU SECONDS
//! ```
#![allow(clippy::print_stdout, reason = "a program")]

use std::env;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Duration;

use rampart_detach::Cpu;
use rustix::thread::{CpuSet, clock_nanosleep_absolute, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Some 0.1 ms on a processor of today.
const TURNS: u64 = 50_000;

const PERIOD: Duration = Duration::from_millis(1);

const UNIT: &str = if cfg!(target_arch = "x86_64") {
    "cycles"
} else {
    "ticks"
};

/// Ticks of the counter.
#[derive(Debug, Default)]
struct Quanta {
    count: u64,
    total: u64,
    shortest: u64,
    longest: u64,
}

fn work() {
    let mut value = 1_u64;
    for _ in 0..TURNS {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
    }
    black_box(value);
}

/// Returns the time stamp counter, on arm64 the virtual counter.
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    let ticks = {
        let ticks: u64;
        // SAFETY: the instruction only reads a counter, and Linux permits it. The barrier keeps it behind the work.
        unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks) };
        ticks
    };
    ticks
}

impl Quanta {
    fn none() -> Self {
        Self {
            shortest: u64::MAX,
            ..Self::default()
        }
    }

    fn add(&mut self, length: u64) {
        self.count += 1;
        self.total += length;
        self.shortest = self.shortest.min(length);
        self.longest = self.longest.max(length);
    }
}

/// Works until `is_over` returns true. Makes no system call.
fn measure(is_over: impl Fn() -> bool) -> Quanta {
    // The first quanta fill the caches.
    (0..10).for_each(|_| work());
    let mut quanta = Quanta::none();
    while !is_over() {
        let start = ticks();
        work();
        quanta.add(ticks() - start);
    }
    quanta
}

/// Calls `wait` for the end of each period, which it gets as the time since the begin. It returns false to end the loop.
fn measure_periods(time: Duration, wait: impl Fn(Duration) -> bool) -> Quanta {
    let mut quanta = Quanta::none();
    let mut before = None;
    let mut end = PERIOD;
    while end <= time && wait(end) {
        let now = ticks();
        if let Some(before) = before {
            quanta.add(now - before);
        }
        before = Some(now);
        end += PERIOD;
    }
    quanta
}

/// Returns the interrupts that Linux handled on a CPU so far: the sum of its column of `/proc/interrupts`.
fn interrupts_of(cpu: u32) -> Option<u64> {
    let text = fs::read_to_string("/proc/interrupts").ok()?;
    let mut lines = text.lines();
    let name = format!("CPU{cpu}");
    let column = lines
        .next()?
        .split_whitespace()
        .position(|word| word == name)?;
    let of_line = |line: &str| line.split_whitespace().nth(column + 1)?.parse::<u64>().ok();
    Some(lines.filter_map(of_line).sum())
}

fn bind(cpu: Option<u32>) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    match cpu {
        Some(cpu) => cpus.set(cpu as usize),
        None => (0..CpuSet::MAX_CPU).for_each(|cpu| cpus.set(cpu)),
    }
    sched_setaffinity(None, &cpus)
}

fn print(name: &str, quanta: &Quanta, interrupts: u64) {
    println!(
        "{name}: {} quanta, shortest {} {UNIT}, worst excess {} {UNIT}, {interrupts} interrupts",
        quanta.count,
        quanta.shortest,
        quanta.longest.saturating_sub(quanta.shortest),
    );
}

fn print_periods(name: &str, quanta: &Quanta, interrupts: u64) {
    let mean = quanta.total / quanta.count.max(1);
    let deviation = mean.abs_diff(quanta.longest);
    println!(
        "{name}: {} periods, mean {mean} {UNIT}, worst deviation {} {UNIT}, {interrupts} interrupts",
        quanta.count,
        deviation.max(mean.abs_diff(quanta.shortest)),
    );
}

/// Sleeps until a time on `CLOCK_MONOTONIC`, or a signal.
fn sleep_until(time: Timespec) -> bool {
    clock_nanosleep_absolute(ClockId::Monotonic, &time).is_ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let (Some(number), Some(seconds)) = (arguments.get(1), arguments.get(2)) else {
        return Err("usage: fixed_work CPU SECONDS".into());
    };
    let (number, time) = (number.parse()?, Duration::from_secs(seconds.parse()?));
    rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE)?;

    bind(Some(number))?;
    let no_counts = "/proc/interrupts has no column for this CPU";
    let before = interrupts_of(number).ok_or(no_counts)?;
    let start = std::time::Instant::now();
    let quanta = measure(|| start.elapsed() >= time);
    let after = interrupts_of(number).ok_or(no_counts)?;
    print("attached", &quanta, after - before);
    let start = clock_gettime(ClockId::Monotonic);
    let begin = Duration::try_from(start)?;
    let periods = measure_periods(time, |end| {
        Timespec::try_from(begin + end).is_ok_and(sleep_until)
    });
    let end = interrupts_of(number).ok_or(no_counts)?;
    print_periods("attached loop", &periods, end - after);

    bind(None)?;
    let mut cpu = Cpu::take(number)?;
    let quanta = cpu.run(|thread| {
        let end = thread.now() + time;
        measure(|| thread.now() >= end || !thread.is_detached())
    })?;
    let counts = cpu.counts()?;
    print("detached", &quanta, counts.interrupts);
    let periods = cpu.run(|thread| {
        let start = thread.now();
        measure_periods(time, |end| {
            thread.sleep_until(start + end);
            thread.is_detached()
        })
    })?;
    let interrupts = cpu.counts()?.since(counts).interrupts;
    print_periods("detached loop", &periods, interrupts);
    Ok(())
}
