// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Activity on a CPU that does not belong to its domain.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Softirqs of devices (include/linux/interrupt.h). The others belong to the CPU and its timers.
const DEVICE_SOFTIRQS: [&str; 6] = ["HI", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET"];
/// Numbered interrupts that belong to each CPU: the timers of Arm.
const TIMERS: [&str; 4] = [
    "arch_timer",
    "kvm guest vtimer",
    "kvm guest ptimer",
    "arch_mem_timer",
];
/// Names of interrupts by which one CPU makes another run a function: `CAL`, `TLB` and `IWI` of x86,
/// and the inter-processor interrupts of Arm. Rescheduling is usually a wakeup of the domain.
const CROSS_CALLS: [&str; 3] = ["Function call", "TLB shootdowns", "IRQ work"];
/// Name of the timer of each CPU on x86.
const LOCAL_TIMER: &str = "Local timer interrupts";

/// Source of a line of `/proc/interrupts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptSort {
    /// A device.
    Device,
    /// The CPU's own timer.
    Timer,
    /// A function call of another CPU.
    CrossCall,
    /// The CPU itself, and wakeups of its threads.
    Own,
}

impl InterruptSort {
    /// Returns the source of a line with this name (a number, or an abbreviation such as `LOC`) and action.
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

/// Returns whether a softirq of this name belongs to devices.
#[must_use]
pub fn is_device_softirq(name: &str) -> bool {
    DEVICE_SOFTIRQS.contains(&name)
}

/// Unwanted activity on all CPUs of a domain during a measurement. Excludes the evaluation's own
/// meters, guests and loads. The counts are the kernel's, and valid on an emulated machine too.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct UnwantedActivity {
    /// Counted time: from before the warm-up until after the measurement.
    pub watched: Nanos,
    /// Interrupts of devices.
    pub device_interrupts: u64,
    /// Softirqs of devices.
    pub device_softirqs: u64,
    /// Calls of other CPUs.
    pub cross_calls: u64,
    /// Interrupts of the CPUs' timers: ticks, and timers of the meter.
    pub timer_interrupts: u64,
    /// CPU time of kernel threads.
    pub kernel_threads: Nanos,
    /// CPU time of programs outside the domain.
    pub programs: Nanos,
}

impl UnwantedActivity {
    /// Returns the sum of both.
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

    /// Returns a count as a rate in 1/s.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.watched.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_interrupts_of_both_architectures() {
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
