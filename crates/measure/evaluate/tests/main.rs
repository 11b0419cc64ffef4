// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the proposed matrices and the verdicts of evaluations.

mod effects;
mod judging;
mod proposing;
mod proposing_plan;
