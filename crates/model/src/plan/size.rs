// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of memory, exact, in the units of IEC 80000-13.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A size in bytes. Written `2MiB`, `1GiB`, `512KiB` or `4096B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// An invalid size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a size: {reason}; write a whole number and B, KiB, MiB, GiB or TiB, for example `2MiB`"
)]
pub struct ParseByteSizeError {
    /// The text.
    pub text: String,
    /// The mistake.
    pub reason: &'static str,
}

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = UNITS
            .into_iter()
            .find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift)
            .unwrap_or(("B", 0));
        f.pad(&format!("{}{unit}", self.0 >> shift))
    }
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| ParseByteSizeError {
            text: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit())
            .ok_or_else(|| error("it has no unit"))?;
        let (number, unit) = trimmed.split_at(split);
        let (_, shift) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit.trim())
            .ok_or_else(|| error("its unit is none of B, KiB, MiB, GiB, TiB"))?;
        let number: u64 = number
            .parse()
            .map_err(|_| error("its number cannot be read"))?;
        number
            .checked_mul(1 << shift)
            .map(Self)
            .ok_or_else(|| error("it is too large"))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A size with its unit, for example `2MiB` or `1GiB`",
            "pattern": "^ *[0-9]+ *(B|KiB|MiB|GiB|TiB) *$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_an_invalid_size() {
        for text in ["", "5", "MiB", "1.5GiB", "2 MB", "-1KiB", "99999999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!("2 MiB".parse(), Ok(ByteSize(2 << 20)));
    }

    proptest! {
        #[test]
        fn sizes_round_trip(number in any::<u64>(), shift in 0u32..40) {
            let size = ByteSize(number >> shift << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
