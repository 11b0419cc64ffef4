// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selects the fastest counter of this machine that is reliable.

use rampart_model::{Finding, Nanos, Severity};

use super::{clock, files};
use crate::timescale::{Anchor, Timescale};

/// The counter that `noise` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterKind {
    /// The counter of the processor: TSC on x86, the virtual count on Arm.
    Hardware,
    /// `CLOCK_MONOTONIC` through clock_gettime(2).
    Clock,
}

/// Reads the counter of the processor.
///
/// x86: `rdtsc` without a fence. A fence would order the read among the surrounding instructions
/// and costs as much as the read; here the surrounding instructions are reads of the counter, which
/// are not reordered among each other.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn hardware() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it in user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the counter of the processor.
///
/// Arm: `CNTVCT_EL0` without `ISB`, for the reason given for x86.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn hardware() -> u64 {
    let value: u64;
    // SAFETY: Linux leaves the virtual count readable from user space (CNTKCTL_EL1.EL0VCTEN).
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value
}

/// Reads the clock: no processor counter is supported on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn hardware() -> u64 {
    clock::monotonic().0
}

/// Keeps the next read of the counter after earlier instructions (Intel SDM 2B, RDTSC; Arm ARM D11.2.2).
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: barriers, which every processor of the architecture has.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

impl CounterKind {
    /// Returns the present value.
    #[inline]
    pub(crate) fn read(self) -> u64 {
        match self {
            Self::Hardware => hardware(),
            Self::Clock => clock::monotonic().0,
        }
    }

    /// Reads counter and clock together. Of several tries it returns the shortest, which excludes
    /// interruptions between the two reads.
    pub(crate) fn anchor(self) -> Anchor {
        if self == Self::Clock {
            let at = clock::monotonic();
            return Anchor { ticks: at.0, at };
        }
        let try_once = || {
            let before = self.read();
            let at = clock::monotonic();
            let width = self.read().wrapping_sub(before);
            let ticks = before.wrapping_add(width / 2);
            (width, Anchor { ticks, at })
        };
        (0..5)
            .map(|_| try_once())
            .min_by_key(|(width, _)| *width)
            .map_or_else(|| try_once().1, |(_, anchor)| anchor)
    }

    /// Returns a first scale, exact to some parts per million, for the conversion of thresholds and
    /// ends to ticks. Returns `None` if the counter does not advance.
    pub(crate) fn first_scale(self) -> Option<Timescale> {
        if self == Self::Clock {
            return Some(Timescale::IDENTITY);
        }
        let start = self.anchor();
        clock::sleep_until(start.at + Nanos::from_millis(20));
        Timescale::through(start, self.anchor())
    }
}

/// Returns the name of the kernel's clock source, or `unknown` if it cannot be read.
pub(crate) fn clock_source() -> String {
    files::text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Returns whether the processor reports a counter that neither stops nor changes its rate.
fn reports_constant_rate() -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(flags) = files::field("/proc/cpuinfo", "flags") {
            // The kernel also sets this flag if a hypervisor guarantees a constant TSC.
            return Some(flags.split(' ').any(|flag| flag == "constant_tsc"));
        }
        // "Invariant TSC": leaf 8000_0007, EDX bit 8 (Intel SDM volume 3, 19.17.1).
        let highest = core::arch::x86_64::__cpuid(0x8000_0000).eax;
        Some(highest >= 0x8000_0007 && core::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

/// Returns the counter that `noise` reads with the kernel's clock source, and findings about it.
pub(crate) fn choose() -> (CounterKind, Vec<Finding>) {
    judge(&clock_source(), reports_constant_rate())
}

fn judge(source: &str, constant: Option<bool>) -> (CounterKind, Vec<Finding>) {
    const PLACE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let warning = |what: &str, severity| Finding::new(severity, PLACE, what);
    if source == "arch_sys_counter" {
        return (CounterKind::Hardware, Vec::new());
    }
    if source == "tsc" {
        if constant == Some(false) {
            let finding = warning(
                "the CPU does not report a TSC of constant rate; noise reads clock_gettime instead of the TSC",
                Severity::Warning,
            )
            .values("no constant_tsc in /proc/cpuinfo", "constant_tsc");
            return (CounterKind::Clock, vec![finding]);
        }
        return (CounterKind::Hardware, Vec::new());
    }
    if source == "unknown" {
        let counter = if constant == Some(false) {
            CounterKind::Clock
        } else {
            CounterKind::Hardware
        };
        let finding = warning(
            "cannot read the kernel's clock source, so the quality of the clock is unknown",
            Severity::Note,
        )
        .values("unreadable", "tsc or arch_sys_counter");
        return (counter, vec![finding]);
    }
    let finding = warning(
        "the kernel's clock source is not the CPU's counter: reads take longer and may jump; noise reads clock_gettime",
        Severity::Warning,
    )
    .values(source, "tsc or arch_sys_counter")
    .fix(format!(
        "echo tsc > {PLACE}, if its available_clocksource lists it\nin a guest, give it an invariant TSC (-cpu …,+invtsc)"
    ));
    (CounterKind::Clock, vec![finding])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_every_clock_source_except_the_processor_counter() {
        let judged = |source, constant| {
            let (counter, findings) = judge(source, constant);
            (counter, findings.first().map(|finding| finding.severity))
        };
        use CounterKind::{Clock, Hardware};
        assert_eq!(judged("tsc", Some(true)), (Hardware, None));
        assert_eq!(judged("arch_sys_counter", None), (Hardware, None));
        for (source, constant) in [
            ("tsc", Some(false)),
            ("kvm-clock", Some(true)),
            ("hpet", Some(true)),
        ] {
            assert_eq!(
                judged(source, constant),
                (Clock, Some(Severity::Warning)),
                "{source}"
            );
        }
        assert_eq!(
            judged("unknown", Some(true)),
            (Hardware, Some(Severity::Note))
        );
        assert_eq!(
            judged("unknown", Some(false)),
            (Clock, Some(Severity::Note))
        );
    }

    #[test]
    fn counter_and_clock_agree() {
        let scale = CounterKind::Hardware.first_scale().expect("moves");
        let anchor = CounterKind::Hardware.anchor();
        // An error of a tenth of a second would be a wrong scale, not a busy machine.
        let apart = scale.moment(anchor.ticks).signed_since(anchor.at).0;
        assert!(apart.abs() < 100_000_000, "{apart}");
    }
}
