// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fastest counter of this machine that can be trusted.

use rampart_model::{Finding, Nanos, Severity};

use super::{clock, files};
use crate::timescale::{Anchor, Timescale};

/// What `noise` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterKind {
    /// The processor's own: TSC on x86, the virtual count on Arm.
    Hardware,
    /// `CLOCK_MONOTONIC` through clock_gettime(2).
    Clock,
}

/// The processor's own counter.
///
/// x86: `rdtsc` without a fence. A fence would order the read among the instructions around it,
/// which costs as much as the read; here nothing but reads is around it, and they do not pass
/// each other.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn hardware() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux leaves it usable from user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor's own counter.
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

/// The processor's own counter: none is known here, the clock stands in.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn hardware() -> u64 {
    clock::monotonic().0
}

impl CounterKind {
    /// Its present value.
    #[inline]
    pub(crate) fn read(self) -> u64 {
        match self {
            Self::Hardware => hardware(),
            Self::Clock => clock::monotonic().0,
        }
    }

    /// Counter and clock, read together: of several tries the one that took the shortest, so
    /// that an interruption in between does not count.
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

    /// A first scale, good to some parts in a million, to turn thresholds and ends into ticks.
    /// None if the counter does not move.
    pub(crate) fn first_scale(self) -> Option<Timescale> {
        if self == Self::Clock {
            return Some(Timescale::IDENTITY);
        }
        let start = self.anchor();
        clock::sleep_until(start.at + Nanos::from_millis(20));
        Timescale::through(start, self.anchor())
    }
}

/// The name of the kernel's clock source; `unknown` where it is not to be read.
pub(crate) fn clock_source() -> String {
    files::text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Whether the processor says that its counter neither stops nor changes its rate.
fn says_constant() -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(flags) = files::field("/proc/cpuinfo", "flags") {
            // The kernel also sets it where a hypervisor vouches for the TSC.
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

/// What to make of the kernel's clock source: which counter `noise` reads, and what is to be
/// said about it.
pub(crate) fn choose() -> (CounterKind, Vec<Finding>) {
    judge(&clock_source(), says_constant())
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
        "echo tsc > {PLACE}, if its available_clocksource lists it; in a guest, give it an invariant TSC (-cpu …,+invtsc)"
    ));
    (CounterKind::Clock, vec![finding])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_any_clock_source_but_the_processors_counter() {
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
        // A tenth of a second off would be a wrong scale, not a busy machine.
        let apart = scale.moment(anchor.ticks).signed_since(anchor.at).0;
        assert!(apart.abs() < 100_000_000, "{apart}");
    }
}
