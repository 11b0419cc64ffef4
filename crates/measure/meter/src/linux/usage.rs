// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's counters for a thread and its CPU.

use rampart_model::{CpuId, Nanos, ThreadCounters};

use super::{clock, files};

/// Returns the present counters of the calling thread.
pub(crate) fn of_this_thread() -> ThreadCounters {
    /// `RUSAGE_THREAD` (getrusage(2)).
    const THREAD: libc::c_int = 1;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing. The call cannot fail with these arguments.
    unsafe { libc::getrusage(THREAD, &raw mut usage) };
    ThreadCounters {
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        steal: None,
        cpu_time: clock::thread_cpu(),
        process_cpu_time: clock::process_cpu(),
        continued: false,
    }
}

/// Returns the difference between two readings.
pub(crate) fn between(start: &ThreadCounters, end: &ThreadCounters) -> ThreadCounters {
    ThreadCounters {
        voluntary_switches: end
            .voluntary_switches
            .wrapping_sub(start.voluntary_switches),
        involuntary_switches: end
            .involuntary_switches
            .wrapping_sub(start.involuntary_switches),
        minor_faults: end.minor_faults.wrapping_sub(start.minor_faults),
        major_faults: end.major_faults.wrapping_sub(start.major_faults),
        steal: None,
        cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
        process_cpu_time: end.process_cpu_time.saturating_sub(start.process_cpu_time),
        continued: false,
    }
}

/// Steal time of every CPU since boot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steal(Vec<(CpuId, Nanos)>);

impl Steal {
    /// Reads `/proc/stat`. Empty if it cannot be read.
    pub(crate) fn now() -> Self {
        // SAFETY: no pointers.
        let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100);
        files::text("/proc/stat").map_or_else(Self::default, |text| {
            Self::parse(&text, 1_000_000_000 / ticks.max(1))
        })
    }

    /// Parses proc_stat(5): `cpuN user nice system idle iowait irq softirq steal …` in clock ticks.
    fn parse(text: &str, tick: u64) -> Self {
        let line = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
            let steal: u64 = fields.nth(7)?.parse().ok()?;
            Some((CpuId(cpu), Nanos(steal.saturating_mul(tick))))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Returns the time stolen from `cpu` since `start`, or `None` if either reading lacks the CPU.
    pub(crate) fn since(&self, start: &Self, cpu: CpuId) -> Option<Nanos> {
        let of = |steal: &Self| steal.0.iter().find(|(id, _)| *id == cpu).map(|(_, s)| *s);
        Some(of(self)?.saturating_sub(of(start)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_steal_of_each_cpu() {
        let start = Steal::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 80 0 0\nctxt 5",
            10,
        );
        let end = Steal::parse("cpu0 1 2 3 4 5 6 7 95 0 0", 10);
        assert_eq!(end.since(&start, CpuId(0)), Some(Nanos(150)));
        assert_eq!(end.since(&start, CpuId(1)), None);
        assert_eq!(Steal::parse("cpu0 1 2", 10).since(&start, CpuId(0)), None);
    }
}
