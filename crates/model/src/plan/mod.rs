// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan: one file that names a machine's domains and what each owns.
//!
//! These types are the file's sections. They say what can be written; whether it makes sense on
//! a machine is decided by `rampart-plan`.

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
mod time_text;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::CpuSet;

pub use cell::{CellOptions, CellRegion, CellWriter};
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

/// Version of the plan's form, in its field `schema`.
pub const PLAN_SCHEMA_VERSION: u32 = 1;

/// A plan as its file says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Version of the form; 1.
    #[serde(default = "current_version")]
    pub schema: u32,
    /// The machine as a whole.
    #[serde(default)]
    pub machine: MachineSection,
    /// The domains, in the order in which they choose their CPUs.
    #[serde(default, rename = "domain", skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<PlannedDomain>,
    /// What is done about each setting of the machine, by the setting's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host: BTreeMap<String, KnobChoice>,
    /// What needs a restart.
    #[serde(default, skip_serializing_if = "BootSection::is_empty")]
    pub boot: BootSection,
    /// Rules that are broken on purpose.
    #[serde(default, rename = "waive", skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<Waiver>,
}

const fn current_version() -> u32 {
    PLAN_SCHEMA_VERSION
}

impl Default for Plan {
    /// The plan without domains: everything is housekeeping.
    fn default() -> Self {
        Self {
            schema: PLAN_SCHEMA_VERSION,
            machine: MachineSection::default(),
            domains: Vec::new(),
            host: BTreeMap::new(),
            boot: BootSection::default(),
            waivers: Vec::new(),
        }
    }
}

impl Plan {
    /// The domain of this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&PlannedDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}

/// The machine as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineSection {
    /// CPUs for ordinary work and for everything that disturbs; without it all that no domain
    /// takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub housekeeping: Option<CpuSet>,
    /// The topology that the plan was made for, as `rampart plan show` prints it; on another one
    /// the plan is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// What becomes of the other threads of a real-time core.
    #[serde(default, skip_serializing_if = "is_default")]
    pub smt: SmtPolicy,
    /// Whether broken rules refuse the plan.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: Enforcement,
}

/// What becomes of the other threads of a core whose first thread does real-time work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SmtPolicy {
    /// One thread of each core of the whole machine stays online.
    Off,
    /// They stay online and nobody gets them.
    #[default]
    IdleSibling,
    /// They may work, for the same domain only.
    SameOwner,
}

/// Whether a broken rule refuses the plan.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// Yes, unless the rule is waived.
    #[default]
    Strict,
    /// Only where the plan cannot work at all; the rest is a warning.
    Warn,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_false(value: &bool) -> bool {
    !*value
}
