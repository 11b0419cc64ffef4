// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the programs of the active plan's domains, watches them, restarts them and ends them.
//!
//! - `plan_file`, `shield`, `release`: read, apply and release the plan of a machine.
//! - `active_plan`: the active plan, and the destinations of programs.
//! - `restart`, `thread_rules`: when a program is restarted, and which CPUs and policy a thread gets
//!   by its name; pure.
//! - `program_placement`: moves processes into a domain of the active plan.
//! - `program`: one module for each kind of program: task, container, guest, cell.
//! - `supervisor`: the process that watches one program.
//! - `control`: `up` and `down`, which start and end supervisors.
//! - `record`, `log`: the state of each domain, and the output of its program, on disk.
//!
//! # Why not systemd
//!
//! Transient units of systemd could replace the restart rule, the log and the detached start: some
//! 250 lines. They cannot replace the rest. A cell has no process. A guest needs its virtual CPUs
//! placed through QMP while they are stopped. A container belongs to its engine. Threads are placed
//! by name, and a task must not execute an instruction outside its domain. systemd also owns the
//! control groups of its units, while a domain is an isolated partition directly below the root
//! (systemd, "Control Group APIs and Delegation": each group has one writer), so partitions would
//! have to move below delegated slices. The simulated machines and many boards have no systemd;
//! this supervisor would remain for them, and each kind would be started in two ways. One way is
//! less to maintain. With systemd, `rampart export systemd --plan` writes native units, and a unit can
//! run `rampart up --foreground NAME`.
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
pub use supervisor::{END_LIMIT, supervise};
