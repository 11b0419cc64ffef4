// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The byte stream over shared memory, between a cell and the root, which have no other connection.
//! On each side a thread moves bytes between the memory and a socket; the code behind the socket is
//! the same as for other byte streams.

mod bridge;
mod range;

pub use bridge::MemoryConnection;
pub(crate) use bridge::answer;
pub use range::MemoryRange;
