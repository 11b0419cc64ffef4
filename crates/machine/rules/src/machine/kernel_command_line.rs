// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel command line (Documentation/admin-guide/kernel-parameters.rst).

use rampart_model::{CpuId, CpuList, CpuSet};

/// The parameters that the kernel was started with, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelCommandLine(Vec<(String, Option<String>)>);

impl KernelCommandLine {
    /// Parses `/proc/cmdline`. A value in quotation marks may contain spaces; the kernel treats `-`
    /// and `_` in names alike.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut words: Vec<String> = Vec::new();
        let mut quoted = false;
        let mut word = String::new();
        for character in text.chars() {
            match character {
                '"' => quoted = !quoted,
                c if c.is_whitespace() && !quoted => {
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                }
                c => word.push(c),
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        // Arguments after `--` are for the first process.
        let of_kernel = words.into_iter().take_while(|word| word != "--");
        Self(
            of_kernel
                .map(|word| match word.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (word, None),
                })
                .collect(),
        )
    }

    /// Returns the names of all parameters, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the flags of `isolcpus=` that the kernel skips or, with a character that no flag has, refuses together
    /// with the CPUs (kernel/sched/isolation.c, `housekeeping_isolcpus_setup`).
    pub(crate) fn unknown_flags_of_isolcpus(&self) -> Vec<&str> {
        let value = self.value("isolcpus").unwrap_or_default();
        let flags = value.split(',').take_while(|part| is_flag(part));
        flags
            .filter(|flag| !["nohz", "domain", "managed_irq"].contains(flag))
            .collect()
    }

    /// Returns whether a parameter is present, with or without a value.
    #[must_use]
    pub fn has(&self, parameter: &str) -> bool {
        self.0.iter().any(|(name, _)| same_name(name, parameter))
    }

    /// Returns the value of a parameter; of several the last, as in the kernel.
    #[must_use]
    pub fn value(&self, parameter: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| same_name(name, parameter))
            .and_then(|(_, value)| value.as_deref())
    }

    /// Returns each `hugepages=` in order, with the preceding `hugepagesz=`; without one it applies
    /// to the default size (Documentation/admin-guide/kernel-parameters.txt).
    pub(crate) fn huge_pages(&self) -> Vec<(Option<String>, String)> {
        let mut size = None;
        let mut all = Vec::new();
        for (name, value) in &self.0 {
            let Some(value) = value else { continue };
            if same_name(name, "hugepagesz") {
                size = Some(value.clone());
            } else if same_name(name, "hugepages") {
                all.push((size.take(), value.clone()));
            }
        }
        all
    }

    /// Parses `isolcpus=`; `None` if it is absent or its CPUs are invalid. `last` is the machine's
    /// last CPU, for `all` and `N`.
    #[must_use]
    pub fn isolcpus(&self, last: CpuId) -> Option<IsolatedCpus<'_>> {
        let value = self.value("isolcpus")?;
        Some(IsolatedCpus {
            flags: value.split(',').filter(|part| is_flag(part)).collect(),
            cpus: cpu_list(value, last)?,
        })
    }

    /// Returns the CPUs of a parameter without flags, as in `isolcpus=managed_irq,domain,2-3`;
    /// `None` if it is absent or invalid. `last` is the machine's last CPU, for `all` and `N`.
    #[must_use]
    pub fn cpus(&self, parameter: &str, last: CpuId) -> Option<CpuSet> {
        cpu_list(self.value(parameter)?, last)
    }
}

/// The value of `isolcpus=`: flags, then CPUs (kernel/sched/isolation.c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolatedCpus<'a> {
    /// The flags, including those that the kernel does not support.
    pub flags: Vec<&'a str>,
    /// The isolated CPUs.
    pub cpus: CpuSet,
}

impl IsolatedCpus<'_> {
    /// Returns whether the scheduler excludes them from load balancing: with the flag `domain`, or
    /// without any flag.
    #[must_use]
    pub fn keeps_balancing_away(&self) -> bool {
        self.flags.is_empty() || self.flags.contains(&"domain")
    }

    /// Returns whether managed interrupts stay off them.
    #[must_use]
    pub fn keeps_managed_interrupts_away(&self) -> bool {
        self.flags.contains(&"managed_irq")
    }
}

/// Returns whether a part of `isolcpus=` is a flag: it starts with a letter and is not `all`.
fn is_flag(part: &str) -> bool {
    part.split(':').next() != Some("all") && part.starts_with(|c: char| c.is_ascii_lowercase())
}

fn same_name(left: &str, right: &str) -> bool {
    left.len() == right.len()
        && left.bytes().zip(right.bytes()).all(|(left, right)| {
            left == right || matches!((left, right), (b'-', b'_') | (b'_', b'-'))
        })
}

/// Parses the CPUs of a boot parameter; flags and empty parts are skipped as in the kernel.
fn cpu_list(text: &str, last: CpuId) -> Option<CpuSet> {
    let cpus: Vec<&str> = text
        .split(',')
        .filter(|part| !part.is_empty() && !is_flag(part))
        .collect();
    let list: CpuList = cpus.join(",").parse().ok()?;
    list.resolve(&(0..=last.0).map(CpuId).collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_parameters_as_the_kernel_does() {
        let line = KernelCommandLine::parse(
            "ro dyndbg=\"file a.c +p\" nohz-full=1 nohz_full=2-3 quiet -- nohz_full=7\n",
        );
        assert!(line.has("quiet") && line.has("nohz_full") && !line.has("qui"));
        assert_eq!(line.value("nohz_full"), Some("2-3"));
        assert_eq!(line.value("dyndbg"), Some("file a.c +p"));
        assert_eq!(line.value("quiet"), None);
    }

    #[test]
    fn parses_cpu_lists_in_every_notation() {
        for (text, expected) in [
            ("managed_irq,domain,2-3,6-7", Some("2-3,6-7")),
            ("all", Some("0-7")),
            ("all:1/2", Some("0,2,4,6")),
            ("4-N", Some("4-7")),
            ("0-7:2/4", Some("0-1,4-5")),
            ("N", Some("7")),
            ("3-1", None),
            ("0-7:5/4", None),
            ("0-7:1/0", None),
            ("2-x", None),
            ("99999", None),
        ] {
            let line = KernelCommandLine::parse(&format!("isolcpus={text}"));
            let expected = expected.map(|text| text.parse().expect("CPUs"));
            assert_eq!(line.cpus("isolcpus", CpuId(7)), expected, "{text}");
        }
    }

    #[test]
    fn separates_flags_of_isolcpus_from_cpus() {
        let set = |text: &str| text.parse::<CpuSet>().expect("CPUs");
        for (text, cpus, balancing, managed) in [
            ("2-3", set("2-3"), true, false),
            ("managed_irq,2", set("2"), false, true),
            ("managed_irq,domain,2-3,6", set("2-3,6"), true, true),
            ("nohz,5", set("5"), false, false),
            ("domain,all", set("0-7"), true, false),
            ("1-N", set("1-7"), true, false),
            ("", CpuSet::new(), true, false),
        ] {
            let line = KernelCommandLine::parse(&format!("ro isolcpus={text} quiet"));
            let isolated = line.isolcpus(CpuId(7)).expect(text);
            assert_eq!(isolated.cpus, cpus, "{text}");
            assert_eq!(isolated.keeps_balancing_away(), balancing, "{text}");
            assert_eq!(isolated.keeps_managed_interrupts_away(), managed, "{text}");
        }
        assert_eq!(
            KernelCommandLine::parse("isolcpus=3-1").isolcpus(CpuId(7)),
            None
        );
        assert_eq!(KernelCommandLine::parse("quiet").isolcpus(CpuId(7)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,60}") {
            let line = KernelCommandLine::parse(&text);
            let _ = line.cpus("isolcpus", CpuId(3));
            let _ = cpu_list(&text, CpuId(3));
        }
    }
}
