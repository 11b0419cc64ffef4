// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of CPUs as users and the kernel command line write them, before the machine is known.

use std::fmt;
use std::str::FromStr;

use crate::{CpuId, CpuSet, ParseCpuSetError};

/// The highest accepted CPU number. The kernel's limit is 8192 CPUs; the limit bounds the memory
/// for a mistyped range.
const HIGHEST_CPU: u32 = 65_535;

/// CPUs in the notation of boot parameters (Documentation/admin-guide/kernel-parameters.rst, "cpu
/// lists"): `1,4-7`, `N` for the last CPU, `all`, and `0-15:2/4` for the first two of every four.
/// Only a machine gives `all` and `N` a meaning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(Vec<Part>);

/// CPUs between two bounds; of each `size` of them the first `used`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    low: Bound,
    high: Bound,
    used: u32,
    size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Cpu(u32),
    /// `N`, the last CPU of the machine.
    Last,
}

impl CpuList {
    /// Returns the CPUs on a machine with the CPUs `machine`. `all` and ranges that end with `N`
    /// contain only CPUs of the machine; a list that names its CPUs stays as it is.
    ///
    /// # Errors
    /// If `N` is below the start of its range, or the list has `all` or `N` and `machine` is empty.
    pub fn resolve(&self, machine: &CpuSet) -> Result<CpuSet, ParseCpuSetError> {
        let error = |reason: String| ParseCpuSetError {
            text: self.to_string(),
            reason,
        };
        let mut set = CpuSet::new();
        for part in &self.0 {
            let number = |bound| match (bound, machine.iter().next_back()) {
                (Bound::Cpu(cpu), _) => Ok(cpu),
                (Bound::Last, Some(last)) => Ok(last.0),
                (Bound::Last, None) => Err(error(
                    "`all` and `N` depend on the machine, so name the CPUs here".to_owned(),
                )),
            };
            let (low, high) = (number(part.low)?, number(part.high)?);
            if low > high {
                return Err(error(format!("the last CPU of this machine is {high}")));
            }
            let ends_with_machine = part.high == Bound::Last;
            for cpu in (low..=high).filter(|cpu| (cpu - low) % part.size < part.used) {
                if !ends_with_machine || machine.contains(CpuId(cpu)) {
                    set.insert(CpuId(cpu));
                }
            }
        }
        Ok(set)
    }

    fn parse_part(part: &str) -> Result<Part, String> {
        let (range, group) = match part.split_once(':') {
            Some((range, group)) => (range, Some(group)),
            None => (part, None),
        };
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (bound(low)?, bound(high)?),
            None if range.trim().eq_ignore_ascii_case("all") => (Bound::Cpu(0), Bound::Last),
            None => (bound(range)?, bound(range)?),
        };
        let (used, size) = match group {
            Some(group) => group
                .split_once('/')
                .and_then(|(used, size)| {
                    Some((used.trim().parse().ok()?, size.trim().parse().ok()?))
                })
                .filter(|(used, size): &(u32, u32)| *size > 0 && used <= size)
                .ok_or_else(|| {
                    format!("`{group}` is not USED/SIZE, as in `0-15:2/4` for two of every four")
                })?,
            None => (1, 1),
        };
        match (low, high) {
            (Bound::Cpu(low), Bound::Cpu(high)) if low > high => {
                Err(format!("the range `{part}` runs backwards"))
            }
            (Bound::Last, Bound::Cpu(_)) => Err(format!("the range `{part}` runs backwards")),
            _ => Ok(Part {
                low,
                high,
                used,
                size,
            }),
        }
    }
}

fn bound(text: &str) -> Result<Bound, String> {
    let text = text.trim();
    if text == "N" {
        return Ok(Bound::Last);
    }
    match text.parse::<u32>() {
        Ok(cpu) if cpu <= HIGHEST_CPU => Ok(Bound::Cpu(cpu)),
        Ok(cpu) => Err(format!("there is no CPU {cpu}")),
        Err(_) => Err(format!("`{text}` is not a CPU number")),
    }
}

impl FromStr for CpuList {
    type Err = ParseCpuSetError;

    /// Parses a list. The empty text is the empty list.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parts: Result<_, String> = text.split(',').map(Self::parse_part).collect();
        parts.map(Self).map_err(|reason| ParseCpuSetError {
            text: text.to_owned(),
            reason,
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => cpu.fmt(f),
            Self::Last => f.write_str("N"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (Bound::Cpu(0), Bound::Last) => f.write_str("all")?,
            (low, high) if low == high => low.fmt(f)?,
            (low, high) => write!(f, "{low}-{high}")?,
        }
        if self.size == 1 {
            return Ok(());
        }
        write!(f, ":{}/{}", self.used, self.size)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect(text)
    }

    #[test]
    fn resolves_every_notation_of_the_kernel() {
        for (text, expected) in [
            ("", ""),
            ("1,4-7", "1,4-7"),
            (" 1 , 4 - 5 ", "1,4-5"),
            ("all", "0-7"),
            ("ALL", "0-7"),
            ("all:1/2", "0,2,4,6"),
            ("N", "7"),
            ("4-N", "4-7"),
            ("N-N", "7"),
            ("0-7:1/2", "0,2,4,6"),
            ("1-7:2/4", "1-2,5-6"),
            ("0-7:2/4,N", "0-1,4-5,7"),
            ("0-7:0/2", ""),
            ("9", "9"),
        ] {
            let list: CpuList = text.parse().expect(text);
            assert_eq!(list.resolve(&set("0-7")), Ok(set(expected)), "{text}");
        }
    }

    #[test]
    fn all_and_ranges_to_the_last_cpu_leave_out_offline_cpus() {
        for (text, expected) in [("all", "0,2-3"), ("1-N", "2-3"), ("1-3", "1-3")] {
            let list: CpuList = text.parse().expect(text);
            assert_eq!(list.resolve(&set("0,2-3")), Ok(set(expected)), "{text}");
        }
    }

    #[test]
    fn refuses_invalid_lists() {
        for text in [
            "a",
            "3-1",
            "1,,2",
            "-1",
            "1-",
            "70000",
            "0-4294967295",
            "n",
            "N-1",
            "0-7:3/2",
            "0-7:1/0",
            "0-7:1",
            "0-7:/",
            "0-7:1/2/3",
            "1-2-3",
        ] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
        let list: CpuList = "8-N".parse().expect("a list");
        let error = list.resolve(&set("0-3")).expect_err("too high").to_string();
        assert!(error.contains("`8-N`") && error.contains("is 3"), "{error}");
        let all: CpuList = "all".parse().expect("a list");
        assert!(all.resolve(&CpuSet::new()).is_err());
    }

    proptest! {
        #[test]
        fn display_is_parsed_back(
            parts in proptest::collection::vec(
                (0u32..300, 0u32..300, 1u32..9, 1u32..9, any::<bool>()), 0..8)
        ) {
            let parts = parts.into_iter().map(|(low, more, used, size, last)| Part {
                low: Bound::Cpu(low),
                high: if last { Bound::Last } else { Bound::Cpu(low + more) },
                used: used.min(size),
                size,
            });
            let list = CpuList(parts.collect());
            let parsed: CpuList = list.to_string().parse().expect("parsed");
            let machine = set("0-599");
            prop_assert_eq!(parsed.resolve(&machine), list.resolve(&machine));
            prop_assert_eq!(parsed.to_string(), list.to_string());
        }

        #[test]
        fn every_cpu_of_a_group_is_counted_as_the_kernel_does(
            low in 0u32..20, length in 0u32..40, size in 1u32..9, used in 1u32..9
        ) {
            let used = used.min(size);
            let high = low + length;
            let list: CpuList = format!("{low}-{high}:{used}/{size}").parse().expect("a list");
            // As in bitmap_set_region of lib/bitmap-str.c.
            let mut expected = CpuSet::new();
            let mut start = low;
            while start <= high {
                for cpu in start..(start + used).min(high + 1) {
                    expected.insert(CpuId(cpu));
                }
                start += size;
            }
            prop_assert_eq!(list.resolve(&CpuSet::new()), Ok(expected));
        }

        #[test]
        fn any_text_is_read(text in "[0-9N,:/a-l -]{0,24}|.{0,20}") {
            if let Ok(list) = text.parse::<CpuList>() {
                let _ = list.resolve(&CpuSet::single(CpuId(3)));
                prop_assert!(list.to_string().parse::<CpuList>().is_ok());
            }
        }
    }
}
