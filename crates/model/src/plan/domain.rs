// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One domain of a plan.

use serde::{Deserialize, Serialize};

use super::cell::CellOptions;
use super::guest::{CacheShare, GuestMemory, VirtualCpus};
use super::policy::PlannedPolicy;
use super::selector::CpuRequest;
use super::{is_default, is_false, time_text};
use crate::{ContainerEngine, CpuSet, DomainKind, Nanos, SchedulingPolicy};

/// A domain and its resources. The parser checks which fields a kind may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlannedDomain {
    /// Its name: letters, digits, `-`, `_` and `.`; a control group and a unit are named after it.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs, listed or requested by property; a guest has `vcpus` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuRequest>,
    /// A guest's virtual CPUs and the CPUs they are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<VirtualCpus>,
    /// Policy of its threads without an entry in `threads`; a guest's is in `vcpus`.
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
    /// When it is restarted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: Restart,
    /// Image or root directory of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSource>,
    /// Memory of a guest or a cell; a cell has only `size`.
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
    /// CPUs of the emulator's threads besides the virtual CPUs; by default the housekeeping CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<CpuSet>,
    /// CPUs of service threads outside the domain: I/O threads, vhost, proxies; by default the
    /// housekeeping CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<CpuSet>,
    /// Whether a guest's idle virtual CPU keeps its CPU (QEMU's `-overcommit cpu-pm=on`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub cpu_pm: bool,
    /// Whether the guest gets the hint that its CPUs are dedicated (`KVM_HINTS_REALTIME`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub hint_dedicated: bool,
    /// PCI devices of a guest, for example `0000:03:00.0`; PCI functions and devices of the device tree for a cell, for
    /// example `/pl061@9030000`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Number of the user who may take the CPUs of a detached domain without being root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Image of a cell, a plain binary or a Linux kernel: a path on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Options of a cell.
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
    /// Returns a domain with only a name and a kind.
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
            owner: None,
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

/// When a domain is restarted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Never.
    #[default]
    Never,
    /// After an error or a signal.
    OnFailure,
    /// After every end.
    Always,
}

/// Source of a container: an image, or a directory with its root file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContainerSource {
    /// The engine; by default the embedded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<ContainerEngine>,
    /// An image of podman or docker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A directory with the root file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
}

/// Settings of threads by name. They apply to threads that start later too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadRule {
    /// The thread's name as in `/proc/PID/task/TID/comm`; `*` matches any text.
    pub r#match: String,
    /// CPUs of the domain that they may use; by default all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Their policy; by default the policy of the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlannedPolicy>,
}

/// Interrupts by their properties, since their numbers change. All fields must match; `*` matches
/// any text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InterruptMatch {
    /// Its driver or device, as in the last column of `/proc/interrupts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The interrupt controller, as in `/sys/kernel/irq/N/chip_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chip: Option<String>,
    /// The flow, as in `/sys/kernel/irq/N/name`, for example `edge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
