// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the statistics with simulated data whose truth is known.

mod best_domain;
mod comparison;
mod equal_copies;
mod recorded;
mod simulation;
mod stolen;
mod transfers;
mod truth;
