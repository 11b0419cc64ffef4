// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times as text: input (`250us`, `1ms`, `2.5s`, `24h`) and display.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Nanos, SignedNanos};

/// The error of a text that is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a length of time: {reason}; write for example `250us`, `1ms`, `2.5s`, `10m` or `24h`"
)]
pub struct ParseNanosError {
    /// The text.
    pub text: String,
    /// The cause.
    pub reason: &'static str,
}

const UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl FromStr for Nanos {
    type Err = ParseNanosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| ParseNanosError {
            text: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(|| error("it has no unit"))?;
        let (number, unit) = trimmed.split_at(split);
        let factor = UNITS
            .iter()
            .find(|(name, _)| *name == unit.trim())
            .map(|(_, factor)| *factor)
            .ok_or_else(|| error("its unit is none of ns, us, ms, s, m, h, d"))?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole
                .checked_mul(factor)
                .map(Self)
                .ok_or_else(|| error("it is too long"));
        }
        let value: f64 = number
            .parse()
            .map_err(|_| error("its number cannot be read"))?;
        let nanos = value * factor as f64;
        // 2^63 ns are 292 years; above that the conversion is not exact to a second.
        if nanos < 9.2e18 {
            Ok(Self(nanos.round() as u64))
        } else {
            Err(error("it is too long"))
        }
    }
}

/// Formats three significant figures in the largest suitable unit.
fn write_scaled(f: &mut fmt::Formatter<'_>, sign: &str, nanos: u64) -> fmt::Result {
    let (divisor, unit) = match nanos {
        0..1_000 => return f.pad(&format!("{sign}{nanos} ns")),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000_000_000..120_000_000_000 => (1e9, "s"),
        120_000_000_000..7_200_000_000_000 => (60e9, "min"),
        _ => (3600e9, "h"),
    };
    let value = nanos as f64 / divisor;
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let number = format!("{value:.decimals$}");
    let number = if decimals > 0 {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    f.pad(&format!("{sign}{number} {unit}"))
}

impl Nanos {
    /// Formats the length as an argument of a command: one word in whole seconds, rounded up
    /// (`245s`).
    #[must_use]
    pub fn as_argument(self) -> String {
        format!("{}s", self.0.div_ceil(Self::SECOND.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, "", self.0)
    }
}

impl fmt::Display for SignedNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.0 {
            i64::MIN..0 => "−",
            0 => "",
            _ => "+",
        };
        write_scaled(f, sign, self.0.unsigned_abs())
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lengths_of_time() {
        for (text, nanos) in [
            ("1ns", 1),
            ("20us", 20_000),
            ("20µs", 20_000),
            ("2.5 s", 2_500_000_000),
            ("10m", 600_000_000_000),
            ("24h", 86_400_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "5",
            "ms",
            "1.2.3s",
            "-1s",
            "1 fortnight",
            "99999999999999h",
            "1e3s",
        ] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    /// Checks that an argument is one word and not rounded down, unlike `4.08 min`.
    #[test]
    fn formats_an_argument_as_one_word_rounded_up() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1s"),
            (1_000_000_000, "1s"),
            (244_000_000_001, "245s"),
            (7_200_000_000_000, "7200s"),
        ] {
            let argument = Nanos(nanos).as_argument();
            assert_eq!(argument, text);
            assert!(argument.parse::<Nanos>().is_ok_and(|read| read.0 >= nanos));
        }
    }

    #[test]
    fn formats_three_figures_with_a_unit() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 µs"),
            (84_300, "84.3 µs"),
            (1_071_000, "1.07 ms"),
            (12_000_000_000, "12 s"),
            (600_000_000_000, "10 min"),
        ] {
            assert_eq!(Nanos(nanos).to_string(), text);
        }
        assert_eq!(SignedNanos(-1_500).to_string(), "−1.5 µs");
    }
}
