// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root's side of the partitioning hypervisor: [`device`] calls `kernel/rampart`,
//! [`system_configuration`] builds the system's configuration from the device tree. Cells are
//! described with `rampart_hypervisor_core::configuration::build::Blob`.

pub mod describe;
pub mod device;
pub mod linux;
mod lost;
pub mod names;
pub mod network;
pub mod operate;
pub mod pci;
pub mod resolve;
pub mod scmi;
pub mod shared_memory;
pub mod system_configuration;

#[cfg(test)]
mod tests;
