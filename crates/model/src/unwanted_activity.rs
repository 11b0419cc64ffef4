// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes to a CPU without being of those who work there.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Softirqs that do the work of devices (include/linux/interrupt.h). The others serve the CPU
/// itself and its own timers.
const DEVICE_SOFTIRQS: [&str; 6] = ["HI", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET"];
/// Numbered interrupts that belong to each CPU: the timers of Arm.
const TIMERS: [&str; 4] = [
    "arch_timer",
    "kvm guest vtimer",
    "kvm guest ptimer",
    "arch_mem_timer",
];
/// What the kernel calls interrupts by which one CPU makes another do something: `CAL`, `TLB` and
/// `IWI` of x86, and the inter-processor interrupts of Arm. Rescheduling is a wake, the domain's own
/// as a rule.
const CROSS_CALLS: [&str; 3] = ["Function call", "TLB shootdowns", "IRQ work"];
/// What x86 calls the timer of each CPU.
const LOCAL_TIMER: &str = "Local timer interrupts";

/// Where a line of `/proc/interrupts` comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptSort {
    /// A device.
    Device,
    /// The CPU's own timer.
    Timer,
    /// Another CPU that wants something done.
    CrossCall,
    /// The CPU itself, and wakes of its threads.
    Own,
}

impl InterruptSort {
    /// Of a line with this name (a number, or a word such as `LOC`) and action.
    #[must_use]
    pub fn of(name: &str, action: &str) -> Self {
        if action == LOCAL_TIMER || TIMERS.contains(&action) {
            Self::Timer
        } else if name.parse::<u32>().is_ok() {
            Self::Device
        } else if CROSS_CALLS.iter().any(|call| action.contains(call)) {
            Self::CrossCall
        } else {
            Self::Own
        }
    }
}

/// Whether a softirq of this name does the work of a device.
#[must_use]
pub fn is_device_softirq(name: &str) -> bool {
    DEVICE_SOFTIRQS.contains(&name)
}

/// What came to a domain's CPUs while a meter measured there, all of them together. What belongs to
/// the evaluation itself, its meters, guests and loads, is not in it. Counts of the kernel, which are
/// true of an emulated machine too.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct UnwantedActivity {
    /// How long was counted: from before the warm-up until after the measurement.
    pub watched: Nanos,
    /// Interrupts of devices.
    pub device_interrupts: u64,
    /// Softirqs that do the work of devices.
    pub device_softirqs: u64,
    /// Calls of other CPUs.
    pub cross_calls: u64,
    /// Interrupts of the CPUs' own timers: ticks, and those that the meter asked for.
    pub timer_interrupts: u64,
    /// CPU time of threads of the kernel.
    pub kernel_threads: Nanos,
    /// CPU time of programs that are not of the domain.
    pub programs: Nanos,
}

impl UnwantedActivity {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            watched: self.watched + other.watched,
            device_interrupts: self.device_interrupts + other.device_interrupts,
            device_softirqs: self.device_softirqs + other.device_softirqs,
            cross_calls: self.cross_calls + other.cross_calls,
            timer_interrupts: self.timer_interrupts + other.timer_interrupts,
            kernel_threads: self.kernel_threads + other.kernel_threads,
            programs: self.programs + other.programs,
        }
    }

    /// A count as a rate a second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.watched.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_apart_on_both_architectures() {
        let sort = InterruptSort::of;
        assert_eq!(sort("24", "virtio1-config"), InterruptSort::Device);
        assert_eq!(sort("11", "arch_timer"), InterruptSort::Timer);
        assert_eq!(sort("LOC", LOCAL_TIMER), InterruptSort::Timer);
        let calls = [
            ("CAL", "Function call interrupts"),
            ("TLB", "TLB shootdowns"),
        ];
        for (name, action) in calls {
            assert_eq!(sort(name, action), InterruptSort::CrossCall);
        }
        let own = [
            ("RES", "Rescheduling interrupts"),
            ("NMI", "Non-maskable interrupts"),
        ];
        for (name, action) in own {
            assert_eq!(sort(name, action), InterruptSort::Own);
        }
        assert!(is_device_softirq("NET_RX") && !is_device_softirq("TIMER"));
    }
}
