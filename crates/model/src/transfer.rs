// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who disturbs whom: disturbances of one domain while all others are watched.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    BlockKind, BlockSpan, CellExitReport, ClockRelation, CpuId, CpuSet, Distribution, Finding,
    GuestReport, LoadKind, LoadRecord, Nanos, SchedulingPolicy, SignedNanos,
};

/// What is done to a domain.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DisturbanceKind {
    /// Its CPUs are stopped for a known time, again and again.
    Block,
    /// This load runs in it.
    Load(LoadKind),
}

/// From where a domain is disturbed.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// By its own kernel: a guest's in a guest, the host's everywhere else.
    Inside,
    /// By the host's kernel, on the CPUs under a domain that has a kernel of its own.
    Under,
}

/// One disturbance of one domain. Written `block:host`, `cache:task`, `block:under:vm`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Disturbance {
    /// What is done.
    pub kind: DisturbanceKind,
    /// From where.
    pub side: Side,
    /// Name of the domain that it is done to.
    pub domain: String,
}

impl DisturbanceKind {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Load(load) => load.word(),
        }
    }
}

impl fmt::Display for DisturbanceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for DisturbanceKind {
    type Err = ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "block" {
            return Ok(Self::Block);
        }
        LoadKind::ALL
            .into_iter()
            .find(|load| *load != LoadKind::Idle && load.word() == text)
            .map(Self::Load)
            .ok_or_else(|| ParseDisturbanceError(text.to_owned()))
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under = match self.side {
            Side::Inside => "",
            Side::Under => "under:",
        };
        f.pad(&format!("{}:{under}{}", self.kind, self.domain))
    }
}

/// Why a text names no disturbance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no disturbance; write block, cpu, memory, cache or io, alone for every domain, or with one, as in `block:host`, `cache:task`, `block:under:vm`"
)]
pub struct ParseDisturbanceError(pub String);

impl FromStr for Disturbance {
    type Err = ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDisturbanceError(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(error)?;
        let (side, domain) = match rest.strip_prefix("under:") {
            Some(domain) => (Side::Under, domain),
            None => (Side::Inside, rest),
        };
        if domain.is_empty() {
            return Err(error());
        }
        Ok(Self {
            kind: kind.parse().map_err(|_| error())?,
            side,
            domain: domain.to_owned(),
        })
    }
}

/// A domain that takes part, with the CPUs that it has while all others of its group have theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Participant {
    /// Name of the domain.
    pub domain: String,
    /// Its measured CPUs: nobody else's in the group.
    pub cpus: CpuSet,
}

/// Domains that are up at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferGroup {
    /// Who takes part.
    pub participants: Vec<Participant>,
    /// Who is disturbed, one after the other. Each names a participant.
    pub disturbances: Vec<Disturbance>,
}

/// How transfers are measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferSettings {
    /// Groups of domains. On a machine with CPUs for all there is one.
    pub groups: Vec<TransferGroup>,
    /// Period of the wakeup meter in every domain.
    pub interval: Nanos,
    /// Policy of the meter's threads.
    pub policy: SchedulingPolicy,
    /// Length of the quiet round before the blocks, from which their length follows.
    pub quiet: Nanos,
    /// Length of a round under load.
    pub loaded: Nanos,
    /// Blocks in a round.
    pub blocks: u32,
    /// The wanted length of a block is the worst quiet latency times this.
    pub block_factor: u32,
    /// Neither shorter than this nor longer than the blocker allows.
    pub shortest_block: Nanos,
    /// Pairs of domains that cannot be measured here, with the reason.
    pub findings: Vec<Finding>,
}

/// The worst latency in each of equally long slots of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Timeline {
    /// Start of the first slot (`CLOCK_MONOTONIC` of the domain's kernel).
    pub start: Nanos,
    /// Length of a slot.
    pub slot: Nanos,
    /// The worst sample that ended in each slot, one after the other without gaps; none where no
    /// sample ended.
    pub worst: Vec<Option<Nanos>>,
}

/// A stretch of time whose worst latency a transfer is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Window {
    /// Its start, on the clock of the timeline.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// The number of the block that it holds; none for a control window, which holds none.
    pub block: Option<u32>,
    /// The worst sample that ended in it; none where no sample ended.
    pub worst: Option<Nanos>,
}

/// What one domain saw in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Watched {
    /// Name of the domain.
    pub domain: String,
    /// The measured CPU, as the host numbers it.
    pub cpu: CpuId,
    /// How the domain's clock relates to the host's, before and after; empty where it is the same.
    #[serde(default)]
    pub clock: Vec<ClockRelation>,
    /// Its latencies in time.
    pub timeline: Timeline,
    /// The windows that the verdict compares, in the order of time; none in a round without
    /// blocks. Reports show them over the timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// All of them together.
    pub seen: Distribution,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// The guest, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// Why it does not count; empty where it does.
    pub invalid: Vec<Finding>,
    /// Weaknesses that leave the figures standing.
    pub findings: Vec<Finding>,
}

/// The blocks of a round as they were made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlocksMade {
    /// What stopped the CPUs.
    pub kind: BlockKind,
    /// The length asked for.
    pub length: Nanos,
    /// How the clock that the spans are on relates to the host's; empty where it is the same.
    #[serde(default)]
    pub clock: Vec<ClockRelation>,
    /// Every block, in the order of time.
    pub spans: Vec<BlockSpan>,
}

/// One round: all domains of a group watched at once, one of them disturbed or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferRecord {
    /// `quiet/GROUP/NUMBER` or `DISTURBANCE/GROUP/NUMBER`, unique in its evaluation.
    pub id: String,
    /// Index of the group in the plan.
    pub group: u32,
    /// Its place in the order of all rounds, from 0.
    pub order: u32,
    /// What was done; none for a quiet round.
    pub disturbance: Option<Disturbance>,
    /// When it began, RFC 3339.
    pub started: String,
    /// Length of the round.
    pub duration: Nanos,
    /// The blocks, if it was blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlocksMade>,
    /// The load, if it was a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadRecord>,
    /// What each domain saw, in the order of the group's participants.
    pub watched: Vec<Watched>,
    /// Why the round does not count; empty where it does.
    pub invalid: Vec<Finding>,
    /// Weaknesses that leave it standing.
    pub findings: Vec<Finding>,
}

/// How the signs of life of a domain travel to whoever watches.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SignPath {
    /// Through a process of the host: after the host's crash none can come, whoever lives.
    #[default]
    ThroughHost,
    /// On a channel of the domain's own.
    OwnChannel,
    /// The domain writes them into the machine's memory, which was read from outside after the crash.
    Memory,
}

/// What is in the memory in which a domain gives signs of life.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SignForm {
    /// A word of 64 bits with the end of its last sample, in nanoseconds of its clock.
    #[default]
    LastSample,
    /// The section in which its agent speaks: the last of what it said, its meter's figures among it.
    Agent,
}

/// Where in the machine's memory a domain writes down what it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SignInMemory {
    /// Physical address.
    pub address: u64,
    /// How many bytes are to be read there.
    #[serde(default = "SignInMemory::word_bytes")]
    pub bytes: u64,
    /// What they are.
    #[serde(default)]
    pub form: SignForm,
    /// Its clock minus the host's (`CLOCK_MONOTONIC`).
    pub offset: SignedNanos,
}

impl SignInMemory {
    /// Of a word of 64 bits.
    const fn word_bytes() -> u64 {
        8
    }
}

/// What the records of a domain say of the time after its host's crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RecordedAfter {
    /// Samples.
    pub samples: u64,
    /// The worst of them.
    pub worst: Nanos,
    /// Samples that are missing: those that its meter lost.
    pub lost: u64,
    /// How much of the time after the crash has records.
    pub duration: Nanos,
    /// Whether one record follows the other without a gap, from before the crash on.
    pub without_gap: bool,
}

/// Until when one domain lived when its host crashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CrashWitness {
    /// Name of the domain.
    pub domain: String,
    /// End of its last known sample (`CLOCK_MONOTONIC` of the host); none if it never measured.
    pub last_sample: Option<Nanos>,
    /// The same counted from the crash: negative is before it.
    pub lived: Option<SignedNanos>,
    /// How far from the truth `lived` may be: the pause between two signs of life, and what is
    /// not known of the domain's clock.
    pub uncertainty: Nanos,
    /// How its signs of life travel.
    #[serde(default)]
    pub signs: SignPath,
    /// Where its signs are to be found when nobody sends them any more; none where they are nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SignInMemory>,
    /// What its records say of the time after the crash; none where there are none of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RecordedAfter>,
    /// Why nothing is known of it; empty where something is.
    pub invalid: Vec<Finding>,
}

/// The host's kernel was made to panic while every domain measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CrashRecord {
    /// How it was crashed.
    pub how: String,
    /// The moment (`CLOCK_MONOTONIC` of the host).
    pub at: Nanos,
    /// Who confirmed that the host is dead, and how; none if it is not certain.
    pub confirmed: Option<String>,
    /// For how long signs of life were waited for after the crash.
    pub observed: Nanos,
    /// Each domain.
    pub witnesses: Vec<CrashWitness>,
}

/// Where an evaluation ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bench {
    /// On the machine that the command was given on.
    #[default]
    Local,
    /// On another machine, by OpenSSH.
    Ssh {
        /// As the user wrote it.
        host: String,
    },
    /// On a simulated machine.
    Sim {
        /// The emulator and its version.
        emulator: String,
        /// Its kernel.
        kernel: String,
        /// The packages that it was built from: name and version.
        packages: Vec<(String, String)>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_disturbances() {
        for text in ["block:host", "cache:vm-2", "block:under:vm", "io:container"] {
            assert_eq!(text.parse::<Disturbance>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "block",
            "block:",
            "idle:host",
            "gpu:host",
            "block:under:",
        ] {
            assert!(text.parse::<Disturbance>().is_err(), "{text}");
        }
    }
}
