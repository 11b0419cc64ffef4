// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machines of both architectures: booted, measured, disturbed and crashed.

mod aarch64;
mod blocks;
mod boards;
mod detach;
mod joining;
mod long;
mod run_and_up;
mod stock_kernel;
mod systemd;
