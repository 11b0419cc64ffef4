// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel with which the hypervisor starts the root again.

use serde::{Deserialize, Serialize};

use super::size::ByteSize;

/// A kernel that the hypervisor keeps beside the cells. If the root resets the machine, the hypervisor starts this
/// kernel instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlannedStandby {
    /// Its name in the list of cells.
    pub name: String,
    /// File of the kernel.
    pub kernel: String,
    /// File of its initial file system.
    pub initramfs: String,
    /// All memory of this kernel. By default 256MiB.
    #[serde(
        default = "PlannedStandby::default_memory",
        skip_serializing_if = "PlannedStandby::is_default_memory"
    )]
    pub memory: ByteSize,
    /// Its kernel command line; by default that of the running kernel without the parameters that limit its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

impl PlannedStandby {
    const fn default_memory() -> ByteSize {
        ByteSize(256 << 20)
    }

    fn is_default_memory(memory: &ByteSize) -> bool {
        *memory == Self::default_memory()
    }
}
