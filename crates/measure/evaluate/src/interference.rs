// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges by which factor a load slows a domain: for loads of the matrix and for loads in one
//! domain while others are watched. Pure.

use rampart_model::{Distribution, VerdictFigures, VerdictOutcome};
use rampart_stats::{INTERFERENCE_TOLERANCE, QUANTILES, Resampling, interference};

use crate::statements;

/// Runs or rounds, each with its batches in chronological order.
type Runs = [Vec<Distribution>];

/// Returns outcome, statement and figures, or `None` if there is too little data to compare. `idle`
/// names the record of `quiet`.
pub(crate) fn judge_interference(
    loaded: &Runs,
    quiet: &Runs,
    idle: &str,
    resampling: &Resampling,
    emulated: bool,
) -> Option<(VerdictOutcome, String, VerdictFigures)> {
    let found = interference(
        loaded,
        quiet,
        &QUANTILES,
        INTERFERENCE_TOLERANCE,
        resampling,
    )?;
    let (outcome, statement) = statements::interference(&found, INTERFERENCE_TOLERANCE, emulated);
    let figures = VerdictFigures::Interference {
        idle: idle.to_owned(),
        factors: found.factors,
        tolerance: INTERFERENCE_TOLERANCE,
        batches: (batches_in(loaded), batches_in(quiet)),
    };
    Some((outcome, statement, figures))
}

/// Returns the number of batches of all runs.
pub(crate) fn batches_in(runs: &Runs) -> u32 {
    u32::try_from(runs.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX)
}
