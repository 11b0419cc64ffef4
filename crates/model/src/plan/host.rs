// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the machine, its boot, and waivers.

use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

use super::is_default;

/// The choice for a setting: `"skip"`, or with a value if sources differ, as
/// `{ action = "apply", value = "1" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnobChoice {
    /// The action.
    pub action: KnobAction,
    /// The value; by default the value of the catalogue.
    pub value: Option<String>,
}

/// The action for a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobAction {
    /// Rampart sets and verifies it.
    Apply,
    /// Rampart neither changes nor verifies it.
    Skip,
    /// Other software sets it; Rampart verifies it.
    Expect,
}

impl fmt::Display for KnobAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Apply => "apply",
            Self::Skip => "skip",
            Self::Expect => "expect",
        })
    }
}

impl fmt::Display for KnobChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} {value}", self.action),
            None => self.action.fmt(f),
        }
    }
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KnobTable {
    /// The action.
    action: KnobAction,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

impl Serialize for KnobChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.value.is_none() {
            return self.action.serialize(serializer);
        }
        KnobTable {
            action: self.action,
            value: self.value.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KnobChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = KnobChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"apply\", \"skip\", \"expect\" or a table such as { action = \"apply\", value = \"1\" }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let action = KnobAction::deserialize(serde::de::value::StrDeserializer::new(text))?;
                Ok(KnobChoice {
                    action,
                    value: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let table = KnobTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(KnobChoice {
                    action: table.action,
                    value: table.value,
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl schemars::JsonSchema for KnobChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KnobChoice".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "What is done about a setting of the machine",
            "anyOf": [
                generator.subschema_for::<KnobAction>(),
                generator.subschema_for::<KnobTable>(),
            ]
        })
    }
}

/// Changes that need a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BootSection {
    /// Kernel arguments in addition to those that follow from the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Whether the plan may need a restart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reboot: Reboot,
}

impl BootSection {
    /// Returns whether the section is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a plan may need a restart.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Reboot {
    /// The kernel command line must fit as it is.
    #[default]
    Never,
    /// The kernel command line may be changed; the owner restarts the machine.
    Plan,
}

/// A rule that the plan breaks intentionally.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Waiver {
    /// Id of the rule.
    pub rule: String,
    /// The reason.
    #[schemars(length(min = 1))]
    pub reason: String,
    /// Only for this domain; by default for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}
