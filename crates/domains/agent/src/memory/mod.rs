// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The byte stream over memory that two share, where there is no other way in: a cell and the root.
//! On either side a thread moves bytes between the memory and a socket, behind which everything is as
//! over any other byte stream.

mod bridge;
mod location;

pub use bridge::MemoryLine;
pub(crate) use bridge::answer;
pub use location::MemoryPlace;
