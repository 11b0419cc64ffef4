// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel threads that a CPU needs in order to work.

/// A kind of kernel thread that must not starve: RCU callbacks, soft interrupts, timers, and the
/// boosting of preempted readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VitalThread {
    /// The prefix of the name; the CPU follows if [it is bound](Self::is_bound).
    pub prefix: &'static str,
    /// The knob that sets their priority.
    pub knob: &'static str,
}

impl VitalThread {
    /// All kinds. The timer threads were renamed twice (see the knob `ktimers-priority`).
    pub const ALL: [Self; 6] = [
        Self::new("rcuc/", "rcuc-priority"),
        Self::new("rcub/", "rcub-priority"),
        Self::new("ksoftirqd/", "ksoftirqd-priority"),
        Self::new("ktimers/", "ktimers-priority"),
        Self::new("ktimersd/", "ktimers-priority"),
        Self::new("ktimersoftd/", "ktimers-priority"),
    ];

    const fn new(prefix: &'static str, knob: &'static str) -> Self {
        Self { prefix, knob }
    }

    /// Returns the kind of the thread with this name, for example `rcuc/3`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| name.starts_with(kind.prefix))
    }

    /// Returns whether each CPU has one, with the CPU at the end of its name. `rcub/` belongs to a
    /// node of RCU's tree (`kernel/rcu/tree_plugin.h`, `rcu_spawn_one_boost_kthread`).
    #[must_use]
    pub fn is_bound(self) -> bool {
        self.prefix != "rcub/"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_thread_by_its_prefix() {
        assert_eq!(
            VitalThread::of("ktimersd/3").map(|kind| kind.knob),
            Some("ktimers-priority")
        );
        assert_eq!(
            VitalThread::of("rcub/0").map(VitalThread::is_bound),
            Some(false)
        );
        for other in ["migration/3", "rcu_preempt", "rcuop/3", "ksoftirq"] {
            assert_eq!(VitalThread::of(other), None, "{other}");
        }
    }
}
