// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor in the simulated arm64 machine, with a real kernel as root and with a hostile one: cells and their
//! isolation.

mod change_of_owner;
mod colours;
mod command;
mod configurations;
mod crash;
mod detached;
mod firmware;
mod gicv2;
mod hostile_accesses;
mod hostile_cells;
mod hostile_gicv2;
mod hostile_pairs;
mod hostile_restart;
mod hostile_root;
mod instructions;
mod isolation;
mod linux;
mod machine;
mod models;
mod network;
mod network_costs;
mod newest_kernel;
mod pci;
mod random;
mod root_crash;
mod shared_memory;
mod smmu;
mod standby;
mod two_security_states;
mod waiting;
mod witness;
