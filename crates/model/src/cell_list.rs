// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cells of this machine: states, memory, exits to the hypervisor, failures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AddressSpan, CpuSet};

/// Number of a CPU's exits to the hypervisor for one reason, since its cell was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExitCount {
    /// Reason, for example `psci`, `distributor`, `zapped`.
    pub reason: String,
    /// Number of exits.
    pub count: u64,
}

/// One CPU of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CpuReport {
    /// Linux's number of the CPU; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The affinity fields of its MPIDR_EL1.
    pub mpidr: u64,
    /// Power state by PSCI: `on`, `off`, `on-pending`.
    pub power: String,
    /// Number of all exits.
    pub exits: u64,
    /// Exits because of an interrupt that was taken at EL2. Zero for a cell, which takes its
    /// interrupts itself.
    pub interrupt_exits: u64,
    /// Exits by reason, without reasons that never occurred.
    pub by_reason: Vec<ExitCount>,
}

/// State of a failed CPU. Addresses and registers are hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FailureReport {
    /// Reason of the failure.
    pub reason: String,
    /// Index of the CPU in the hypervisor's table.
    pub cpu: u32,
    /// ESR_EL2.
    pub syndrome: String,
    /// FAR_EL2.
    pub virtual_address: String,
    /// The accessed address in the cell's address space.
    pub guest_address: String,
    /// ELR_EL2.
    pub program_counter: String,
    /// SPSR_EL2.
    pub processor_state: String,
    /// x0 to x30.
    pub registers: Vec<String>,
}

/// An access by DMA of a device that the SMMU refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RefusedDma {
    /// StreamID of the device.
    pub stream: u32,
    /// `read` or `write`.
    pub access: String,
    /// Address that the device used, hexadecimal; 0x0 if the event has none.
    pub address: String,
    /// Number of the SMMU's event, hexadecimal (Arm IHI 0070, 7.3).
    pub event: String,
}

/// A part of a cell's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MemoryReport {
    /// Physical location.
    #[serde(flatten)]
    pub span: AddressSpan,
    /// Start address in the cell's address space.
    pub guest: u64,
    /// `own`, `shared` or `device`.
    pub purpose: String,
    /// The colours of its pages, of 32; none for all pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colours: Option<String>,
    /// Name of a shared region in this cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Writer of a shared region: `cell`, `root` or `another cell`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CellListEntry {
    /// Number of the cell.
    pub number: u32,
    /// Name of the cell.
    pub name: String,
    /// `created`, `loadable`, `running`, `stopped`, `failed`.
    pub state: String,
    /// Reason why it does not run; none if it runs or never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Its CPUs by Linux's numbers, as far as known.
    pub cpus: CpuSet,
    /// Number of starts since it was created.
    pub starts: u64,
    /// The longest silence that its watchdog allows, in milliseconds; 0 for no watchdog.
    pub watchdog_milliseconds: u32,
    /// Its memory.
    pub memory: Vec<MemoryReport>,
    /// Its shared interrupts.
    pub interrupts: Vec<u32>,
    /// Its CPUs.
    pub by_cpu: Vec<CpuReport>,
    /// Its latest failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// Accesses by DMA of its devices that the SMMU refused, oldest first, among the latest 16 of all devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_dma: Vec<RefusedDma>,
}
