// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of a machine: read from its file, resolved on a machine, checked against the rules
//! that others learned the hard way, proposed from a topology, written, and drawn.
//!
//! **Invariant:** this crate is pure. It reads no file, asks no clock and starts nothing: text,
//! [`Machine`](rampart_model::Machine) and [`Environment`](rampart_model::Surroundings) go in, a
//! plan, its resolution or a text comes out. The same input gives the same output.

#![forbid(unsafe_code)]

mod cell;
mod claims;
mod details;
mod error;
mod export;
mod fingerprint;
mod kinds;
mod locations;
mod names;
mod parse;
mod picture;
mod propose;
mod resolve;
mod select;
mod shares;
mod write;

pub use cell::is_linux;
pub use error::PlanError;
pub use export::{
    DomainField, Engine, Exported, ExportedFile, MARK, MachineField, Means, Subject, containers,
    kubernetes, libvirt, systemd, tuned,
};
pub use fingerprint::{difference, fingerprint};
pub use locations::Places;
pub use parse::parse;
pub use picture::{PictureOptions, finding_line, html, terminal};
pub use propose::{Proposal, ProposeError, Wish, propose};
pub use resolve::resolve;
pub use write::write;

/// The JSON Schema of a plan. A plan is TOML; its values are those of JSON.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(rampart_model::Plan)
}
