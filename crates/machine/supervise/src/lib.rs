// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps what the domains of a active plan run: started in its place, watched, restarted, ended.
//!
//! - `plan_file`, `shield`, `release`: a plan file on a machine, applied and taken back.
//! - `standing`: the active plan, and where each of its domains is.
//! - `restart`, `rules`: when a program is started again, where a thread belongs; pure.
//! - `program`: one module a kind of program: a task, a container, a guest.
//! - `supervisor`: the process that watches over one program.
//! - `control`: `up` and `down`, which start and end supervisors.
//! - `record`, `log`: what is known of each domain, on disk.
#![forbid(unsafe_code)]

mod active_plan;
mod control;
mod error;
mod log;
mod plan_file;
mod program;
mod record;
mod release;
mod restart;
mod shield;
mod supervisor;
mod thread_rules;

pub use active_plan::{Destination, HOUSEKEEPING, LoadedPlan};
pub use control::{DownOutcome, Launcher, UpOutcome, down, up};
pub use error::SuperviseError;
pub use plan_file::{PlanFile, PlanFileError, read_plan_text};
pub use record::{Liveness, liveness, supervised, supervised_all};
pub use release::release;
pub use restart::{Decision, RunEnd, decide};
pub use shield::{SHIELD_DOMAIN, ShieldError, shield, unshield};
pub use supervisor::{END_LIMIT, supervise};
