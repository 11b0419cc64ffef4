// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One domain of a plan.

use serde::{Deserialize, Serialize};

use super::cell::CellOptions;
use super::guest::{CacheShare, GuestMemory, VirtualCpus};
use super::policy::PlannedPolicy;
use super::selector::CpuRequest;
use super::{is_default, is_false, time_text};
use crate::{ContainerEngine, CpuSet, DomainKind, Nanos, SchedulingPolicy};

/// A domain and what it owns. Which fields a kind may have is checked when the plan is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlannedDomain {
    /// Its name: letters, digits, `-`, `_` and `.`; a control group and a unit are named after it.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs, listed or asked for by property; a guest has `vcpus` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuRequest>,
    /// A guest's virtual CPUs and the CPUs they are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<VirtualCpus>,
    /// Policy of its threads where no entry of `threads` says otherwise; a guest's is in `vcpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlannedPolicy>,
    /// Its deadline: `rampart evaluate` judges by it.
    #[serde(
        default,
        with = "time_text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<time_text::TimeText>")]
    pub deadline: Option<Nanos>,
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// When it is started again after it ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: Restart,
    /// What a container runs from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSource>,
    /// A guest's memory, or a cell's, of which only the size can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<GuestMemory>,
    /// A guest's kernel: a path on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The initial file system of a guest or of a cell's Linux: a path on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initramfs: Option<String>,
    /// A guest's disk: a path on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// CPUs for the threads of a guest's emulator that are no virtual CPU; without it the
    /// housekeeping CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<CpuSet>,
    /// CPUs for what serves the domain from outside: I/O threads, vhost, proxies; without it the
    /// housekeeping CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<CpuSet>,
    /// Whether a guest's idle virtual CPU keeps its CPU (QEMU's `-overcommit cpu-pm=on`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub cpu_pm: bool,
    /// Whether a guest is told that its CPUs are never taken from it (`KVM_HINTS_REALTIME`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub hint_dedicated: bool,
    /// PCI devices given to a guest, for example `0000:03:00.0`; for a cell devices of the device
    /// tree, for example `/pl061@9030000`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// What a cell runs: a path on this machine, of a plain binary or of a Linux kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What only a cell has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellOptions>,
    /// Its share of a cache and of memory bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheShare>,
    /// Threads that differ from the rest of the domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadRule>,
    /// Interrupts that go to this domain's CPUs; all others stay on the housekeeping CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptMatch>,
}

impl PlannedDomain {
    /// A domain of which nothing is known but name and kind.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: DomainKind) -> Self {
        Self {
            name: name.into(),
            kind,
            cpus: None,
            vcpus: None,
            policy: None,
            deadline: None,
            run: Vec::new(),
            restart: Restart::default(),
            container: None,
            memory: None,
            kernel: None,
            initramfs: None,
            disk: None,
            emulator: None,
            service: None,
            cpu_pm: false,
            hint_dedicated: false,
            devices: Vec::new(),
            image: None,
            cell: None,
            cache: None,
            threads: Vec::new(),
            interrupts: Vec::new(),
        }
    }

    /// Returns the CPUs that the domain lists; `None` if it requests CPUs by property.
    #[must_use]
    pub fn listed_cpus(&self) -> Option<CpuSet> {
        match (&self.cpus, &self.vcpus) {
            (Some(CpuRequest::List(cpus)), _) => Some(cpus.clone()),
            (_, Some(vcpus)) => vcpus.request().cpus,
            _ => None,
        }
    }

    /// Returns the CPUs of the domain's emulator and of its service threads.
    #[must_use]
    pub fn service_cpus(&self) -> CpuSet {
        let cpus = |set: &Option<CpuSet>| set.clone().unwrap_or_default();
        cpus(&self.emulator).union(&cpus(&self.service))
    }

    /// Returns every policy that the plan gives to threads of the domain.
    pub fn policies(&self) -> impl Iterator<Item = SchedulingPolicy> {
        let guest = self.vcpus.as_ref().and_then(|vcpus| vcpus.request().policy);
        let threads = self.threads.iter().filter_map(|rule| rule.policy);
        self.policy
            .into_iter()
            .chain(guest)
            .chain(threads)
            .map(|policy| policy.0)
    }

    /// Returns the policy of the domain that the scheduler prefers over its others.
    #[must_use]
    pub fn highest_policy(&self) -> Option<SchedulingPolicy> {
        self.policies().max_by_key(|policy| policy.precedence())
    }
}

/// When a domain is started again after it ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Never.
    #[default]
    Never,
    /// When it ended with an error or a signal.
    OnFailure,
    /// Whenever it ended.
    Always,
}

/// What a container runs from: an image, or a directory that is its root file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContainerSource {
    /// What runs it; without it the one that Rampart brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<ContainerEngine>,
    /// An image of podman or docker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
}

/// What threads of one name get. Threads appear after their program has begun, so they are
/// matched whenever one is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadRule {
    /// The thread's name as in `/proc/PID/task/TID/comm`; `*` stands for any text.
    pub r#match: String,
    /// CPUs of the domain that they may use; without it all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Their policy; without it that of the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlannedPolicy>,
}

/// Interrupts by what they are, because their numbers change. All fields that are given must
/// match; `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InterruptMatch {
    /// Who asked for it: a driver or device, as in the last column of `/proc/interrupts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The interrupt controller, as in `/sys/kernel/irq/N/chip_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chip: Option<String>,
    /// The flow, as in `/sys/kernel/irq/N/name`, for example `edge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
