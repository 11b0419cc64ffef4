// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command on this machine: programs placed, domains measured and disturbed.

mod alone;
mod blocks;
mod evaluation;
mod explanations;
mod known_answers;
mod measuring;
mod old_kernel;
mod outside_influence;
mod packages;
mod preferred;
mod run;
mod status;
mod transfer;
mod up;
mod who_disturbs_whom;
