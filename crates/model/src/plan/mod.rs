// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan: one file that names a machine's domains and their resources.
//!
//! These types are the sections of the file. `rampart-plan` checks and resolves them.

mod cell;
mod domain;
mod finding;
mod guest;
mod host;
mod pattern;
mod policy;
mod resolved;
mod selector;
mod size;
mod standby;
mod time_text;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::CpuSet;

pub use cell::{CellNetwork, CellOptions, CellRegion, CellWriter};
pub use domain::{ContainerSource, InterruptMatch, PlannedDomain, Restart, ThreadRule};
pub use finding::PlanFinding;
pub use guest::{CacheShare, GuestMemory, VirtualCpuRequest, VirtualCpus};
pub use host::{BootSection, KnobAction, KnobChoice, Reboot, Waiver};
pub use policy::PlannedPolicy;
pub use resolved::{
    CacheSharing, CpuOwnership, CpuRole, GuestPages, InterruptOwnership, NodeSharing,
    ResolvedDomain, ResolvedPlan,
};
pub use selector::{CpuRequest, CpuSelector};
pub use size::{ByteSize, ParseByteSizeError};
pub use standby::PlannedStandby;

/// Version of the plan's schema, in its field `schema`.
pub const PLAN_SCHEMA_VERSION: u32 = 1;

/// The contents of a plan's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Version of the schema; 1.
    #[serde(default = "current_version")]
    pub schema: u32,
    /// The machine as a whole.
    #[serde(default)]
    pub machine: MachineSection,
    /// The domains, in the order in which they choose their CPUs.
    #[serde(default, rename = "domain", skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<PlannedDomain>,
    /// Kernels that are kept to start the root of cells again, in the order in which they are used.
    #[serde(default, rename = "standby", skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<PlannedStandby>,
    /// The choice for each setting of the machine, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host: BTreeMap<String, KnobChoice>,
    /// Changes that need a restart.
    #[serde(default, skip_serializing_if = "BootSection::is_empty")]
    pub boot: BootSection,
    /// Rules that the plan breaks intentionally.
    #[serde(default, rename = "waive", skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<Waiver>,
}

const fn current_version() -> u32 {
    PLAN_SCHEMA_VERSION
}

impl Default for Plan {
    /// The empty plan: all CPUs are housekeeping.
    fn default() -> Self {
        Self {
            schema: PLAN_SCHEMA_VERSION,
            machine: MachineSection::default(),
            domains: Vec::new(),
            standbys: Vec::new(),
            host: BTreeMap::new(),
            boot: BootSection::default(),
            waivers: Vec::new(),
        }
    }
}

impl Plan {
    /// Returns the domain with this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&PlannedDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}

/// The machine as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineSection {
    /// CPUs for ordinary work and interrupts; by default all CPUs without a domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub housekeeping: Option<CpuSet>,
    /// The topology that the plan was written for, as `rampart plan show` prints it; on another
    /// topology the plan is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// State of the other threads of a real-time core.
    #[serde(default, skip_serializing_if = "is_default")]
    pub smt: SmtPolicy,
    /// Enforcement of rules.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Enforcement,
}

/// State of the other threads of a core whose first thread does real-time work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SmtPolicy {
    /// One thread of each core of the whole machine stays online.
    Off,
    /// They stay online and idle.
    #[default]
    IdleSibling,
    /// They may work for the same domain.
    SameOwner,
}

/// Enforcement of rules.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// An error refuses the plan, unless it is waived.
    #[default]
    Strict,
    /// An error refuses the plan only if it cannot work at all; other errors are warnings.
    Warn,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_false(value: &bool) -> bool {
    !*value
}
