// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a Linux machine and changes it, never before the old value is on disk.
//!
//! **Invariant:** this is the only crate that writes to `/proc`, `/sys` and control groups, and
//! each write is preceded by its old value in a journal that has reached the disk. Files of
//! groups that the crate made itself need no record: they go with the group.
#![deny(unsafe_code)]

mod changes;
mod child;
mod enter;
mod error;
mod facts;
#[cfg(test)]
mod fake;
mod groups;
mod isolated;
mod journal;
mod kernel;
mod kernel_config;
mod layout;
mod lock;
mod notation;
mod observe;
mod panic;
mod processor_times;
mod real_time;
mod release;
mod root;
mod shield;
mod standing;
mod state;
mod tasks;
mod tracing;
mod undo;

pub use child::{AtOurEnd, Said, end_child, run_within, spawn_tied, wait_within};
pub use enter::enter_standing;
pub use error::HostError;
pub use facts::{read_knob_values, read_machine, read_surroundings};
pub use isolated::reach_isolated_cpus;
pub use kernel_config::kernel_option;
pub use layout::control_group_layout;
pub use observe::{Watch, observe};
pub use panic::PanicTrigger;
pub use processor_times::{ProcessorTimes, processor_times, read_smi_count};
pub use real_time::{RealTimeBudget, diagnose_real_time_policy, free_real_time_budget};
pub use release::{PendingJournal, ReleaseReport, Restored, pending, release};
pub use root::MachineRoot;
pub use shield::{ControlGroup, ControlGroupVersion, Shield};
pub use standing::standing_plan;
pub use state::StateDirectory;
pub use tracing::{Interval, Source, Span, Trace, TracedSample, Tracing, explain};
