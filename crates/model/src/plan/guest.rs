// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual CPUs and memory of a guest, and a domain's share of a cache.

use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

use super::policy::PlannedPolicy;
use super::selector::CpuSelector;
use super::size::ByteSize;
use super::{is_default, is_false};
use crate::CpuSet;

/// A guest's virtual CPUs: `"2-3"` binds the first to CPU 2 and the second to CPU 3; a table has
/// more options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualCpus {
    /// One for each of these CPUs, in ascending order.
    List(CpuSet),
    /// With their number, policy, and CPUs listed or requested by property.
    Table(VirtualCpuRequest),
}

/// Options of virtual CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VirtualCpuRequest {
    /// Number of virtual CPUs; by default one for each CPU of `cpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The CPUs that they are bound to, in ascending order; by default they are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Policy of the real-time virtual CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlannedPolicy>,
    /// Numbers, from 0, of the real-time virtual CPUs; by default all. The others do the guest's
    /// housekeeping under the time-sharing policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time: Option<CpuSet>,
    /// Choose CPUs on this memory node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Choose only cores without a thread of another owner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole_cores: bool,
    /// Choose CPUs under the last-level cache of this domain.
    #[serde(
        default,
        rename = "same-l3-as",
        skip_serializing_if = "Option::is_none"
    )]
    pub same_l3_as: Option<String>,
    /// Choose CPUs under another last-level cache than this domain's; also `housekeeping`.
    #[serde(default, rename = "not-l3-of", skip_serializing_if = "Option::is_none")]
    pub not_l3_of: Option<String>,
}

impl VirtualCpus {
    /// Returns all options.
    #[must_use]
    pub fn request(&self) -> VirtualCpuRequest {
        match self {
            Self::List(cpus) => VirtualCpuRequest {
                cpus: Some(cpus.clone()),
                ..VirtualCpuRequest::default()
            },
            Self::Table(request) => request.clone(),
        }
    }
}

impl VirtualCpuRequest {
    /// Returns the number of virtual CPUs; `None` if neither `count` nor `cpus` is set.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.count.or_else(|| {
            self.cpus
                .as_ref()
                .and_then(|cpus| u32::try_from(cpus.len()).ok())
        })
    }

    /// Returns the requested properties of the CPUs.
    #[must_use]
    pub fn selector(&self) -> CpuSelector {
        CpuSelector {
            count: self.count.unwrap_or(1),
            node: self.node,
            whole_cores: self.whole_cores,
            same_l3_as: self.same_l3_as.clone(),
            not_l3_of: self.not_l3_of.clone(),
        }
    }
}

impl Serialize for VirtualCpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::List(cpus) => cpus.serialize(serializer),
            Self::Table(request) => request.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for VirtualCpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = VirtualCpus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of CPUs such as \"2-3\", or a table such as { count = 2 }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(VirtualCpus::List).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let request = VirtualCpuRequest::deserialize(MapAccessDeserializer::new(map))?;
                if request.number().is_none() {
                    return Err(A::Error::custom(
                        "neither `count` nor `cpus` is given; write for example { count = 2 }",
                    ));
                }
                Ok(VirtualCpus::Table(request))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl schemars::JsonSchema for VirtualCpus {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VirtualCpus".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A guest's virtual CPUs: the CPUs that they are bound to, or a table",
            "anyOf": [
                generator.subschema_for::<CpuSet>(),
                generator.subschema_for::<VirtualCpuRequest>(),
            ]
        })
    }
}

/// A guest's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestMemory {
    /// Size of the memory.
    pub size: ByteSize,
    /// Size of its huge pages; by default ordinary pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hugepage: Option<ByteSize>,
    /// Its memory node; by default the node of the domain's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// A share of the last-level cache and of memory bandwidth (resctrl).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheShare {
    /// Number of ways of the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<u32>,
    /// Size of the share, rounded up to whole ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSize>,
    /// Whether no other group may fill these ways.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exclusive: bool,
    /// Maximum memory bandwidth, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_percent: Option<u32>,
}
