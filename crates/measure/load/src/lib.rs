// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs loads and blocks beside a measurement.
//!
//! A load is one process for each CPU of its location, bound to that CPU: `stress-ng`, or the meter's
//! own load where that is not installed. It counts as started only when its workers have used CPU
//! time, and it fails if it used too small a share of its CPU: a load that did not run must never pass
//! for a quiet machine.
//!
//! A block stops a CPU for a known time. The program `rampart-meter block` makes it, on this kernel
//! or on another, and reports when each block began and ended.

mod blocks;
mod blocks_error;
mod error;
mod inside;
mod load;
mod load_program;
mod proc;
mod share;
mod stressor;

pub use blocks::{Blocks, BlocksOutcome, BlocksProgress};
pub use blocks_error::BlocksError;
pub use error::LoadError;
pub use inside::{
    METERS_OWN, command_inside, has_begun, has_ended, meter_command_inside, record_inside,
};
pub use load::Load;
pub use load_program::LoadProgram;
pub use share::SHARE_NEEDED;
