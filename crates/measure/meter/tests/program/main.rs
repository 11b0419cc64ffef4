// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program and holds it to its conversation: refusals of each kind, short runs of each
//! meter, a stop, a stall of known length, a reader that goes away.
//!
//! Nothing here judges how long anything takes on a busy machine: only counts that must add up.

mod refusals;
mod runs;
mod support;
