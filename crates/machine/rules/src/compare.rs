// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a text is what is wanted, and what to write.

use rampart_model::{CpuSet, SchedulingPolicy};

use crate::{Format, Isolation, Wanted};

/// The CPUs that a text names in this format; none where it names none or is not understood.
pub(crate) fn cpus(format: Format, text: &str) -> Option<CpuSet> {
    let text = text.trim();
    match format {
        Format::Text => None,
        // So says the kernel where a mask was never made, as in `nohz_full`.
        Format::List if text == "(null)" => Some(CpuSet::new()),
        Format::List => text.parse().ok(),
        Format::Mask => CpuSet::from_mask(text).ok(),
    }
}

/// Whether a set of CPUs is as wanted; none where the wish is not about CPUs.
pub(crate) fn cpus_satisfy(
    wanted: Wanted,
    present: &CpuSet,
    isolation: &Isolation,
) -> Option<bool> {
    match wanted {
        Wanted::CoversRealTime => Some(isolation.real_time.is_subset(present)),
        Wanted::NoRealTime => Some(isolation.real_time.intersection(present).is_empty()),
        _ => None,
    }
}

/// Whether a text is what is wanted, whatever its notation: CPUs compare as sets, numbers as
/// numbers. None where it is not judged, or not understood.
#[must_use]
pub fn satisfies(
    wanted: Wanted,
    format: Format,
    present: &str,
    isolation: &Isolation,
) -> Option<bool> {
    let text = present.trim();
    // Some files hold several numbers, of which the first counts: `kernel.printk`.
    let number = || -> Option<i64> {
        let first = text.split_whitespace().next()?;
        match first.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => first.parse().ok(),
        }
    };
    match wanted {
        Wanted::CoversRealTime | Wanted::NoRealTime => {
            cpus_satisfy(wanted, &cpus(format, text)?, isolation)
        }
        Wanted::Number(wanted) => Some(number()? == wanted),
        Wanted::AtLeast(wanted) | Wanted::SomeAtLeast(wanted) => Some(number()? >= wanted),
        Wanted::AtMost(wanted) => Some(number()? <= wanted),
        Wanted::ZeroOrAtLeast(wanted) => {
            let number = number()?;
            Some(number == 0 || number >= wanted)
        }
        Wanted::Not(words) => Some(!text.split([',', ' ']).any(|one| words.contains(&one))),
        Wanted::Word(words) => Some(words.iter().any(|word| word.eq_ignore_ascii_case(text))),
        Wanted::Marked(words) => Some(words.contains(&marked(text))),
        Wanted::Contains(part) => Some(text.split([',', ' ']).any(|one| one == part)),
        Wanted::FifoAtLeast(priority) => Some(match text.parse().ok()? {
            SchedulingPolicy::Fifo(present) | SchedulingPolicy::RoundRobin(present) => {
                present >= priority
            }
            SchedulingPolicy::Deadline { .. } => true,
            SchedulingPolicy::Other => false,
        }),
        Wanted::Chosen(knob) => {
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
        Wanted::Present | Wanted::Absent | Wanted::Text(_) | Wanted::Informational => None,
    }
}

/// The word between brackets among several; the whole text where there are none.
#[must_use]
pub fn marked(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text.trim(), |(word, _)| word)
}

/// What to write so that it is as wanted; none where writing is not how it is done.
#[must_use]
pub fn to_write(wanted: Wanted, format: Format, isolation: &Isolation) -> Option<String> {
    let cpus = |cpus: &CpuSet| match format {
        Format::Mask => cpus.to_mask(),
        Format::List | Format::Text => cpus.to_string(),
    };
    match wanted {
        Wanted::CoversRealTime => Some(cpus(&isolation.real_time)),
        Wanted::NoRealTime => Some(cpus(&isolation.housekeeping)),
        Wanted::Number(number)
        | Wanted::AtLeast(number)
        | Wanted::AtMost(number)
        | Wanted::ZeroOrAtLeast(number)
        | Wanted::SomeAtLeast(number) => Some(number.to_string()),
        Wanted::Word(words) | Wanted::Marked(words) => words.first().map(|&word| word.to_owned()),
        Wanted::Contains(part) => Some(part.to_owned()),
        Wanted::FifoAtLeast(priority) => Some(SchedulingPolicy::Fifo(priority).to_string()),
        Wanted::Chosen(knob) => isolation.choices.get(knob).cloned(),
        Wanted::Not(_)
        | Wanted::Present
        | Wanted::Absent
        | Wanted::Text(_)
        | Wanted::Informational => None,
    }
}

/// What is wanted, in words. Without an isolation it speaks of real-time and housekeeping CPUs.
#[must_use]
pub fn wanted_text(wanted: Wanted, isolation: Option<&Isolation>) -> String {
    let either = |words: &[&str]| match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, rest @ ..] => format!("{first} (or {})", rest.join(", ")),
    };
    match (wanted, isolation) {
        (Wanted::CoversRealTime, None) => "the real-time CPUs".to_owned(),
        (Wanted::NoRealTime, None) => "housekeeping CPUs only".to_owned(),
        (Wanted::CoversRealTime, Some(isolation)) => isolation.real_time.named().to_string(),
        (Wanted::NoRealTime, Some(isolation)) => {
            format!("within {}", isolation.housekeeping.named())
        }
        (Wanted::Number(number), _) => number.to_string(),
        (Wanted::AtLeast(number), _) => format!("{number} or more"),
        (Wanted::AtMost(number), _) => format!("{number} or less"),
        (Wanted::SomeAtLeast(number), _) => format!("{number} or more in one of them"),
        (Wanted::ZeroOrAtLeast(number), _) => format!("0, or {number} or more"),
        (Wanted::Not(words), _) => format!("not {}", words.join(", ")),
        (Wanted::Word(words) | Wanted::Marked(words), _) => either(words),
        (Wanted::Contains(part), _) => part.to_owned(),
        (Wanted::Present, _) => "present".to_owned(),
        (Wanted::Absent, _) => "absent".to_owned(),
        (Wanted::FifoAtLeast(priority), _) => format!("fifo:{priority} or higher"),
        (Wanted::Text(text), _) => text.to_owned(),
        (Wanted::Chosen(knob), isolation) => isolation
            .and_then(|isolation| isolation.choices.get(knob))
            .map_or_else(|| "as the plan says".to_owned(), Clone::clone),
        (Wanted::Informational, _) => "no one value".to_owned(),
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
    fn values_compare_by_what_they_mean() {
        let (list, mask, text) = (Format::List, Format::Mask, Format::Text);
        for (wanted, format, present, expected) in [
            (Wanted::NoRealTime, mask, "00000000,00000003", Some(true)),
            (Wanted::NoRealTime, mask, "f", Some(false)),
            (Wanted::NoRealTime, list, "0,1", Some(true)),
            (Wanted::NoRealTime, mask, "zz", None),
            (Wanted::CoversRealTime, list, "(null)", Some(false)),
            (Wanted::CoversRealTime, list, "2,3,7", Some(true)),
            (Wanted::Number(-1), text, "-1\n", Some(true)),
            (Wanted::Number(0), text, "0x0", Some(true)),
            (Wanted::AtMost(4), text, "4\t4\t1\t7", Some(true)),
            (Wanted::AtLeast(10), text, "1", Some(false)),
            (Wanted::Word(&["N", "0"]), text, "n", Some(true)),
            (
                Wanted::Marked(&["never"]),
                text,
                "always madvise [never]",
                Some(true),
            ),
            (
                Wanted::Marked(&["never"]),
                text,
                "always [madvise] never",
                Some(false),
            ),
            (
                Wanted::Contains("managed_irq"),
                text,
                "domain,managed_irq,2",
                Some(true),
            ),
            (
                Wanted::Contains("managed_irq"),
                text,
                "domain,2",
                Some(false),
            ),
            (Wanted::FifoAtLeast(2), text, "fifo:4", Some(true)),
            (Wanted::FifoAtLeast(2), text, "fifo:1", Some(false)),
            (Wanted::FifoAtLeast(2), text, "other", Some(false)),
            (Wanted::ZeroOrAtLeast(600), text, "0", Some(true)),
            (Wanted::ZeroOrAtLeast(600), text, "120", Some(false)),
            (Wanted::Not(&["off"]), text, "off", Some(false)),
            (Wanted::Not(&["nomsi"]), text, "noacpi,nomsi", Some(false)),
            (Wanted::Informational, text, "1", None),
        ] {
            assert_eq!(
                satisfies(wanted, format, present, &isolation()),
                expected,
                "{wanted:?} {present}"
            );
        }
    }
}
