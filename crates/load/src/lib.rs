// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads that run beside a measurement.
//!
//! A load is one `stress-ng` process for each CPU of its place, bound to that CPU. It counts as
//! started only when its workers were seen to use CPU time, and what it used until its end is in
//! the record: a load that did not run must never pass for a quiet machine.

mod error;
mod load;
mod proc;
mod stressor;

pub use error::LoadError;
pub use load::{Load, LoadVersion, check};
