// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan resolved on a machine: who owns every CPU, interrupt, cache and memory node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BootSection, ByteSize, CacheShare, KnobChoice, PlanFinding, SmtPolicy};
use crate::{CacheKind, CacheWays, CpuId, CpuSet, DomainKind, SchedulingPolicy};

/// What a CPU is for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CpuRole {
    /// Ordinary work, interrupts, and what serves the domains.
    Housekeeping,
    /// Its domain's threads.
    RealTime,
    /// Its guest's virtual CPU of this number.
    VirtualCpu(u32),
    /// Its guest's emulator.
    Emulator,
    /// What serves its domain from outside.
    Service,
    /// Nothing: another thread of its core does real-time work.
    IdleSibling,
    /// Nothing: it is to be taken offline.
    Offline,
    /// The plan says nothing of it.
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

/// One CPU and who owns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuOwnership {
    /// The CPU.
    pub cpu: CpuId,
    /// Its domain; none for housekeeping CPUs and for those that do nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it is for.
    pub role: CpuRole,
    /// Policy of what runs there; none where the plan sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// Its memory node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// One domain with the CPUs it got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResolvedDomain {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs: real-time ones, and for a guest those of its virtual CPUs.
    pub cpus: CpuSet,
    /// For a guest: the CPU of each virtual CPU, in order; none where there is none for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_cpus: Vec<Option<CpuId>>,
    /// For a guest: the CPUs of its emulator.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub emulator: CpuSet,
    /// The CPUs of what serves it from outside.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub service: CpuSet,
    /// The highest policy of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// How its CPUs were chosen, one sentence each.
    pub reasons: Vec<String>,
    /// The share of a cache and of memory bandwidth that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheShare>,
    /// The ways that it gets for that; empty where that is not known before resctrl is mounted, and
    /// where it asks for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_ways: Vec<CacheWays>,
    /// For a guest: the huge pages of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<GuestPages>,
}

/// The huge pages of a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestPages {
    /// The memory node that they are on.
    pub node: u32,
    /// Size of one.
    pub size: ByteSize,
    /// How many.
    pub count: u64,
}

/// One interrupt and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterruptOwnership {
    /// Its number now.
    pub number: u32,
    /// Who asked for it.
    pub action: String,
    /// The domain that it belongs to; none: housekeeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The CPUs that it is to go to.
    pub cpus: CpuSet,
}

/// A cache of several CPUs and who shares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CacheSharing {
    /// 1 is nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes; 0 where the firmware does not say.
    pub size: u64,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The domains on them, `housekeeping` among them where it is.
    pub domains: BTreeSet<String>,
}

/// A memory node and who shares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeSharing {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Bytes.
    pub memory: u64,
    /// The domains on it, `housekeeping` among them where it is.
    pub domains: BTreeSet<String>,
}

/// A plan resolved on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResolvedPlan {
    /// Version of this form.
    pub schema_version: u32,
    /// Version of the tool that resolved it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool_version: String,
    /// The topology that it was resolved on.
    pub fingerprint: String,
    /// CPUs for ordinary work.
    pub housekeeping: CpuSet,
    /// CPUs that domains own for their work: those that are shielded.
    pub real_time: CpuSet,
    /// What becomes of the other threads of real-time cores.
    pub smt: SmtPolicy,
    /// Every CPU of the machine that could be online.
    pub cpus: Vec<CpuOwnership>,
    /// Every domain, in the order of the plan.
    pub domains: Vec<ResolvedDomain>,
    /// Every interrupt that somebody asked for.
    pub interrupts: Vec<InterruptOwnership>,
    /// Every cache of more than one CPU.
    pub caches: Vec<CacheSharing>,
    /// Every memory node.
    pub nodes: Vec<NodeSharing>,
    /// What is done about each setting, by its name.
    pub host: BTreeMap<String, KnobChoice>,
    /// What needs a restart.
    pub boot: BootSection,
    /// Rules that are broken, and rules that could not be decided; the gravest first.
    pub findings: Vec<PlanFinding>,
}

impl ResolvedPlan {
    /// Whether a finding refuses it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.findings.iter().any(PlanFinding::refuses)
    }

    /// The domain of this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&ResolvedDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }

    /// Who owns a CPU; none where the machine has no such CPU.
    #[must_use]
    pub fn cpu(&self, cpu: CpuId) -> Option<&CpuOwnership> {
        self.cpus.iter().find(|ownership| ownership.cpu == cpu)
    }

    /// The CPUs of this role.
    #[must_use]
    pub fn with_role(&self, role: CpuRole) -> CpuSet {
        self.cpus
            .iter()
            .filter(|ownership| ownership.role == role)
            .map(|ownership| ownership.cpu)
            .collect()
    }
}
