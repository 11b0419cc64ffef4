// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Presentation. Every document becomes [`Element`]s: plain data with all words, figures and outcomes.
//! [`terminal`], [`markdown`] and [`html`] only lay them out.
//!
//! **Invariant:** the elements are a pure function of the document. The crate reads nothing else, prints
//! nothing, and recomputes no verdict.

#![forbid(unsafe_code)]

mod active_plan;
mod ascii;
mod blocks;
mod cell_description;
mod cells;
mod changes;
pub mod charts;
mod check;
mod detached;
mod document;
mod domain_programs;
mod domains;
pub mod element;
mod evaluation_progress;
mod format;
mod junit;
mod knobs;
mod live_status;
mod markdown;
mod measurement;
mod message;
mod peer_measurement;
mod placement;
mod plan_findings;
mod plan_picture;
mod report;
mod static_html;
mod status;
mod terminal;
mod transfer_matrix;

pub use active_plan::{BootFiles, applied, applied_step, boot_files, boot_files_written, released};
pub use ascii::ascii;
pub use blocks::{blocking, blocktest, planned_blocks};
pub use cell_description::cell_description;
pub use cells::{CellMemory, CellResources, cell_exits, cell_list, cell_resources, refused_dma};
pub use changes::changes;
pub use check::check;
pub use detached::detached_cpus;
pub use document::{PageData, html, json};
pub use domain_programs::{ProgramOutcome, last_exit, program_outcomes, supervised};
pub use domains::domains;
pub use element::Element;
pub use evaluation_progress::{
    RunSummary, measured_on_line, planned_lines, round_lines, run_lines,
};
pub use junit::junit;
pub use knobs::{knob_entry, knob_list, knobs_page, rule_entry};
pub use live_status::{CpuColumn, CpuWithLatency, LIVE_STATUS_KEYS, live_status, live_status_help};
pub use markdown::markdown;
pub use measurement::{measurement, measurement_csv};
pub use message::message;
pub use peer_measurement::peer_measurement;
pub use placement::{ProgramDestination, placed_threads, program_destinations};
pub use plan_findings::plan_findings;
pub use plan_picture::{plan_page, plan_picture};
pub use report::report;
pub use status::status;
pub use terminal::{TerminalOptions, terminal};
