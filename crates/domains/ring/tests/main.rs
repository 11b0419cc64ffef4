// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of records and byte streams in shared memory, one program.

use std::sync::atomic::AtomicU64;

mod network;
mod network_model;
mod records;
mod stream;

/// Returns zeroed memory.
fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
