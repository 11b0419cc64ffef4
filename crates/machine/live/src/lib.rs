// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live status of this machine: a series of statuses, with the latencies that low-rate meters
//! measure, shown on a terminal or served as OpenMetrics over HTTP.

#![forbid(unsafe_code)]

mod error;
mod low_rate_meters;
mod sampler;
mod screen;
mod server;

pub use error::LiveError;
pub use low_rate_meters::MeterProgram;
pub use sampler::{Sampler, wait};
pub use screen::watch;
pub use server::{ServeAddress, serve};
