// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the programs of the active plan's domains, watches them, restarts them and ends them.
//!
//! - `plan_file`, `shield`, `release`: read, apply and release the plan of a machine.
//! - `active_plan`: the active plan, and the destinations of programs.
//! - `standby`: the kernels that are kept to start the root again.
//! - `restart`, `thread_rules`: when a program is restarted, and which CPUs and policy a thread gets
//!   by its name; pure.
//! - `program_placement`: moves processes into a domain of the active plan.
//! - `program`: one module for each kind of program: task, container, guest, cell.
//! - `supervisor`: the process that watches one program.
//! - `control`: `up` and `down`, which start and end supervisors.
//! - `record`, `log`: the state of each domain, and the output of its program, on disk.
//!
//! ARCHITECTURE.md has the reason why systemd does not do this.
#![forbid(unsafe_code)]

mod active_plan;
mod control;
mod error;
mod log;
mod plan_file;
mod program;
mod program_placement;
mod record;
mod release;
mod restart;
mod shield;
mod standby;
mod supervisor;
mod thread_rules;

pub use active_plan::{Destination, HOUSEKEEPING, LoadedPlan};
pub use control::{DownOutcome, Launcher, UpOutcome, down, up};
pub use error::SuperviseError;
pub use plan_file::{PlanFile, PlanFileError, read_plan_text};
pub use program_placement::{PlacementTarget, execute_there};
pub use record::{Liveness, liveness, supervised, supervised_all};
pub use release::release;
pub use restart::{Decision, RunEnd, decide};
pub use shield::{SHIELD_DOMAIN, ShieldError, shield, unshield};
pub use standby::{StandbyOutcome, keep_standby, remove_standby};
pub use supervisor::{END_LIMIT, supervise};
