// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the end-to-end tests share: the built programs, a disturbance with known times, a picture of
//! the machine to compare before and after, and the schemas of what is written.
//!
//! The programs under test are those that `make build` leaves in `bin/`, because they are what a
//! user runs. `RAMPART_BIN` names another directory.

pub mod disturbance;
pub mod documents;
pub mod hypervisor;
pub mod inside;
pub mod limited;
pub mod machine_state;
pub mod packages;
pub mod programs;
pub mod simulated;
pub mod standing;
