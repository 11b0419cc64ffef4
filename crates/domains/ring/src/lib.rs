// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes through memory that two share, as a cell and the root do: each part of it is written by
//! one of them alone, and neither believes what the other wrote.
//!
//! - [`records`]: one way, the writer never waits: a console, results.
//! - [`directory`]: what the regions of a cell are called.
//! - [`stream`]: bytes both ways, nothing is lost: a conversation.
//!
//! All accesses are whole words of 64 bits, loads and stores alone: shared memory may be mapped as
//! a device, where the CPU knows no other (Arm ARM, B2.8.2), and no exclusive access.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod directory;
pub mod records;
pub mod stream;
