// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `rampart-meter`: one conversation ([`rampart_model::MeterRequest`] in,
//! [`rampart_model::MeterEvent`] out), one measurement.
//!
//! The measuring threads only measure. The main thread, on the housekeeping CPUs, does the rest: it
//! reads the rings, the requests and the signals, and writes the events, all in one loop that wakes
//! some twenty times a second and never blocks on its output. If the reader of the output is slow,
//! batches grow longer instead of memory.
//!
//! `rampart-meter block` blocks CPUs, so that others can measure the effect, with its own protocol
//! ([`rampart_model::BlockerRequest`], [`rampart_model::BlockerEvent`]). With a
//! [`CellMemoryLocation`], a cell without an operating system measures or blocks, and this program
//! relays the conversation; `rampart-meter detached` is such a cell's program on a CPU that is taken from
//! Linux. `rampart-meter agent` is implemented in `rampart-agent`.

mod backward;
mod batch_line;
mod blocker;
mod cell;
mod collector;
mod console;
mod conversation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod detached;
mod findings;
mod housekeeping;
mod load;
mod session;
mod slots;
mod thread;
mod worst;

pub use blocker::run_blocker;
pub use cell::CellMemoryLocation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use detached::run_detached;
pub use load::{LoadRequest, run_load};
pub use session::run;
