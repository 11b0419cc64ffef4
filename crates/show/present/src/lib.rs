// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders the evaluation document: terminal, HTML, JSON, JUnit.
//!
//! **Invariant:** a rendering is a pure function of the [`Evaluation`], or of a part of it. It reads nothing else,
//! prints nothing, and recomputes no verdict: it shows what the document says.

#![forbid(unsafe_code)]

mod cells;
mod document;
mod format;
mod junit;
mod terminal;
mod walls;

pub use document::{html, json};
pub use junit::junit;
pub use terminal::{TerminalOptions, explained, terminal};

#[cfg(doc)]
use rampart_model::Evaluation;
