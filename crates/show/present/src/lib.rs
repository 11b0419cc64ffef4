// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reader sees. Every document becomes [`Element`]s: plain data with all words, figures and
//! outcomes. [`terminal`], [`markdown`] and [`html`] only lay them out.
//!
//! **Invariant:** the elements are a pure function of the document. The crate reads nothing else, prints
//! nothing, and recomputes no verdict.

#![forbid(unsafe_code)]

mod changes;
pub mod charts;
mod check;
mod document;
pub mod element;
mod format;
mod junit;
mod knobs;
mod markdown;
mod plan_picture;
mod report;
mod static_html;
mod status;
mod terminal;
mod transfer_matrix;

pub use changes::changes;
pub use check::check;
pub use document::{PageData, html, json};
pub use element::Element;
pub use junit::junit;
pub use knobs::{knob_entry, knob_list, knobs_page, rule_entry};
pub use markdown::markdown;
pub use plan_picture::{plan_page, plan_picture};
pub use report::{explained, report};
pub use status::{busiest_threads, cpu_owner, status};
pub use terminal::{TerminalOptions, terminal};
