// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Integration tests of the hypervisor's core, one program.

mod colours;
mod configuration;
mod devices;
mod gicv2;
mod interface;
mod interrupts;
mod lifecycle;
mod memory;
mod protocol;
mod size;
mod smmu;
mod support;
