// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root's side of the partitioning hypervisor: [`device`] speaks with `kernel/rampart`, [`machine`]
//! makes the system's configuration of what the device tree says. Cells are described with
//! `rampart_hypervisor_core::configuration::build::Blob`.

pub mod describe;
pub mod device;
pub mod linux;
mod lost;
pub mod names;
pub mod operate;
pub mod resolve;
pub mod shared_memory;
pub mod system_configuration;

#[cfg(test)]
mod tests;
