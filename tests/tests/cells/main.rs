// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor with a real kernel in the simulated arm64 machine: cells and their isolation.

mod command;
mod crash;
mod isolation;
mod linux;
mod root_crash;
mod shared_memory;
mod two_security_states;
