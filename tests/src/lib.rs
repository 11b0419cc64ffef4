// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Support for the end-to-end tests: the built programs, disturbances with known times, a snapshot of the
//! machine to compare before and after, and validation by the published schemas.
//!
//! The programs under test are those that `make build` writes to `bin/`, because users run them.
//! `RAMPART_BIN` selects another directory.

pub mod active_plan;
pub mod cell_script;
pub mod detached_programs;
pub mod disturbance;
pub mod documents;
pub mod guest_cases;
pub mod hypervisor;
pub mod inside;
pub mod limited;
pub mod machine_state;
pub mod packages;
pub mod physical;
pub mod processes;
pub mod programs;
pub mod simulated;
pub mod verdicts;
