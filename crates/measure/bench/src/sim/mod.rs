// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine: a distribution's own PREEMPT_RT kernel and programs, in QEMU with
//! software emulation.
//!
//! The kernel, its scheduler and locks, KVM on x86-64, containers and the interference between
//! domains are real. Latencies in microseconds are not.
//!
//! [`Sim::image`] returns an image built from the distribution's packages (`packages`, `image`,
//! `content`). [`Sim::boot`] boots a machine whose agent starts programs inside. Neither needs root or
//! installs anything: packages and images are below the user's cache directory (`cache`). A machine that was booted once
//! is saved there and restored from then on (`snapshot`).

mod architecture;
mod arguments;
mod board_memory;
mod board_tree;
mod build_programs;
mod cache;
mod cells;
mod content;
mod disk;
mod emulator;
mod error;
mod image;
mod init;
mod initramfs;
mod kernel;
mod mirror;
mod modules;
mod options;
mod packages;
mod panic_sign;
mod root_files;
mod running_machine;
mod snapshot;
mod squashfs;
mod start;
mod up;
mod watch;

pub use architecture::Architecture;
pub use emulator::newer_qemu;
pub use error::SimError;
pub use image::{BuildStep, Image, ImageRecord};
pub use init::Init;
pub use options::{
    CopiedFile, Forward, SimOptions, USUAL_BOOT_TIMEOUT, USUAL_CPUS, USUAL_MEBIBYTES,
};
pub use packages::SimPackage;
pub use running_machine::Sim;
pub use up::{Joined, Up};
pub use watch::Loss;
