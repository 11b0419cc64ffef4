// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan resolved on a machine: the owner of every CPU, interrupt, cache and memory node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BootSection, ByteSize, CacheShare, KnobChoice, PlanFinding, SmtPolicy};
use crate::{CacheKind, CacheWays, CpuId, CpuSet, DomainKind, SchedulingPolicy};

/// Role of a CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CpuRole {
    /// Ordinary work, interrupts, service threads of domains.
    Housekeeping,
    /// Threads of its domain.
    RealTime,
    /// The virtual CPU of this number of its guest.
    VirtualCpu(u32),
    /// The emulator of its guest.
    Emulator,
    /// Service threads of its domain.
    Service,
    /// Idle: another thread of its core does real-time work.
    IdleSibling,
    /// The plan takes it offline.
    Offline,
    /// The plan does not mention it.
    Unassigned,
}

impl fmt::Display for CpuRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Housekeeping => "housekeeping",
            Self::RealTime => "real-time",
            Self::VirtualCpu(number) => return f.pad(&format!("vCPU {number}")),
            Self::Emulator => "emulator",
            Self::Service => "service",
            Self::IdleSibling => "idle sibling",
            Self::Offline => "offline",
            Self::Unassigned => "unassigned",
        };
        f.pad(word)
    }
}

/// A CPU and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuOwnership {
    /// The CPU.
    pub cpu: CpuId,
    /// Its domain; `None` for housekeeping CPUs and idle CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its role.
    pub role: CpuRole,
    /// Policy of its threads; `None` if the plan sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// Its memory node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// A domain and its CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResolvedDomain {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs; for a guest those of its virtual CPUs.
    pub cpus: CpuSet,
    /// For a guest: the CPU of each virtual CPU, in order; `None` if there are too few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_cpus: Vec<Option<CpuId>>,
    /// For a guest: the CPUs of its emulator.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub emulator: CpuSet,
    /// The CPUs of its service threads.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub service: CpuSet,
    /// The highest policy of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// Reasons for the choice of its CPUs.
    pub reasons: Vec<String>,
    /// The share of a cache and of memory bandwidth that it requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheShare>,
    /// The ways of that share; empty if resctrl is not mounted, or if it requests none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_ways: Vec<CacheWays>,
    /// For a guest: the huge pages of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<GuestPages>,
    /// For a detached domain: the user who may take its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// The huge pages of a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestPages {
    /// Their memory node.
    pub node: u32,
    /// Size of a page.
    pub size: ByteSize,
    /// Number of pages.
    pub count: u64,
}

/// An interrupt and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterruptOwnership {
    /// Its number now.
    pub number: u32,
    /// Its driver or device.
    pub action: String,
    /// Its domain; `None` for housekeeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its target CPUs.
    pub cpus: CpuSet,
}

/// A cache of several CPUs and the domains that share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CacheSharing {
    /// Its level; 1 is nearest to the core.
    pub level: u32,
    /// Its contents.
    pub kind: CacheKind,
    /// Size in bytes; 0 if the firmware does not report it.
    pub size: u64,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The domains on these CPUs, including `housekeeping`.
    pub domains: BTreeSet<String>,
}

/// A memory node and the domains that share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeSharing {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Size in bytes.
    pub memory: u64,
    /// The domains on it, including `housekeeping`.
    pub domains: BTreeSet<String>,
}

/// A plan resolved on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResolvedPlan {
    /// Version of the schema.
    pub schema_version: u32,
    /// Version of the tool that resolved it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool_version: String,
    /// Fingerprint of the topology that it was resolved on.
    pub fingerprint: String,
    /// CPUs for ordinary work.
    pub housekeeping: CpuSet,
    /// CPUs of domains that Linux isolates.
    pub real_time: CpuSet,
    /// State of the other threads of real-time cores.
    pub smt: SmtPolicy,
    /// Every CPU of the machine that could be online.
    pub cpus: Vec<CpuOwnership>,
    /// Every domain, in the order of the plan.
    pub domains: Vec<ResolvedDomain>,
    /// Every interrupt with a handler.
    pub interrupts: Vec<InterruptOwnership>,
    /// Every cache of more than one CPU.
    pub caches: Vec<CacheSharing>,
    /// Every memory node.
    pub nodes: Vec<NodeSharing>,
    /// The choice for each setting, by its name.
    pub host: BTreeMap<String, KnobChoice>,
    /// Changes that need a restart.
    pub boot: BootSection,
    /// Findings, the most severe first.
    pub findings: Vec<PlanFinding>,
}

impl ResolvedPlan {
    /// Returns whether a finding refuses the plan.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.findings.iter().any(PlanFinding::refuses)
    }

    /// Returns the domain with this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&ResolvedDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }

    /// Returns the ownership of a CPU; `None` if the machine has no such CPU.
    #[must_use]
    pub fn cpu(&self, cpu: CpuId) -> Option<&CpuOwnership> {
        self.cpus.iter().find(|ownership| ownership.cpu == cpu)
    }

    /// Returns the CPUs with this role.
    #[must_use]
    pub fn with_role(&self, role: CpuRole) -> CpuSet {
        self.cpus
            .iter()
            .filter(|ownership| ownership.role == role)
            .map(|ownership| ownership.cpu)
            .collect()
    }
}
