// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document of `rampart release`.

use std::path::PathBuf;

use serde::Serialize;

use crate::Finding;

/// One restored value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Its location: a file, a control group, a thread.
    pub location: String,
    /// The action that restored it.
    pub what: String,
}

/// The result of a release.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ReleaseReport {
    /// The restored values, in order of time.
    pub restored: Vec<Restored>,
    /// Values that were not restored: another program has changed them, or (with
    /// [`Severity::Error`](crate::Severity::Error)) restoring failed and the journal keeps them.
    pub left: Vec<Finding>,
    /// The removed journals.
    pub journals: Vec<PathBuf>,
}
