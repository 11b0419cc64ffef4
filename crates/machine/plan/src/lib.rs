// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of a machine: parses, resolves, proposes, writes and exports it. The rules that a plan
//! is judged by are in `rampart-rules`.
//!
//! **Invariant:** this crate is pure: it does no IO and reads no clock. The same
//! [`Machine`](rampart_model::Machine), [`Environment`](rampart_model::Environment) and text give the
//! same result.

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
mod propose;
mod resolve;
mod select;
mod shares;
mod standby;
mod write;

pub use cell::is_linux;
pub use error::PlanError;
pub use export::libvirt_elements;
pub use export::{
    DomainField, Engine, ExportSubject, Exported, ExportedFile, MARK, MachineField, Means,
    containers, kubernetes, libvirt, systemd, tuned,
};
pub use fingerprint::{difference, fingerprint};
pub use locations::DomainLines;
pub use parse::parse;
pub use propose::{PlanProposal, ProposalRequest, ProposeError, propose};
pub use resolve::resolve;
pub use write::write;

/// Returns the JSON Schema of a plan. A plan is TOML with the values of JSON.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(rampart_model::Plan)
}
