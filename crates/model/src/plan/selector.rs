// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs listed, or requested by property.

use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

use super::is_false;
use crate::CpuSet;

/// CPUs of a domain: `"1-3"`, or `{ count = 2, whole-cores = true }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuRequest {
    /// Listed CPUs.
    List(CpuSet),
    /// CPUs with these properties.
    Selector(CpuSelector),
}

/// Properties of the CPUs that a domain requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CpuSelector {
    /// Number of CPUs.
    #[schemars(range(min = 1))]
    pub count: u32,
    /// On this memory node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Only cores without a thread of another owner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole_cores: bool,
    /// Under the last-level cache of this domain; also `housekeeping`.
    #[serde(
        default,
        rename = "same-l3-as",
        skip_serializing_if = "Option::is_none"
    )]
    pub same_l3_as: Option<String>,
    /// Under another last-level cache than this domain's; also `housekeeping`.
    #[serde(default, rename = "not-l3-of", skip_serializing_if = "Option::is_none")]
    pub not_l3_of: Option<String>,
}

impl Serialize for CpuRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::List(cpus) => cpus.serialize(serializer),
            Self::Selector(selector) => selector.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CpuRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = CpuRequest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of CPUs such as \"1-3\", or a table such as { count = 2 }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(CpuRequest::List).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                CpuSelector::deserialize(MapAccessDeserializer::new(map)).map(CpuRequest::Selector)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl schemars::JsonSchema for CpuRequest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuRequest".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "CPUs as a list, or as a table of properties",
            "anyOf": [
                generator.subschema_for::<CpuSet>(),
                generator.subschema_for::<CpuSelector>(),
            ]
        })
    }
}
