// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds and comparisons with their confidence. `docs/verdicts.md` explains them.
//!
//! **Invariant:** pure functions. No IO, no clock, and randomness only from a given seed: the same
//! samples give the same verdict on every machine.
#![forbid(unsafe_code)]

mod beta;
mod bounds;
mod compare;
mod effect;
mod median;
mod spread;
mod student;
mod transfer;

pub use bounds::{
    DEADLINE_CONFIDENCE, DEADLINE_RISK, clopper_pearson, deadline_outcome, exceedance_bound,
    time_between_violations,
};
pub use compare::{
    Basis, Factors, INTERFERENCE_TOLERANCE, QUANTILES, SAME_AS_HOST_TOLERANCE, SameAs,
    interference, quantile_ratio, reportable_quantiles, same_as,
};
pub use effect::{EFFECT_RISK, EFFECT_TOLERANCE, Effect, RatioWith, WORST_OF_RUN, effect, holm};
pub use median::median_interval;
pub use spread::Resampling;
pub use transfer::{
    CROSSED, CROSSED_EMULATED, FEWEST_WINDOWS, PARTIAL_RISK, TRANSFER_RISK, TRANSFER_TOLERANCE,
    Transfer, transfer,
};
