// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment: which meter, where, under what, for how long, in what order; then the
//! verdicts.
//!
//! [`propose`] makes a matrix from the machine, [`schedule`] an order of runs, [`evaluate`] makes
//! the runs and writes the evaluation document after each, [`judge`] draws the verdicts.
//! [`measure`] is the short way: one meter, one run, no document.

mod blocktest;
mod collect;
mod comparison;
mod complete;
mod conclude;
mod costs;
mod cpus;
mod crash;
mod crash_confirmed;
mod crash_verdicts;
mod effects;
mod ending;
mod error;
mod experiment;
mod explain;
mod failures;
mod in_force;
mod interference;
mod judge;
mod measure;
mod pace;
mod propose;
mod propose_plan;
mod run;
mod schedule;
mod sentence;
mod separation;
mod starters;
mod steal;
mod store;
mod structure;
mod time;
mod transfer;
mod unwanted_activity;
mod wording;

pub use schedule::{Cell, schedule};

pub use blocktest::BlocktestLatencies;
pub use complete::is_complete;
pub use cpus::{ProposedCpus, propose_cpus};
pub use crash::CRASH_SIGNS;
pub use crash_confirmed::{confirm_crash, signs_in_memory};
pub use effects::judge::judge_effects;
pub use effects::{PlanRequest, PlanSwitch};
pub use error::EvaluateError;
pub use experiment::{Context, Observer, Progress, evaluate, file_name_of_now};
pub use judge::{BatchesByRecord, Evidence, Judged, add_crash, judge};
pub use measure::{MeasureContext, measure};
pub use propose::{Proposal, Request, propose};
pub use store::{DOCUMENT, ResultDirectory, ResultStream, read};
pub use transfer::session::{TransferContext, measure_transfers};
pub use transfer::wish::DisturbanceWish;
