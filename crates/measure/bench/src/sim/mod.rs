// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine: a distribution's own PREEMPT_RT kernel and programs, in QEMU with
//! software emulation.
//!
//! What is real there: the kernel, its scheduler and locks, KVM on x86-64, containers, who can
//! disturb whom. What is not: microseconds.
//!
//! [`Sim::image`] gives an image made of the distribution's packages (`packages`, `image`, `content`),
//! [`Sim::boot`] a machine, whose agent starts programs inside. It needs no root and installs
//! nothing: packages and images live below the user's cache directory (`cache`).

mod architecture;
mod arguments;
mod cache;
mod cells;
mod content;
mod disk;
mod error;
mod image;
mod init;
mod initramfs;
mod kernel;
mod machine;
mod mirror;
mod modules;
mod options;
mod packages;
mod panic_sign;
mod program;
mod root_files;
mod squashfs;
mod up;
mod watch;

pub use architecture::Architecture;
pub use error::SimError;
pub use image::{BuildStep, Image, ImageRecord};
pub use init::Init;
pub use machine::Sim;
pub use options::{CarriedFile, Forward, SimOptions, USUAL_CPUS, USUAL_MEBIBYTES, USUAL_PATIENCE};
pub use packages::Package;
pub use up::{Joined, Up};
pub use watch::Loss;
