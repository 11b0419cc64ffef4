// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who disturbs whom: rounds in which all domains of a group are watched at once while one of
//! them is disturbed.
//!
//! [`plan`] says who, as [`wish`] has it, [`times`] for how long, [`length`] how long blocks are;
//! [`session`] makes the rounds one after the other, [`round`] one of them: [`group`] brings the
//! domains up at once, [`blocking`] and [`loading`] disturb one, [`windows`] cuts the latencies at
//! the blocks. [`judge`] draws the verdicts. Wish, plan, times, length, windows and judge are pure.

pub(crate) mod blocking;
pub(crate) mod group;
pub(crate) mod judge;
pub(crate) mod length;
pub(crate) mod loading;
pub(crate) mod plan;
pub(crate) mod round;
pub(crate) mod session;
#[cfg(test)]
mod tests;
pub(crate) mod times;
pub(crate) mod windows;
pub(crate) mod wish;
