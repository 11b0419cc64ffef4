// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that keep CPUs of a machine for real-time work, whoever made them.

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// The kind of a setting that keeps CPUs for real-time work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationSourceKind {
    /// CPUs that the scheduler does not balance (`/sys/devices/system/cpu/isolated`).
    Unbalanced,
    /// CPUs of a control group that no other group has.
    Partition,
    /// CPUs without a tick (`nohz_full=`).
    Tickless,
    /// A list of the kernel command line that keeps a part of the kernel's work away:
    /// `rcu_nocbs=`, `isolcpus=` without `domain`.
    KernelList,
    /// CPUs that the affinity of process 1, which all others inherit, excludes.
    InheritedAffinity,
    /// CPUs that systemd's slices of ordinary work exclude.
    Slices,
    /// CPUs that the variables of tuned's active profile name.
    Tuned,
    /// CPUs that `irqaffinity=` excludes.
    InterruptAffinity,
    /// CPUs that real-time threads of programs are bound to.
    BoundThreads,
}

/// How much a kind of source decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsolationStrength {
    /// The kernel keeps other work away from these CPUs.
    Enforced,
    /// Ordinary programs, or parts of the kernel's work, do not start on these CPUs.
    Arranged,
    /// Only a use of these CPUs is seen.
    Used,
}

impl IsolationSourceKind {
    /// Returns how much this kind decides.
    #[must_use]
    pub const fn strength(self) -> IsolationStrength {
        match self {
            Self::Unbalanced | Self::Partition | Self::Tickless => IsolationStrength::Enforced,
            Self::KernelList | Self::InheritedAffinity | Self::Slices | Self::Tuned => {
                IsolationStrength::Arranged
            }
            Self::InterruptAffinity | Self::BoundThreads => IsolationStrength::Used,
        }
    }
}

/// A setting that keeps CPUs for real-time work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IsolationSource {
    /// Its kind.
    pub kind: IsolationSourceKind,
    /// The setting as users know it: a parameter, a control group, a file, a thread.
    pub name: String,
    /// The CPUs that it keeps.
    pub cpus: CpuSet,
}
