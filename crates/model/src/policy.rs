// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies (sched(7)).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::nearest_word::did_you_mean;

/// The scheduling policy of a thread. Written `other`, `fifo:80`, `rr:10`,
/// `deadline:200us/1ms/1ms`; the names of sched(7) are read too, as in `SCHED_FIFO:80`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchedulingPolicy {
    /// `SCHED_OTHER`, the time-sharing default.
    Other,
    /// `SCHED_FIFO` at this priority, 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` at this priority, 1 to 99.
    RoundRobin(u8),
    /// `SCHED_DEADLINE`; runtime ≤ deadline ≤ period, and at least 1024 ns each (sched(7)).
    Deadline {
        /// CPU time in each period.
        runtime: Nanos,
        /// Deadline for that time, relative to the start of the period.
        deadline: Nanos,
        /// Length of the period.
        period: Nanos,
    },
}

/// The error of a text that is not a scheduling policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a scheduling policy: {reason}; write `other`, `fifo:80`, `rr:80` or `deadline:200us/1ms/1ms`"
)]
pub struct ParsePolicyError {
    /// The text.
    pub text: String,
    /// The cause.
    pub reason: String,
}

const KNOWN: [&str; 4] = ["other", "fifo", "rr", "deadline"];

impl SchedulingPolicy {
    /// Returns whether it runs before all time-sharing threads.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        !matches!(self, Self::Other)
    }

    /// Returns the rank in which the scheduler picks runnable threads: deadline before priorities,
    /// higher priorities first, time-sharing last (sched(7)).
    #[must_use]
    pub const fn precedence(self) -> u8 {
        match self {
            Self::Other => 0,
            Self::Fifo(priority) | Self::RoundRobin(priority) => priority,
            Self::Deadline { .. } => u8::MAX,
        }
    }
}

impl fmt::Display for SchedulingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.pad("other"),
            Self::Fifo(priority) => f.pad(&format!("fifo:{priority}")),
            Self::RoundRobin(priority) => f.pad(&format!("rr:{priority}")),
            Self::Deadline {
                runtime,
                deadline,
                period,
            } => f.pad(&format!(
                "deadline:{}ns/{}ns/{}ns",
                runtime.0, deadline.0, period.0
            )),
        }
    }
}

impl FromStr for SchedulingPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason: String| ParsePolicyError {
            text: text.to_owned(),
            reason,
        };
        let (name, argument) = text.split_once(':').unwrap_or((text, ""));
        let lower = name.to_ascii_lowercase();
        let name = lower.strip_prefix("sched_").unwrap_or(&lower);
        let priority = || match argument.parse::<u8>() {
            Ok(priority @ 1..=99) => Ok(priority),
            _ => Err(error(format!(
                "its priority `{argument}` is not between 1 and 99"
            ))),
        };
        match name {
            // The kernel's own name of SCHED_OTHER is SCHED_NORMAL.
            "other" | "normal" if argument.is_empty() => Ok(Self::Other),
            "other" | "normal" => Err(error(format!("`{name}` takes no priority"))),
            "fifo" => Ok(Self::Fifo(priority()?)),
            "rr" => Ok(Self::RoundRobin(priority()?)),
            "deadline" => {
                let times: Vec<Nanos> = argument
                    .split('/')
                    .map(str::parse)
                    .collect::<Result<_, crate::ParseNanosError>>()
                    .map_err(|cause| error(cause.to_string()))?;
                let &[runtime, deadline, period] = times.as_slice() else {
                    return Err(error("it needs RUNTIME/DEADLINE/PERIOD".to_owned()));
                };
                if runtime < Nanos(1024) || runtime > deadline || deadline > period {
                    return Err(error(
                        "1024 ns ≤ runtime ≤ deadline ≤ period does not hold".to_owned(),
                    ));
                }
                Ok(Self::Deadline {
                    runtime,
                    deadline,
                    period,
                })
            }
            _ => Err(error(format!(
                "there is no policy `{name}`{}",
                did_you_mean(name, KNOWN)
            ))),
        }
    }
}

impl Serialize for SchedulingPolicy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SchedulingPolicy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for SchedulingPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchedulingPolicy".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`other`, `fifo:N`, `rr:N` (1 to 99) or `deadline:RUNTIME/DEADLINE/PERIOD`; also as in `SCHED_FIFO:80`",
            "pattern": "^[A-Za-z_]+(:([0-9]+|.+/.+/.+))?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn policies_round_trip() {
        for text in [
            "other",
            "fifo:1",
            "rr:99",
            "deadline:200000ns/1000000ns/1000000ns",
        ] {
            let policy: SchedulingPolicy = text.parse().expect(text);
            assert_eq!(policy.to_string(), text);
        }
        for (text, same) in [
            ("SCHED_FIFO:80", "fifo:80"),
            ("FIFO:80", "fifo:80"),
            ("sched_rr:1", "rr:1"),
            ("SCHED_OTHER", "other"),
            ("SCHED_NORMAL", "other"),
            (
                "SCHED_DEADLINE:200us/1ms/1ms",
                "deadline:200000ns/1000000ns/1000000ns",
            ),
        ] {
            let policy: SchedulingPolicy = text.parse().expect(text);
            assert_eq!(policy.to_string(), same);
        }
        for text in [
            "",
            "SCHED_",
            "SCHED_SCHED_FIFO:1",
            "SCHED_FIFO",
            "normal:1",
            "fifo",
            "fifo:0",
            "rr:100",
            "other:1",
            "batch",
            "deadline:1ms",
            "deadline:2ms/1ms/1ms",
            "deadline:1ns/1ms/1ms",
        ] {
            assert!(text.parse::<SchedulingPolicy>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistyped_policy_gets_the_nearest() {
        let error = "fido:80".parse::<SchedulingPolicy>().expect_err("none");
        assert!(
            error.to_string().contains("did you mean `fifo`?"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(SCHED_|sched_)?(fifo|RR|other|deadline)?[:/0-9a-z]{0,16}|.{0,20}") {
            if let Ok(policy) = text.parse::<SchedulingPolicy>() {
                prop_assert_eq!(policy.to_string().parse(), Ok(policy));
            }
        }
    }
}
