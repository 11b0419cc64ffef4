// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the statistics with simulated data whose truth is known.

mod comparison;
mod equal_copies;
mod transfers;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

/// Returns a sample of the standard normal distribution (Box-Muller transform).
fn normal(generator: &mut Pcg64Mcg) -> f64 {
    let (radius, angle): (f64, f64) = (generator.random(), generator.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
