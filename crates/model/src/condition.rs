// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions of a measurement: the load and its location.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest_word::did_you_mean;

/// The load that runs while a meter measures.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// No load.
    Idle,
    /// Arithmetic without waiting.
    Cpu,
    /// Memory bandwidth and page faults.
    Memory,
    /// Thrashing of the caches.
    Cache,
    /// Files, system calls, interrupts of block devices.
    Io,
}

/// The location of a load, relative to the measured CPUs.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LoadLocation {
    /// On the measured CPUs, under the time-sharing policy.
    Same,
    /// On every other online CPU.
    Others,
}

/// A load and its location. Written `idle`, `cpu@others`, `cache@same`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Condition {
    /// The load.
    pub load: LoadKind,
    /// Its location, or `None` for idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<LoadLocation>,
}

/// The error of a text that is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a load: {reason}; write `idle`, or one of cpu, memory, cache, io, with `@same` or `@others` for its place"
)]
pub struct ParseConditionError {
    /// The text.
    pub text: String,
    /// The cause.
    pub reason: String,
}

impl LoadKind {
    /// Every load, ordered by intensity.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Cpu, Self::Memory, Self::Cache, Self::Io];

    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::Io => "io",
        }
    }
}

impl LoadLocation {
    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Others => "others",
        }
    }
}

impl Condition {
    /// The condition without a load.
    pub const IDLE: Self = Self {
        load: LoadKind::Idle,
        location: None,
    };
}

impl Condition {
    /// Returns the condition in words, for readers who do not know the notation.
    #[must_use]
    pub fn in_words(self) -> String {
        let load = self.load.word();
        match self.location {
            None => "while idle".to_owned(),
            Some(LoadLocation::Others) => format!("under a {load} load on other CPUs"),
            Some(LoadLocation::Same) => format!("under a {load} load on the same CPUs"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            Some(location) => f.pad(&format!("{}@{}", self.load.word(), location.word())),
            None => f.pad(self.load.word()),
        }
    }
}

impl FromStr for Condition {
    type Err = ParseConditionError;

    /// Parses a condition. A load without a location runs on the other CPUs.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason: String| ParseConditionError {
            text: text.to_owned(),
            reason,
        };
        let (load, location) = match text.split_once('@') {
            Some((load, location)) => (load, Some(location)),
            None => (text, None),
        };
        let load = LoadKind::ALL
            .into_iter()
            .find(|kind| kind.word() == load)
            .ok_or_else(|| {
                let near = did_you_mean(load, LoadKind::ALL.map(LoadKind::word));
                error(format!("there is no load `{load}`{near}"))
            })?;
        let location = match location {
            None if load == LoadKind::Idle => None,
            None | Some("others") if load != LoadKind::Idle => Some(LoadLocation::Others),
            Some("same") if load != LoadKind::Idle => Some(LoadLocation::Same),
            Some(_) if load == LoadKind::Idle => {
                return Err(error("idle has no location".to_owned()));
            }
            Some(location) => {
                return Err(error(format!(
                    "there is no location `{location}`, only `same` and `others`"
                )));
            }
            None => None,
        };
        Ok(Self { load, location })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_round_trip() {
        for text in ["idle", "cpu@same", "cache@others"] {
            assert_eq!(text.parse::<Condition>().expect(text).to_string(), text);
        }
        assert_eq!(
            "io".parse::<Condition>().expect("io").location,
            Some(LoadLocation::Others)
        );
        for text in ["", "idle@same", "cpu@moon", "gpu", "cpu@"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
