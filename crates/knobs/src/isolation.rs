// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is to be partitioned into.

use std::collections::BTreeMap;

use rampart_model::CpuSet;

/// What the wanted value of a knob depends on besides the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// The CPUs for real-time work.
    pub real_time: CpuSet,
    /// The CPUs for all else; empty where every CPU is a real-time one.
    pub housekeeping: CpuSet,
    /// Whether the machine hosts guests; [`crate::Readings::hosts_guests`] where no plan says it.
    pub has_guests: bool,
    /// Where sources differ: name of a knob, and name of the choice.
    pub choices: BTreeMap<String, String>,
}
