// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times in the format of a plan: exact, with a unit, as `"100us"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Nanos;

/// Returns the time in the largest unit without a fraction.
pub(super) fn exact(time: Nanos) -> String {
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    match units
        .into_iter()
        .find(|(length, _)| time.0 != 0 && time.0.is_multiple_of(*length))
    {
        Some((length, unit)) => format!("{}{unit}", time.0 / length),
        None => format!("{}ns", time.0),
    }
}

/// A time as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeText(pub(super) Nanos);

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&exact(self.0))
    }
}

impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for TimeText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A time with its unit, for example `100us`, `1ms` or `2.5s`",
            "pattern": "^ *[0-9.]+ *(ns|us|µs|ms|s|m|min|h|d) *$"
        })
    }
}

/// Serialises fields of type `Option<Nanos>`.
pub(super) mod optional {
    use super::{Deserialize, Deserializer, Nanos, Serialize, Serializer, TimeText};

    pub(in crate::plan) fn serialize<S: Serializer>(
        time: &Option<Nanos>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(TimeText).serialize(serializer)
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Nanos>, D::Error> {
        Ok(Option::<TimeText>::deserialize(deserializer)?.map(|time| time.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn formats_the_largest_whole_unit() {
        for (nanos, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (100_000, "100us"),
            (1_500_000, "1500us"),
            (60_000_000_000, "1min"),
        ] {
            assert_eq!(exact(Nanos(nanos)), text);
        }
    }

    proptest! {
        #[test]
        fn times_round_trip(nanos in any::<u64>(), unit in 0usize..4) {
            let time = Nanos(nanos / 1_000 * [1, 1_000, 1_000_000, 1][unit].min(1_000));
            prop_assert_eq!(exact(time).parse(), Ok(time));
        }
    }
}
