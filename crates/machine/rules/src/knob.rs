// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The definition of a knob and its parts.

use std::fmt;

use rampart_model::{KnobEffect, KnobGroup, Severity};

use crate::{Fact, Rule, RuleBook};

/// A property of a machine that is known to matter for real-time work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Stable name: lower-case words joined by hyphens. Plans name knobs by it.
    pub name: &'static str,
    /// Its title, in a few words.
    pub title: &'static str,
    /// Its group.
    pub group: KnobGroup,
    /// Its location.
    pub location: Location,
    /// The conditions under which it matters; all of them must hold.
    pub applies: &'static [When],
    /// The expected value.
    pub expected: Expected,
    /// The choices, if sources differ; the first has the value of `expected`. Empty if they agree.
    pub choices: &'static [Choice],
    /// Why this value is expected.
    pub reason: &'static str,
    /// The cost and the risk of the expected value.
    pub cost: &'static str,
    /// How a change disturbs running work; `None` if it does not.
    pub disruptive: Option<&'static str>,
    /// When a change takes effect.
    pub effect: KnobEffect,
    /// The kernels that have it.
    pub kernels: Kernels,
    /// How to change it, one alternative on each line; `None` if the location is enough. `{real-time}` and `{housekeeping}`
    /// are replaced by the CPUs, `{each-real-time}` by the real-time CPUs as a shell expands them, `{running}` by the running programs of the location, a line `{add} PARAMETERS` by the command that sets kernel parameters, `{remove} NAME,NAME` by the one that removes
    /// them, and the line
    /// `{real-time-kernel}` by the one that installs a kernel with PREEMPT_RT, `{without-boot-cpu}` by the one that removes CPU 0
    /// from the kernel's lists. `{if CONDITION}` before a line limits it to machines with this property, as `{if amd}`,
    /// `{if clock tsc}`, from this kernel on `{if 6.16}`, or with an older one `{if before 6.16}`. A deviating location has the form
    /// `PATH`, `PATH (NAME)`, or `process NUMBER (NAME)`: a line with `{name}`, `{id}` or `{expected}` is repeated for
    /// each, joined by `; `; `{names}` is replaced by all names, joined by commas, and `{paths}` by all paths without
    /// a name. A line without what it names is left out.
    pub fix: Option<&'static str>,
    /// Why the first line of the fix is not a command that makes this rule pass; `None` if it is one.
    pub by_hand: Option<&'static str>,
    /// How to verify it, if reading the location again is not enough.
    pub verify: Option<&'static str>,
    /// How to undo it, if writing the old value is not enough.
    pub undo: Option<&'static str>,
    /// Where the rule comes from: kernel document, profile, paper, thread.
    pub source: &'static str,
    /// Severity of a deviation: an error makes the machine unfit for real-time work.
    pub severity: Severity,
}

impl Knob {
    /// Returns the defaults of the knobs of a group; entries override them.
    pub(crate) const fn of(group: KnobGroup) -> Self {
        Self {
            name: "",
            title: "",
            group,
            location: Location::File(Format::Text, &[]),
            applies: &[],
            expected: Expected::Informational,
            choices: &[],
            reason: "",
            cost: "",
            disruptive: None,
            effect: KnobEffect::AtOnce,
            kernels: Kernels::ALL,
            fix: None,
            by_hand: None,
            verify: None,
            undo: None,
            source: "",
            severity: Severity::Warning,
        }
    }
}

impl Knob {
    /// Returns the knob as a rule.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        Rule {
            id: self.name,
            book: match self.group {
                KnobGroup::Guest => RuleBook::Guest,
                _ => RuleBook::Machine,
            },
            severity: self.rule_severity(),
            title: self.title,
            reason: self.reason,
            source: self.source,
            waivable: true,
        }
    }

    /// Returns a note if no value is right for every machine, else the severity of the knob.
    const fn rule_severity(&self) -> Severity {
        match self.expected {
            Expected::Informational if self.choices.is_empty() => Severity::Note,
            _ => self.severity,
        }
    }
}

/// The format of a text that may name CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A text or a number.
    Text,
    /// CPUs as a list: `0-3,8`.
    List,
    /// CPUs as a mask: `f,00000003`.
    Mask,
}

/// The location of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// Files. The first existing path counts, since different kernels have different paths. A part
    /// in braces matches several names, see [`crate::readings`].
    File(Format, &'static [&'static str]),
    /// A file or directory of which only the presence matters.
    Exists(&'static [&'static str]),
    /// A parameter of the kernel command line. CPUs in one of the parameters in `also` count too.
    Boot {
        /// Its name, without `=`.
        parameter: &'static str,
        /// The format of its value.
        format: Format,
        /// Other parameters that imply it.
        also: &'static [&'static str],
    },
    /// An option that the kernel is built with.
    KernelOption(&'static str),
    /// Policy and priority of the kernel threads with these names; `*` matches any ending, `{cpu}`
    /// a real-time CPU.
    ThreadPolicy(&'static [&'static str]),
    /// The affinity of the kernel threads with these names.
    ThreadAffinity(&'static [&'static str]),
    /// Whether one of these programs runs.
    Program(&'static [&'static str]),
    /// Messages of the kernel since it started that contain one of these texts.
    KernelLog(&'static [&'static str]),
    /// A property that follows from several files.
    Fact(Fact, &'static str),
    /// A setting of one guest that no file of the host shows.
    Guest(&'static str),
}

/// The expected value of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// All real-time CPUs, possibly with others.
    CoversRealTime,
    /// Only housekeeping CPUs, no real-time CPU.
    NoRealTime,
    /// This number.
    Number(i64),
    /// This number or a higher one.
    AtLeast(i64),
    /// This number or a lower one.
    AtMost(i64),
    /// This number or a higher one in at least one of the locations.
    SomeAtLeast(i64),
    /// Zero, which disables it, or this number or a higher one.
    ZeroOrAtLeast(i64),
    /// None of these texts; if no value is set, the kernel's default is right.
    Not(&'static [&'static str]),
    /// One of these texts; Rampart writes the first.
    Word(&'static [&'static str]),
    /// One of these words is the marked word of several, as in `always [madvise] never`.
    Marked(&'static [&'static str]),
    /// A list separated by commas that contains this part.
    Contains(&'static str),
    /// The parameter, option, program or file is present.
    Present,
    /// The parameter, option, program or file is absent.
    Absent,
    /// `SCHED_FIFO` with this priority or a higher one.
    FifoAtLeast(u8),
    /// The value that the plan chose for the knob of this name
    /// ([`Isolation::choices`](crate::Isolation::choices)).
    Chosen(&'static str),
    /// A description; the [`Fact`] or the settings of the guest decide.
    Text(&'static str),
    /// No value is right for every machine: the value is only reported.
    Informational,
}

/// One choice, if sources differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Name by which a plan chooses it.
    pub name: &'static str,
    /// The value that it expects.
    pub expected: Expected,
    /// The source of the choice.
    pub who: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// A condition under which a knob matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// On x86 processors.
    X86,
    /// On 64-bit Arm.
    Arm64,
    /// On Intel processors.
    Intel,
    /// On AMD processors.
    Amd,
    /// On hardware, not in a guest.
    Hardware,
    /// On a machine that is itself a guest.
    Guest,
    /// If the machine hosts guests.
    Guests,
    /// With several memory nodes.
    SeveralNodes,
    /// With a PREEMPT_RT kernel.
    RealTimeKernel,
    /// With a kernel without PREEMPT_RT.
    OrdinaryKernel,
    /// If some CPUs run without a tick.
    Tickless,
    /// If the kernel command line has `nohz_full=` or another list of real-time CPUs.
    BootIsolation,
    /// If the cpuset controller is in a v1 hierarchy.
    ControlGroupsV1,
    /// If a v2 hierarchy is mounted.
    ControlGroupsV2,
    /// If the kernel is built with this option.
    Option(&'static str),
    /// If the processor has this feature, as `/proc/cpuinfo` names it.
    Feature(&'static str),
    /// If the kernel limits the time of real-time threads.
    Throttling,
    /// If irqbalance does not run, or may use a real-time CPU.
    BalancedInterrupts,
}

impl When {
    /// Returns the condition in words.
    #[must_use]
    pub fn words(self) -> String {
        let words = match self {
            Self::X86 => "x86 processors",
            Self::Arm64 => "64-bit Arm processors",
            Self::Intel => "processors of Intel",
            Self::Amd => "processors of AMD",
            Self::Hardware => "hardware, not guests",
            Self::Guest => "machines that are guests",
            Self::Guests => "machines that host KVM guests",
            Self::SeveralNodes => "machines with several memory nodes",
            Self::RealTimeKernel => "PREEMPT_RT kernels",
            Self::OrdinaryKernel => "kernels without PREEMPT_RT",
            Self::Tickless => "machines with tickless CPUs (nohz_full=)",
            Self::BootIsolation => "machines with isolcpus=, nohz_full= or rcu_nocbs=",
            Self::ControlGroupsV1 => "cgroup v1",
            Self::ControlGroupsV2 => "cgroup v2",
            Self::Option(option) => return format!("kernels with {option}"),
            Self::Feature(feature) => return format!("processors with {feature}"),
            Self::Throttling => "kernels that limit the time of real-time threads",
            Self::BalancedInterrupts => "an irqbalance that may use the real-time CPUs",
        };
        words.to_owned()
    }
}

/// The version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
}

impl KernelVersion {
    /// Parses the start of a release such as `6.1.0-40-rt-amd64`.
    #[must_use]
    pub fn of_release(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The kernels that have a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels {
    /// The first kernel that has it; `None` if older than 5.10, the oldest that Rampart supports.
    pub from: Option<KernelVersion>,
    /// The first kernel that no longer has it; `None` if all later ones have it.
    pub before: Option<KernelVersion>,
    /// The changes between these versions.
    pub changed: &'static str,
}

impl Kernels {
    /// All kernels from 5.10 on.
    pub const ALL: Self = Self {
        from: None,
        before: None,
        changed: "",
    };

    /// Returns the kernels from this version on.
    pub(crate) const fn from(major: u16, minor: u16, changed: &'static str) -> Self {
        Self {
            from: Some(KernelVersion { major, minor }),
            before: None,
            changed,
        }
    }

    /// Returns all kernels, with a change between versions.
    pub(crate) const fn all(changed: &'static str) -> Self {
        Self {
            from: None,
            before: None,
            changed,
        }
    }

    /// Returns the kernels before this version.
    pub(crate) const fn before(major: u16, minor: u16, changed: &'static str) -> Self {
        Self {
            from: None,
            before: Some(KernelVersion { major, minor }),
            changed,
        }
    }

    /// Returns whether these kernels include a version.
    #[must_use]
    pub fn contain(&self, version: KernelVersion) -> bool {
        self.from.is_none_or(|from| version >= from)
            && self.before.is_none_or(|before| version < before)
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.before) {
            (None, None) => write!(f, "all from 5.10 on")?,
            (Some(from), None) => write!(f, "from {from} on")?,
            (None, Some(before)) => write!(f, "before {before}")?,
            (Some(from), Some(before)) => write!(f, "from {from} to before {before}")?,
        }
        if self.changed.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", self.changed)
        }
    }
}
