// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders the evaluation document: terminal, HTML, JSON, JUnit.
//!
//! **Invariant:** a rendering is a pure function of the [`Evaluation`], or of a part of it. It reads nothing else,
//! prints nothing, and recomputes no verdict: it shows what the document says.

#![forbid(unsafe_code)]

mod cells;
pub mod charts;
mod document;
pub mod element;
mod format;
mod junit;
mod legacy;
mod markdown;
mod terminal;
mod walls;

pub use document::{html, json};
pub use element::Element;
pub use junit::junit;
pub use legacy::{evaluation_text, explained};
pub use markdown::markdown;
pub use terminal::{TerminalOptions, terminal};

#[cfg(doc)]
use rampart_model::Evaluation;
