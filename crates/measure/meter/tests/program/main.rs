// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program and checks its protocol: refusals of each kind, short runs of each meter, a
//! stop, a stall of known length, a closed reader.
//!
//! No test depends on how long something takes on a busy machine: the tests check only counts that
//! must add up.

mod meter_process;
mod refusals;
mod runs;
