// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data structures in memory that two sides share, as a cell and the root do. Each word is written by
//! one side alone, and neither side trusts what the other wrote.
//!
//! - [`records`]: one way; the writer never waits. For a console and for results.
//! - [`directory`]: the names of a cell's regions.
//! - [`stream`]: bytes both ways, without loss. For a conversation.
//! - `mapping` (feature of the same name): maps such memory into a process of Linux.
//!
//! All accesses are loads and stores of whole words of 64 bits: shared memory may be mapped as a
//! device, where the CPU supports no others (Arm ARM, B2.8.2) and no exclusive accesses.
#![cfg_attr(not(any(test, feature = "mapping")), no_std)]
#![deny(unsafe_code)]

pub mod directory;
#[cfg(any(test, feature = "mapping"))]
#[allow(unsafe_code, reason = "the only module that maps memory")]
pub mod mapping;
pub mod records;
pub mod stream;
