// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data structures in memory that two sides share, for example a cell and the root. Each word has one
//! writer, and neither side trusts the other.
//!
//! - [`records`]: records in one direction; the writer never waits. For a console and for results.
//! - [`directory`]: the names of a cell's regions.
//! - [`network`]: Ethernet frames in both directions.
//! - [`program_header`]: what a program without an operating system reads about its machine.
//! - [`stream`]: bytes in both directions, without loss. For requests and replies.
//! - `mapping` (feature of the same name): maps such memory into a Linux process.
//!
//! All accesses are loads and stores of whole words of 64 bits: shared memory may be mapped as a
//! device, where the CPU supports no others (Arm ARM, B2.8.2) and no exclusive accesses.
#![cfg_attr(not(any(test, feature = "mapping")), no_std)]
#![deny(unsafe_code)]

pub mod directory;
#[cfg(any(test, feature = "mapping"))]
#[allow(unsafe_code, reason = "the only module that maps memory")]
pub mod mapping;
pub mod network;
pub mod program_header;
pub mod records;
pub mod stream;
