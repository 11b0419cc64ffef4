// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring engines and, behind the feature `std`, the Linux program that runs them.
//!
//! - [`engine`]: the loops themselves, `no_std`, over small traits for clock, counter, sleep and
//!   sink. **Invariant:** a loop never allocates, locks, prints or touches a page for the first
//!   time after its warm-up.
//! - [`cell`]: the same loops in a cell without an operating system, and the shared memory through
//!   which it exchanges orders and results with the root cell.
//! - [`timescale`]: counter ticks to nanoseconds.
//! - `ring`, `histogram`, `throttling`: transport and evaluation of samples outside the measuring
//!   thread.
//! - `client`: the caller's side of the protocol of `rampart-meter`.
//! - `program`: the program `rampart-meter`.
//! - `linux`: the system calls and files that the program uses. Each works on kernels from 4.19 on.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod cell;
pub mod engine;
pub mod timescale;

#[cfg(feature = "std")]
pub mod client;
#[cfg(feature = "std")]
pub mod histogram;
#[cfg(feature = "std")]
mod linux;
#[cfg(feature = "std")]
pub use linux::scheduling::run_before_loads;
#[cfg(feature = "std")]
pub mod program;
#[cfg(feature = "std")]
pub mod ring;
#[cfg(feature = "std")]
pub mod throttling;
