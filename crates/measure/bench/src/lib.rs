// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benches: the machines an evaluation runs on. `ssh` and `sim` copy the programs to a machine, run
//! them there and fetch the results. `sim` also builds and boots the simulated machine.
//!
//! A bench's only primitive is to start a program with its three streams through an agent
//! ([`rampart_agent::Agent`]). Over ssh the agent is copied first; in the simulated machine it is
//! process 1. The rest is the same for both: [`copy_programs`] copies the programs, [`run`] runs one,
//! [`Results`] unpacks the result directory while it arrives. Every wait for another process or
//! machine has a limit.
#![deny(unsafe_code)]

mod copy_programs;
mod error;
mod monitor;
mod remote;
mod results;
mod run;
mod selection;
pub mod sim;
mod ssh;
mod standard_streams;
#[cfg(test)]
mod tests;

pub use copy_programs::{CopiedPrograms, Programs, copy_programs};
pub use error::BenchError;
pub use monitor::{AFTER_END, ProcessMonitor, Streams, TrackedStream, monitor, relay};
pub use remote::{BenchMachine, CrashEvidence, EvaluationBench};
pub use results::{Results, Unpacked};
pub use run::{Ended, SilenceLimits, run};
pub use selection::{BenchSelection, ParseBenchError, SshHost};
pub use ssh::Ssh;
pub use standard_streams::{has_terminal, run_with_standard_streams};
