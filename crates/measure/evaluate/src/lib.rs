// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans an evaluation (meters, domains, conditions, order of runs), makes its runs and judges the
//! results.
//!
//! [`propose()`] derives a matrix from the machine, [`schedule()`] orders its runs, [`evaluate`]
//! makes the runs and writes the evaluation document after each, [`judge()`] derives the verdicts.
//! [`measure()`] makes a single run of one meter without a document.

mod active_plan;
mod blocktest;
mod blocktest_run;
mod calendar_time;
mod check;
mod collect;
mod comparison;
mod completeness;
mod crash_host;
mod crash_record;
mod crash_verdicts;
mod deadline;
mod decided_after;
mod document_updates;
mod domains;
mod effects;
mod emulated_answers;
mod error;
mod experiment;
mod explain;
mod failures;
mod interference;
mod isolation;
mod judge;
mod kept_meters;
mod load_program;
mod matrix_time;
mod measure;
mod measuring_costs;
mod negative_control;
mod open_verdicts;
mod outside_influence;
mod progress_estimate;
mod propose;
mod propose_cpus;
mod propose_plan;
mod questions;
mod run;
mod schedule;
mod statements;
mod steal;
mod stop_condition;
mod store;
mod summary_sentence;
mod transfer;
mod unwanted_activity;

pub use schedule::{MatrixEntry, schedule};

pub use blocktest_run::{BlocktestRequest, blocktest};
pub use calendar_time::file_name_of_now;
pub use check::check;
pub use completeness::is_complete;
pub use crash_host::CRASH_SIGNS;
pub use crash_record::{confirm_crash, signs_in_memory};
pub use effects::PlanRequest;
pub use effects::judge::judge_effects;
pub use error::EvaluateError;
pub use experiment::{Context, Observer, Progress, evaluate};
pub use judge::{Evidence, Judged, VisitsByRecord, add_crash, judge};
pub use measure::{MeasureContext, measure};
pub use propose::{Proposal, Request, propose};
pub use propose_cpus::{ProposedCpus, propose_cpus};
pub use store::{DOCUMENT, ResultDirectory, ResultStream, read};
pub use transfer::disturbance_request::DisturbanceRequest;
pub use transfer::session::{TransferContext, measure_transfers};
