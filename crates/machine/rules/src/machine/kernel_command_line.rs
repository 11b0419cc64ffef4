// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel command line (Documentation/admin-guide/kernel-parameters.rst).

use rampart_model::{BOOT_CPU, CpuId, CpuList, CpuSet, Machine};

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

    /// Returns the flags of every `isolcpus=` that the kernel skips or, with a character that no flag has, refuses
    /// together with the CPUs (kernel/sched/isolation.c, `housekeeping_isolcpus_setup`).
    pub(crate) fn unknown_flags_of_isolcpus(&self) -> Vec<&str> {
        let flags = self.values("isolcpus").flat_map(flags);
        flags.filter(|flag| !FLAGS.contains(flag)).collect()
    }

    /// Returns each value of a parameter, in order.
    pub(crate) fn values(&self, parameter: &str) -> impl Iterator<Item = &str> {
        let all = self.0.iter();
        all.filter(move |(name, _)| same_name(name, parameter))
            .filter_map(|(_, value)| value.as_deref())
    }

    /// Returns the flags before the CPUs of a parameter's value, each with its comma.
    pub(crate) fn flags(&self, parameter: &str) -> String {
        let value = self.value(parameter).unwrap_or_default();
        flags(value).map(|flag| format!("{flag},")).collect()
    }

    /// Returns whether a word, as `isolcpus=2-3` or `nosmt`, is on the line and no other word overrules it.
    pub(crate) fn is_in_effect(&self, word: &str) -> bool {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let mut given = self.0.iter().filter(|(other, _)| same_name(other, name));
        match repeated(name) {
            Repeated::Accumulates => given.any(|(_, other)| other.as_deref() == value),
            // Only one word leaves no doubt, also for who reads the line.
            _ => {
                let first = given.next();
                first.is_some_and(|(_, other)| other.as_deref() == value) && given.next().is_none()
            }
        }
    }

    /// Returns whether a parameter is present, with or without a value.
    #[must_use]
    pub fn has(&self, parameter: &str) -> bool {
        self.0.iter().any(|(name, _)| same_name(name, parameter))
    }

    /// Returns the value of a parameter; of several the one that the kernel keeps, or the last that it adds to the
    /// others (`Repeated`).
    #[must_use]
    pub fn value(&self, parameter: &str) -> Option<&str> {
        let mut given = self.0.iter().filter(|(name, _)| same_name(name, parameter));
        let kept = match repeated(parameter) {
            Repeated::FirstCounts => given.next(),
            _ => given.next_back(),
        };
        kept?.1.as_deref()
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

    /// Returns what the kernel does with `isolcpus=`; `None` if it is absent or no list is accepted. `last` is the
    /// machine's last CPU, for `all` and `N`.
    #[must_use]
    pub fn isolcpus(&self, last: CpuId) -> Option<IsolatedCpus> {
        let kinds = self.housekeeping(last).by_isolcpus;
        kinds.iter().any(Option::is_some).then(|| {
            let [tickless, unbalanced, without_managed_interrupts] = kinds;
            IsolatedCpus {
                unbalanced,
                without_managed_interrupts,
                tickless,
            }
        })
    }

    /// Returns the lists of `isolcpus=` and `nohz_full=` that the kernel refuses, as words of the line: those without
    /// valid CPUs, and those that differ from an earlier one of the same kind. `last` is the machine's last CPU.
    pub(crate) fn refused_lists(&self, last: CpuId) -> Vec<String> {
        self.housekeeping(last).refused
    }

    /// Returns the CPUs of a parameter without flags, as in `isolcpus=managed_irq,domain,2-3`, that the kernel keeps;
    /// `None` if it is absent or invalid. `last` is the machine's last CPU, for `all` and `N`.
    #[must_use]
    pub fn cpus(&self, parameter: &str, last: CpuId) -> Option<CpuSet> {
        match repeated(parameter) {
            Repeated::FirstCounts => {
                let mut accepted = self.housekeeping(last).accepted.into_iter();
                let (_, cpus) = accepted.find(|(name, _)| same_name(name, parameter))?;
                Some(cpus)
            }
            _ => cpu_list(self.value(parameter)?, last),
        }
    }

    /// Reads the lists in order, as kernel/sched/isolation.c does (`housekeeping_setup`): the first list of a kind is
    /// kept. A later word that names the kind too is refused as a whole, unless its CPUs are the same.
    fn housekeeping(&self, last: CpuId) -> Housekeeping {
        let mut read = Housekeeping::default();
        let mut kept: [Option<CpuSet>; FLAGS.len()] = Default::default();
        let possible: CpuSet = (0..=last.0).map(CpuId).collect();
        for (name, value) in &self.0 {
            let is_isolcpus = same_name(name, "isolcpus");
            if !is_isolcpus && !same_name(name, "nohz_full") {
                continue;
            }
            let value = value.as_deref().unwrap_or_default();
            let list = match is_isolcpus && flags(value).any(is_illegal_flag) {
                true => None,
                false => cpu_list(value, last).map(|cpus| cpus.intersection(&possible)),
            };
            let Some(listed) = list.filter(|cpus| !cpus.is_empty()) else {
                read.refused.push(format!("{name}={value}"));
                continue;
            };
            // One CPU has to stay, and the kernel takes the one that it starts on.
            let cpus = match listed == possible {
                true => listed.difference(&CpuSet::single(BOOT_CPU)),
                false => listed.clone(),
            };
            let named: Vec<usize> = match is_isolcpus {
                true => kinds(value),
                false => vec![TICKLESS],
            };
            let differs = |kind: &usize| kept[*kind].as_ref().is_some_and(|kept| *kept != cpus);
            if named.iter().any(differs) {
                read.refused.push(format!("{name}={value}"));
                continue;
            }
            for kind in named {
                kept[kind] = Some(cpus.clone());
                if is_isolcpus {
                    read.by_isolcpus[kind] = Some(cpus.clone());
                }
            }
            read.accepted.push((name.clone(), listed));
        }
        read
    }
}

/// Returns a machine's last CPU, for `all` and `N` in lists.
pub(crate) fn last_cpu(machine: &Machine) -> CpuId {
    let last = machine.topology.possible.iter().next_back();
    last.unwrap_or(BOOT_CPU)
}

/// What the kernel does with a parameter that is given several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// The last one replaces those before it: `early_param()`, `__setup()` or `module_param()` assign one variable.
    LastCounts,
    /// As [`Self::LastCounts`], and the value is a list, so that a new word has to repeat the old items.
    LastListCounts,
    /// The first one is kept, and a later one that differs is refused with a line in the kernel log.
    FirstCounts,
    /// Each one is added to those before it, or sets its own part.
    Accumulates,
}

/// The parameters of which not simply the last counts, and the kernel's source that says so.
const REPEATED: [(&str, Repeated); 13] = [
    // kernel/sched/isolation.c, housekeeping_setup
    ("isolcpus", Repeated::FirstCounts),
    ("nohz_full", Repeated::FirstCounts),
    // kernel/module/main.c, module_blacklist is one core_param()
    ("module_blacklist", Repeated::LastListCounts),
    // kernel/printk/printk.c, console_setup; drivers/tty/serial/earlycon.c
    ("console", Repeated::Accumulates),
    ("earlycon", Repeated::Accumulates),
    // mm/hugetlb.c: each size with its number
    ("hugepagesz", Repeated::Accumulates),
    ("hugepages", Repeated::Accumulates),
    // arch/x86/kernel/tsc.c, tsc_setup: each word sets a variable of its own
    ("tsc", Repeated::Accumulates),
    // arch/x86/kernel/pci-dma.c, iommu_setup; drivers/iommu/intel/iommu.c, intel_iommu_setup
    ("iommu", Repeated::Accumulates),
    ("intel_iommu", Repeated::Accumulates),
    // arch/x86/kernel/process.c, idle_setup: `poll` stays
    ("idle", Repeated::Accumulates),
    // init/main.c, initcall_blacklist
    ("initcall_blacklist", Repeated::Accumulates),
    // lib/dynamic_debug.c
    ("dyndbg", Repeated::Accumulates),
];

/// Returns what the kernel does with a parameter that is given several times.
pub(crate) fn repeated(parameter: &str) -> Repeated {
    let mut all = REPEATED.into_iter();
    all.find(|(name, _)| same_name(name, parameter))
        .map_or(Repeated::LastCounts, |(_, kind)| kind)
}

/// The flags of `isolcpus=`; a kind of isolation is an index of it.
const FLAGS: [&str; 3] = ["nohz", "domain", "managed_irq"];
/// The kind that `nohz_full=` is of too.
const TICKLESS: usize = 0;
/// The kind without any flag.
const UNBALANCED: usize = 1;

/// What the kernel makes of `isolcpus=` and `nohz_full=`.
#[derive(Debug, Default)]
struct Housekeeping {
    /// The words that it accepts, each with the CPUs that it lists.
    accepted: Vec<(String, CpuSet)>,
    /// The CPUs of each of [`FLAGS`] that `isolcpus=` sets.
    by_isolcpus: [Option<CpuSet>; FLAGS.len()],
    /// The words that it refuses.
    refused: Vec<String>,
}

/// What the kernel does with `isolcpus=` (kernel/sched/isolation.c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolatedCpus {
    /// The CPUs that the scheduler excludes from load balancing: with the flag `domain`, or without any flag.
    pub unbalanced: Option<CpuSet>,
    /// The CPUs that managed interrupts stay off: with the flag `managed_irq`.
    pub without_managed_interrupts: Option<CpuSet>,
    /// The CPUs without a tick: with the flag `nohz`, as `nohz_full=`.
    pub tickless: Option<CpuSet>,
}

/// Returns the flags before the CPUs of `isolcpus=`.
fn flags(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').take_while(|part| is_flag(part))
}

/// Returns the kinds of isolation that the flags of `isolcpus=` name.
fn kinds(value: &str) -> Vec<usize> {
    let known = |flag| FLAGS.iter().position(|known| *known == flag);
    let all: Vec<usize> = flags(value).filter_map(known).collect();
    match all.is_empty() {
        true => vec![UNBALANCED],
        false => all,
    }
}

/// Returns whether the kernel refuses the whole word for the sake of this flag.
fn is_illegal_flag(flag: &str) -> bool {
    !flag
        .chars()
        .all(|character| character.is_ascii_alphabetic() || character == '_')
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
            "ro dyndbg=\"file a.c +p\" rcu-nocbs=1 rcu_nocbs=2-3 quiet -- rcu_nocbs=7\n",
        );
        assert!(line.has("quiet") && line.has("rcu_nocbs") && !line.has("qui"));
        assert_eq!(line.value("rcu_nocbs"), Some("2-3"));
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
        for (text, unbalanced, managed, tickless) in [
            ("2-3", Some("2-3"), None, None),
            ("managed_irq,2", None, Some("2"), None),
            (
                "managed_irq,domain,2-3,6",
                Some("2-3,6"),
                Some("2-3,6"),
                None,
            ),
            ("nohz,5", None, None, Some("5")),
            // The kernel keeps its boot CPU.
            ("domain,all", Some("1-7"), None, None),
            ("1-N", Some("1-7"), None, None),
            ("domian,5", Some("5"), None, None),
        ] {
            let line = KernelCommandLine::parse(&format!("ro isolcpus={text} quiet"));
            let isolated = line.isolcpus(CpuId(7)).expect(text);
            let set = |text: Option<&str>| text.map(|text| text.parse().expect("CPUs"));
            assert_eq!(isolated.unbalanced, set(unbalanced), "{text}");
            assert_eq!(isolated.without_managed_interrupts, set(managed), "{text}");
            assert_eq!(isolated.tickless, set(tickless), "{text}");
        }
        for text in [
            "isolcpus=3-1",
            "isolcpus=",
            "isolcpus=do1main,2",
            "isolcpus=9",
            "quiet",
        ] {
            assert_eq!(
                KernelCommandLine::parse(text).isolcpus(CpuId(7)),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn of_repeated_parameters_those_count_that_the_kernel_keeps() {
        let refused = |text: &str| KernelCommandLine::parse(text).refused_lists(CpuId(7));
        for (text, cpus, words) in [
            // A second list of a kind is refused as a whole, with all its flags.
            (
                "isolcpus=2-3 isolcpus=managed_irq,domain,1-3",
                "2-3",
                &["isolcpus=managed_irq,domain,1-3"][..],
            ),
            ("isolcpus=2-3 isolcpus=domain,2,3 nohz_full=2-3", "2-3", &[]),
            // Of another kind it is kept.
            ("isolcpus=managed_irq,2-3 isolcpus=domain,1-3", "2-3", &[]),
            ("isolcpus=nohz,2-3 nohz_full=1-3", "2-3", &["nohz_full=1-3"]),
            (
                "isolcpus=domain,2-3 nohz-full=1-3 nohz_full=1-2",
                "2-3",
                &["nohz_full=1-2"],
            ),
            // A list without a CPU of the machine is refused too, and the next one is the first.
            (
                "isolcpus=8 isolcpus=5-3 isolcpus=2-3",
                "2-3",
                &["isolcpus=8", "isolcpus=5-3"],
            ),
        ] {
            let line = KernelCommandLine::parse(text);
            assert_eq!(line.cpus("isolcpus", CpuId(7)), cpus.parse().ok(), "{text}");
            assert_eq!(refused(text), words, "{text}");
        }
        let line = KernelCommandLine::parse(
            "isolcpus=2-3 isolcpus=managed_irq,1 rcu_nocbs=2 rcu_nocbs=3 skew_tick=1 tsc=reliable tsc=nowatchdog",
        );
        let isolated = line.isolcpus(CpuId(7)).expect("CPUs");
        assert_eq!(isolated.without_managed_interrupts, "1".parse().ok());
        assert_eq!(isolated.unbalanced, "2-3".parse().ok());
        assert_eq!(line.cpus("rcu_nocbs", CpuId(7)), "3".parse().ok());
        for (word, expected) in [
            ("skew_tick=1", true),
            ("skew-tick=1", true),
            ("skew_tick", false),
            ("tsc=reliable", true),
            ("tsc=nowatchdog", true),
            ("tsc=unstable", false),
            ("isolcpus=2-3", false),
            ("rcu_nocbs=3", false),
        ] {
            assert_eq!(line.is_in_effect(word), expected, "{word}");
        }
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
