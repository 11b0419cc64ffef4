// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies in the format of a plan.

use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

use super::time_text::{TimeText, exact};
use crate::SchedulingPolicy;

/// A scheduling policy: `"other"`, `{ fifo = 80 }`, `{ rr = 10 }` or
/// `{ deadline = { runtime = "200us", deadline = "1ms", period = "1ms" } }`; also in the format of
/// the command line, as `"fifo:80"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlannedPolicy(pub SchedulingPolicy);

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Reservation {
    /// CPU time in each period.
    runtime: TimeText,
    /// Deadline relative to the start of the period.
    deadline: TimeText,
    /// Length of the period.
    period: TimeText,
}

/// Exactly one field is set.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PolicyTable {
    /// `SCHED_FIFO` at this priority, 1 to 99.
    #[schemars(range(min = 1, max = 99))]
    fifo: Option<u8>,
    /// `SCHED_RR` at this priority, 1 to 99.
    #[schemars(range(min = 1, max = 99))]
    rr: Option<u8>,
    /// `SCHED_DEADLINE`.
    deadline: Option<Reservation>,
}

impl PolicyTable {
    /// Returns the policy in the format of the command line, whose parser checks it.
    fn text(&self) -> Result<String, &'static str> {
        match (self.fifo, self.rr, &self.deadline) {
            (Some(priority), None, None) => Ok(format!("fifo:{priority}")),
            (None, Some(priority), None) => Ok(format!("rr:{priority}")),
            (None, None, Some(reservation)) => Ok(format!(
                "deadline:{}ns/{}ns/{}ns",
                reservation.runtime.0.0, reservation.deadline.0.0, reservation.period.0.0
            )),
            _ => Err("a policy is exactly one of { fifo = N }, { rr = N } and { deadline = … }"),
        }
    }
}

impl Serialize for PlannedPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = match self.0 {
            SchedulingPolicy::Other => return serializer.serialize_str("other"),
            _ => serializer.serialize_map(Some(1))?,
        };
        match self.0 {
            SchedulingPolicy::Other => {}
            SchedulingPolicy::Fifo(priority) => table.serialize_entry("fifo", &priority)?,
            SchedulingPolicy::RoundRobin(priority) => table.serialize_entry("rr", &priority)?,
            SchedulingPolicy::Deadline {
                runtime,
                deadline,
                period,
            } => {
                let times = [
                    ("runtime", runtime),
                    ("deadline", deadline),
                    ("period", period),
                ];
                let times: std::collections::BTreeMap<&str, String> = times
                    .into_iter()
                    .map(|(name, time)| (name, exact(time)))
                    .collect();
                table.serialize_entry("deadline", &times)?;
            }
        }
        table.end()
    }
}

impl<'de> Deserialize<'de> for PlannedPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PlannedPolicy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy such as \"other\", { fifo = 80 } or { rr = 10 }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(PlannedPolicy).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let table = PolicyTable::deserialize(MapAccessDeserializer::new(map))?;
                let text = table.text().map_err(A::Error::custom)?;
                text.parse().map(PlannedPolicy).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl schemars::JsonSchema for PlannedPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PlannedPolicy".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A scheduling policy",
            "anyOf": [
                generator.subschema_for::<SchedulingPolicy>(),
                generator.subschema_for::<PolicyTable>(),
            ]
        })
    }
}
