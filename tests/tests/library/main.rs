// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Library crates against the real machine: domains, guests, loads, QEMU. They need built programs,
//! privileges or time, so they are not tests of their crates.

mod domains;
mod guests;
mod load;
mod qemu;
