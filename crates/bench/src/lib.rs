// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benches: where an evaluation runs. `ssh` and `sim` carry the programs to a machine, run them
//! there and bring the results back; `sim` also builds and boots the simulated machine.
#![forbid(unsafe_code)]

pub mod sim;
