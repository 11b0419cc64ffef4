// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor on a real kernel in the simulated arm64 machine: cells, and what they may not do.

mod command;
mod crash;
mod isolation;
mod linux;
mod root_crash;
mod shared_memory;
mod two_security_states;
