// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who disturbs whom: rounds in which all domains of a group are watched at once while one of
//! them is disturbed.
//!
//! [`plan`] says who, as [`wish`] has it, [`times`] for how long, [`length`] how long blocks are;
//! [`session`] makes the rounds one after the other, [`round`] one of them: [`group`] brings the
//! domains up at once, [`blocking`] and [`loading`] disturb one, [`windows`] cuts the latencies at
//! the blocks. [`judge`] draws the verdicts. Wish, plan, times, length, windows and judge are pure.

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
