// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benches: where an evaluation runs. `ssh` and `sim` carry the programs to a machine, run them
//! there and bring the results back; `sim` also builds and boots the simulated machine.
//!
//! A bench's only primitive is a program started there with its three streams
//! ([`rampart_agent::Agent`]): by ssh the agent is carried first, in the simulated machine it is
//! process 1. All else is the same for both: [`carry`] puts the programs there, [`run`] runs one,
//! [`Results`] takes the result directory in while it comes. Nothing waits for another process or
//! machine without a limit.
#![deny(unsafe_code)]

mod attend;
mod carry;
mod error;
mod remote;
mod results;
mod run;
mod selection;
pub mod sim;
mod ssh;
#[cfg(test)]
mod tests;

pub use attend::{AFTER_END, Attendant, Streams, Tracked, attend, relay};
pub use carry::{Carried, Programs, carry};
pub use error::BenchError;
pub use remote::Machine;
pub use results::{Results, Unpacked};
pub use run::{Ended, Patience, run};
pub use selection::{BenchSelection, ParseBenchError, SshHost};
pub use ssh::Ssh;
