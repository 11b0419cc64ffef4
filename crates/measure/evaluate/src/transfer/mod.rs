// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures how domains disturb each other: in each round all domains of a group are watched at
//! once while one of them is disturbed.
//!
//! [`disturbance_request`] parses the request, [`schedule`] chooses the disturbances and groups,
//! [`round_time`] shares out the time, and [`block_length`] sets the length of blocks. [`session`]
//! makes all rounds and [`round`] makes one: [`group`] runs the domains at once,
//! [`block_in_domain`] and [`load_in_domain`] disturb one of them, [`windows`] cuts the latencies
//! at the blocks. [`judge`] derives the verdicts. The modules for request, schedule, time, length,
//! windows and verdicts are pure.

pub(crate) mod block_in_domain;
pub(crate) mod block_length;
pub(crate) mod disturbance_request;
pub(crate) mod group;
pub(crate) mod judge;
pub(crate) mod load_in_domain;
pub(crate) mod round;
pub(crate) mod round_time;
pub(crate) mod schedule;
pub(crate) mod session;
#[cfg(test)]
mod tests;
pub(crate) mod windows;
