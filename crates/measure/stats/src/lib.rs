// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds and comparisons with their confidence. `docs/verdicts.md` explains them.
//!
//! **Invariant:** pure functions. No IO, no clock, and randomness only from a given seed: the same
//! samples give the same verdict on every machine.
#![forbid(unsafe_code)]

mod best_domain;
mod beta;
mod bounds;
mod compare;
mod effect;
mod median;
mod paired;
mod rates;
mod risk;
mod spread;
mod student;
mod transfer;
mod visit;

pub use best_domain::{BestDomain, Criterion, best_domain};
pub use bounds::{
    DEADLINE_CONFIDENCE, DEADLINE_RISK, clopper_pearson, deadline_outcome, exceedance_bound,
    time_between_bursts, time_between_violations,
};
pub use compare::{
    ADDED_STOLEN, Compared, INTERFERENCE_TOLERANCE, LONGEST_UNSEEN, QUANTILES, Questions,
    SAME_AS_HOST_TOLERANCE, StolenShare, compare,
};
pub use effect::{
    Basis, EFFECT_QUANTILES, EFFECT_RISK, EFFECT_TOLERANCE, Effect, RatioWith, WORST_OF_RUN,
    effect, holm,
};
pub use median::median_interval;
pub use paired::QuantileRatio;
pub use rates::{ADDED_EVENTS, ADDED_SKIPS, RateRatio, StallLength};
pub use risk::{ALARM_RISK, HOLD_RISK, Look, Risk};
pub use spread::Resampling;
pub use transfer::{
    CROSSED, CROSSED_EMULATED, FEWEST_WINDOWS, PART_TOLERANCE, PART_TOLERANCE_EMULATED,
    PARTIAL_RISK, TRANSFER_RISK, TRANSFER_TOLERANCE, Transfer, transfer,
};
pub use visit::{Slice, Visit};
