// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings: the one form in which Rampart reports a deviation or a failure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; no action is needed.
    Note,
    /// It weakens a figure or an isolation, which is reported with this warning.
    Warning,
    /// It makes a figure or an action impossible.
    Error,
}

/// A deviation or a failure: the location, the found value, the expected value and the fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// Id of the rule that it breaks; `None` for a failure that belongs to no rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the rule could not be decided, because a value could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// The subject: a file, a CPU, a domain, a setting.
    pub location: String,
    /// The deviation, as one sentence without a full stop.
    pub what: String,
    /// The value found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The value expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The command or change that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Severity {
    /// Returns the severity as a word for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Finding {
    /// Returns a finding without values and fix; the other methods add them.
    pub fn new(severity: Severity, location: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            severity,
            rule: None,
            undecided: false,
            location: location.into(),
            what: what.into(),
            found: None,
            expected: None,
            fix: None,
        }
    }

    /// Adds the value found and the value expected.
    #[must_use]
    pub fn values(mut self, found: impl Into<String>, expected: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self.expected = Some(expected.into());
        self
    }

    /// Adds the command or change that fixes it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.what)?;
        match (&self.expected, &self.found) {
            (Some(expected), Some(found)) => write!(f, " (expected {expected}, found {found})")?,
            (Some(expected), None) => write!(f, " (expected {expected})")?,
            (None, Some(found)) => write!(f, " (found {found})")?,
            (None, None) => {}
        }
        f.write_str(&fixes(self.fix.as_deref().unwrap_or_default()))
    }
}

/// Returns the end of an error in one line, `; fix: A; fix: B`, for fixes on lines of their own.
#[must_use]
pub fn fixes(fix: &str) -> String {
    fix.lines().map(|fix| format!("; fix: {fix}")).collect()
}
