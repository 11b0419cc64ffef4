// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares texts with expected values, and returns the texts to write.

use rampart_model::{CpuSet, SchedulingPolicy};

use crate::{Expected, Format, Isolation};

/// Parses the CPUs of a text in this format; `None` if it has no CPUs or is invalid.
pub(crate) fn cpus(format: Format, text: &str) -> Option<CpuSet> {
    let text = text.trim();
    match format {
        Format::Text => None,
        // The kernel prints this for a mask that was never allocated, as in `nohz_full`.
        Format::List if text == "(null)" => Some(CpuSet::new()),
        Format::List => text.parse().ok(),
        Format::Mask => CpuSet::from_mask(text).ok(),
    }
}

/// Returns whether a set of CPUs is as expected; `None` if the expected value is not a set of CPUs.
pub(crate) fn cpus_satisfy(
    expected: Expected,
    found: &CpuSet,
    isolation: &Isolation,
) -> Option<bool> {
    match expected {
        Expected::CoversRealTime => Some(isolation.real_time.is_subset(found)),
        Expected::NoRealTime => Some(isolation.real_time.intersection(found).is_empty()),
        _ => None,
    }
}

/// Returns whether a text has the expected value, independent of notation: CPUs compare as sets,
/// numbers as numbers. `None` if it is not judged or cannot be parsed.
#[must_use]
pub fn satisfies(
    expected: Expected,
    format: Format,
    found: &str,
    isolation: &Isolation,
) -> Option<bool> {
    let text = found.trim();
    // Some files have several numbers, of which the first counts: `kernel.printk`.
    let number = || -> Option<i64> {
        let first = text.split_whitespace().next()?;
        match first.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => first.parse().ok(),
        }
    };
    match expected {
        Expected::CoversRealTime | Expected::NoRealTime => {
            cpus_satisfy(expected, &cpus(format, text)?, isolation)
        }
        Expected::Number(expected) => Some(number()? == expected),
        Expected::AtLeast(expected) | Expected::SomeAtLeast(expected) => {
            Some(number()? >= expected)
        }
        Expected::AtMost(expected) => Some(number()? <= expected),
        Expected::ZeroOrAtLeast(expected) => {
            let number = number()?;
            Some(number == 0 || number >= expected)
        }
        Expected::Not(words) => Some(!text.split([',', ' ']).any(|one| words.contains(&one))),
        Expected::Word(words) => Some(words.iter().any(|word| word.eq_ignore_ascii_case(text))),
        Expected::Marked(words) => Some(words.contains(&marked(text))),
        Expected::Contains(part) => Some(text.split([',', ' ']).any(|one| one == part)),
        Expected::FifoAtLeast(priority) => Some(match text.parse().ok()? {
            SchedulingPolicy::Fifo(found) | SchedulingPolicy::RoundRobin(found) => {
                found >= priority
            }
            SchedulingPolicy::Deadline { .. } => true,
            SchedulingPolicy::Other => false,
        }),
        Expected::Chosen(knob) => {
            let chosen = isolation.choices.get(knob)?.trim();
            Some(match cpus(format, chosen) {
                Some(chosen) => cpus(format, text)? == chosen,
                None => match chosen.parse::<i64>() {
                    Ok(chosen) => number() == Some(chosen),
                    Err(_) => {
                        let words = |text: &str| -> Vec<String> {
                            text.split_whitespace()
                                .map(str::to_ascii_lowercase)
                                .collect()
                        };
                        words(marked(text)) == words(chosen)
                    }
                },
            })
        }
        Expected::Present | Expected::Absent | Expected::Text(_) | Expected::Informational => None,
    }
}

/// Returns the word in brackets; the whole text if there are no brackets.
#[must_use]
pub fn marked(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text.trim(), |(word, _)| word)
}

/// Returns the text to write for an expected value; `None` if it is not set by writing.
#[must_use]
pub fn to_write(expected: Expected, format: Format, isolation: &Isolation) -> Option<String> {
    let cpus = |cpus: &CpuSet| match format {
        Format::Mask => cpus.to_mask(),
        Format::List | Format::Text => cpus.to_string(),
    };
    match expected {
        Expected::CoversRealTime => Some(cpus(&isolation.real_time)),
        Expected::NoRealTime => Some(cpus(&isolation.housekeeping)),
        Expected::Number(number)
        | Expected::AtLeast(number)
        | Expected::AtMost(number)
        | Expected::ZeroOrAtLeast(number)
        | Expected::SomeAtLeast(number) => Some(number.to_string()),
        Expected::Word(words) | Expected::Marked(words) => {
            words.first().map(|&word| word.to_owned())
        }
        Expected::Contains(part) => Some(part.to_owned()),
        Expected::FifoAtLeast(priority) => Some(SchedulingPolicy::Fifo(priority).to_string()),
        Expected::Chosen(knob) => isolation.choices.get(knob).cloned(),
        Expected::Not(_)
        | Expected::Present
        | Expected::Absent
        | Expected::Text(_)
        | Expected::Informational => None,
    }
}

/// Formats the expected value. Without an isolation the text says `real-time CPUs` and
/// `housekeeping CPUs`.
#[must_use]
pub fn expected_text(expected: Expected, isolation: Option<&Isolation>) -> String {
    let either = |words: &[&str]| match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, rest @ ..] => format!("{first} (or {})", rest.join(", ")),
    };
    match (expected, isolation) {
        (Expected::CoversRealTime, None) => "the real-time CPUs".to_owned(),
        (Expected::NoRealTime, None) => "housekeeping CPUs only".to_owned(),
        (Expected::CoversRealTime, Some(isolation)) => isolation.real_time.named().to_string(),
        (Expected::NoRealTime, Some(isolation)) => {
            format!("within {}", isolation.housekeeping.named())
        }
        (Expected::Number(number), _) => number.to_string(),
        (Expected::AtLeast(number), _) => format!("{number} or more"),
        (Expected::AtMost(number), _) => format!("{number} or less"),
        (Expected::SomeAtLeast(number), _) => format!("{number} or more in one of them"),
        (Expected::ZeroOrAtLeast(number), _) => format!("0, or {number} or more"),
        (Expected::Not(words), _) => format!("not {}", words.join(", ")),
        (Expected::Word(words) | Expected::Marked(words), _) => either(words),
        (Expected::Contains(part), _) => part.to_owned(),
        (Expected::Present, _) => "present".to_owned(),
        (Expected::Absent, _) => "absent".to_owned(),
        (Expected::FifoAtLeast(priority), _) => format!("fifo:{priority} or higher"),
        (Expected::Text(text), _) => text.to_owned(),
        (Expected::Chosen(knob), isolation) => isolation
            .and_then(|isolation| isolation.choices.get(knob))
            .map_or_else(|| "the value of the plan".to_owned(), Clone::clone),
        (Expected::Informational, _) => "any value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolation() -> Isolation {
        Isolation {
            real_time: "2-3".parse().expect("CPUs"),
            housekeeping: "0-1".parse().expect("CPUs"),
            ..Isolation::default()
        }
    }

    #[test]
    fn compares_values_independent_of_notation() {
        let (list, mask, text) = (Format::List, Format::Mask, Format::Text);
        for (expected, format, found, satisfied) in [
            (Expected::NoRealTime, mask, "00000000,00000003", Some(true)),
            (Expected::NoRealTime, mask, "f", Some(false)),
            (Expected::NoRealTime, list, "0,1", Some(true)),
            (Expected::NoRealTime, mask, "zz", None),
            (Expected::CoversRealTime, list, "(null)", Some(false)),
            (Expected::CoversRealTime, list, "2,3,7", Some(true)),
            (Expected::Number(-1), text, "-1\n", Some(true)),
            (Expected::Number(0), text, "0x0", Some(true)),
            (Expected::AtMost(4), text, "4\t4\t1\t7", Some(true)),
            (Expected::AtLeast(10), text, "1", Some(false)),
            (Expected::Word(&["N", "0"]), text, "n", Some(true)),
            (
                Expected::Marked(&["never"]),
                text,
                "always madvise [never]",
                Some(true),
            ),
            (
                Expected::Marked(&["never"]),
                text,
                "always [madvise] never",
                Some(false),
            ),
            (
                Expected::Contains("managed_irq"),
                text,
                "domain,managed_irq,2",
                Some(true),
            ),
            (
                Expected::Contains("managed_irq"),
                text,
                "domain,2",
                Some(false),
            ),
            (Expected::FifoAtLeast(2), text, "fifo:4", Some(true)),
            (Expected::FifoAtLeast(2), text, "fifo:1", Some(false)),
            (Expected::FifoAtLeast(2), text, "other", Some(false)),
            (Expected::ZeroOrAtLeast(600), text, "0", Some(true)),
            (Expected::ZeroOrAtLeast(600), text, "120", Some(false)),
            (Expected::Not(&["off"]), text, "off", Some(false)),
            (Expected::Not(&["nomsi"]), text, "noacpi,nomsi", Some(false)),
            (Expected::Informational, text, "1", None),
        ] {
            assert_eq!(
                satisfies(expected, format, found, &isolation()),
                satisfied,
                "{expected:?} {found}"
            );
        }
    }
}
