// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a knob is.

use std::fmt;

use rampart_model::{KnobEffect, KnobGroup, Severity};

use crate::{Fact, Rule, RuleBook};

/// One thing about a machine that is known to matter for real-time work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Stable name: lower-case words joined by hyphens. Plans name knobs by it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it belongs to.
    pub group: KnobGroup,
    /// Where it is.
    pub location: Place,
    /// When it matters; all of them must hold.
    pub applies: &'static [When],
    /// What it should be.
    pub expected: Expected,
    /// Where sources differ, what each wants; the first is the one in `expected`. Empty: they agree.
    pub choices: &'static [Choice],
    /// Why it should be so.
    pub reason: &'static str,
    /// What it costs, and what may go wrong.
    pub cost: &'static str,
    /// How changing it disturbs what runs; none: it does not.
    pub disruptive: Option<&'static str>,
    /// When a change works.
    pub effect: KnobEffect,
    /// The kernels that have it.
    pub kernels: Kernels,
    /// How to change it, where the place alone does not tell. `{real-time}` and `{housekeeping}`
    /// stand for the CPUs.
    pub fix: Option<&'static str>,
    /// How to see that it is set, where reading the place again does not tell.
    pub verify: Option<&'static str>,
    /// How to take it back, where writing the old value does not.
    pub undo: Option<&'static str>,
    /// Where the rule comes from: kernel document, profile, paper, thread.
    pub source: &'static str,
    /// Severity of a deviation: an error makes the machine unfit for real-time work.
    pub severity: Severity,
}

impl Knob {
    /// What most knobs of a group have in common; entries name the rest.
    pub(crate) const fn of(group: KnobGroup) -> Self {
        Self {
            name: "",
            title: "",
            group,
            location: Place::File(Format::Text, &[]),
            applies: &[],
            expected: Expected::Informational,
            choices: &[],
            reason: "",
            cost: "",
            disruptive: None,
            effect: KnobEffect::AtOnce,
            kernels: Kernels::ALL,
            fix: None,
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

    /// Returns a note where no value is right for every machine, else the severity of the knob.
    const fn rule_severity(&self) -> Severity {
        match self.expected {
            Expected::Informational if self.choices.is_empty() => Severity::Note,
            _ => self.severity,
        }
    }
}

/// How a text names CPUs, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A text or a number.
    Text,
    /// CPUs as a list: `0-3,8`.
    List,
    /// CPUs as a mask: `f,00000003`.
    Mask,
}

/// Where a knob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Files. The first path that is there counts: names of different kernels stand here together.
    /// A part in braces stands for each of its kind, see [`crate::readings`].
    File(Format, &'static [&'static str]),
    /// A file or directory of which only the presence counts.
    Exists(&'static [&'static str]),
    /// A parameter of the kernel command line. CPUs that one of `also` names count too.
    Boot {
        /// Its name, without `=`.
        parameter: &'static str,
        /// How its value is written.
        format: Format,
        /// Other parameters that imply it.
        also: &'static [&'static str],
    },
    /// An option that the kernel is built with.
    KernelOption(&'static str),
    /// Policy and priority of the kernel's threads of these names; `*` stands for any ending,
    /// `{cpu}` for a real-time CPU.
    ThreadPolicy(&'static [&'static str]),
    /// The CPUs that the kernel's threads of these names may run on.
    ThreadAffinity(&'static [&'static str]),
    /// Whether one of these programs runs.
    Program(&'static [&'static str]),
    /// Something that is put together from several files.
    Fact(Fact, &'static str),
    /// A setting of one guest, which no file of the host shows.
    Guest(&'static str),
}

/// What a place should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// All real-time CPUs; more may be named.
    CoversRealTime,
    /// Housekeeping CPUs; no real-time CPU may be named.
    NoRealTime,
    /// This number.
    Number(i64),
    /// This number or a higher one.
    AtLeast(i64),
    /// This number or a lower one.
    AtMost(i64),
    /// This number or a higher one in at least one of the places.
    SomeAtLeast(i64),
    /// Zero, which switches it off, or this number or a higher one.
    ZeroOrAtLeast(i64),
    /// None of these texts; where nothing is said, the kernel's own default is right.
    Not(&'static [&'static str]),
    /// One of these texts; the first is what to write.
    Word(&'static [&'static str]),
    /// One of these words is the marked one among several, as in `always [madvise] never`.
    Marked(&'static [&'static str]),
    /// This is one of the parts between commas.
    Contains(&'static str),
    /// It is there: a parameter, an option, a program, a file.
    Present,
    /// It is not there.
    Absent,
    /// `SCHED_FIFO` with this priority or a higher one.
    FifoAtLeast(u8),
    /// The value that the plan chose for the knob of this name
    /// ([`Isolation::choices`](crate::Isolation::choices)).
    Chosen(&'static str),
    /// In words, decided by the [`Fact`] or by whoever sets up the guest.
    Text(&'static str),
    /// No value is right for every machine: it is told.
    Informational,
}

/// One opinion where sources differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Name by which a plan chooses it.
    pub name: &'static str,
    /// What it wants.
    pub expected: Expected,
    /// Whose opinion it is.
    pub who: &'static str,
    /// Why.
    pub why: &'static str,
}

/// When a knob matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// On processors of the x86 kind.
    X86,
    /// On 64-bit Arm.
    Arm64,
    /// On Intel's processors.
    Intel,
    /// On AMD's.
    Amd,
    /// On hardware.
    Hardware,
    /// On a machine that is itself a guest.
    Guest,
    /// Where the machine hosts guests.
    Guests,
    /// With several memory nodes.
    SeveralNodes,
    /// With a PREEMPT_RT kernel.
    RealTimeKernel,
    /// With any other kernel.
    OrdinaryKernel,
    /// Where some CPUs run without a tick.
    Tickless,
    /// Where `nohz_full=` is on the kernel command line, or another list of real-time CPUs.
    BootIsolation,
    /// Where the cpuset controller is in a v1 hierarchy.
    ControlGroupsV1,
    /// Where there is a v2 hierarchy.
    ControlGroupsV2,
    /// Where the kernel is built with this option.
    Option(&'static str),
}

impl When {
    /// In words.
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
        };
        words.to_owned()
    }
}

/// Version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// The number before the first point.
    pub major: u16,
    /// The number after it.
    pub minor: u16,
}

impl KernelVersion {
    /// Reads the beginning of a release such as `6.1.0-40-rt-amd64`.
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
    /// The first that has it; none: older than 5.10, the oldest that Rampart knows.
    pub from: Option<KernelVersion>,
    /// The first that has it no more; none: all later ones.
    pub before: Option<KernelVersion>,
    /// What changed between them.
    pub changed: &'static str,
}

impl Kernels {
    /// All from 5.10 on.
    pub const ALL: Self = Self {
        from: None,
        before: None,
        changed: "",
    };

    /// From this one on.
    pub(crate) const fn from(major: u16, minor: u16, changed: &'static str) -> Self {
        Self {
            from: Some(KernelVersion { major, minor }),
            before: None,
            changed,
        }
    }

    /// All, with a change on the way.
    pub(crate) const fn all(changed: &'static str) -> Self {
        Self {
            from: None,
            before: None,
            changed,
        }
    }

    /// Up to the one before this.
    pub(crate) const fn before(major: u16, minor: u16, changed: &'static str) -> Self {
        Self {
            from: None,
            before: Some(KernelVersion { major, minor }),
            changed,
        }
    }

    /// Whether a kernel is among them.
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
