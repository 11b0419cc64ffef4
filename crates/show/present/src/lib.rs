// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reader sees. [`report`] turns an evaluation into [`Element`]s: plain data with all words,
//! figures and outcomes. [`terminal`], [`markdown`] and [`html`] only lay them out.
//!
//! **Invariant:** a report is a pure function of the [`Evaluation`]. It reads nothing else, prints
//! nothing, and recomputes no verdict.

#![forbid(unsafe_code)]

pub mod charts;
mod document;
pub mod element;
mod format;
mod junit;
mod markdown;
mod report;
mod static_html;
mod terminal;
mod transfer_matrix;

pub use document::{PageData, html, json};
pub use element::Element;
pub use junit::junit;
pub use markdown::markdown;
pub use report::{explained, report};
pub use terminal::{TerminalOptions, terminal};

#[cfg(doc)]
use rampart_model::Evaluation;
