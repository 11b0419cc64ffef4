// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machines of both architectures: booted, measured, disturbed and crashed, and with plans applied.

mod aarch64;
mod apply;
mod blocks;
mod boards;
mod boards_without_disks;
mod detach;
mod documented_commands;
mod effects;
mod joining;
mod long;
mod run_and_up;
mod snapshots;
mod stock_kernel;
mod systemd;
mod unpacked;
