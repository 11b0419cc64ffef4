// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers: disturbances of one domain while all domains are measured.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest_word::did_you_mean;
use crate::{
    BlockKind, BlockSpan, CellExitReport, ClockRelation, CpuId, CpuSet, DetachedCounts,
    Distribution, Finding, GuestReport, LoadKind, LoadRecord, Nanos, SchedulingPolicy, SignedNanos,
};

/// The kind of a disturbance.
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
    /// Its CPUs are stopped repeatedly for a known time.
    Block,
    /// This load runs in it.
    Load(LoadKind),
}

/// The origin of a disturbance.
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
    /// The domain's own kernel: the guest's in a guest, the host's in other domains.
    Inside,
    /// The host's kernel, on the CPUs under a domain with its own kernel.
    Under,
}

/// One disturbance of one domain. Written `block:host`, `cache:task`, `block:under:vm`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Disturbance {
    /// Its kind.
    pub kind: DisturbanceKind,
    /// Its origin.
    pub side: Side,
    /// Name of the disturbed domain.
    pub domain: String,
}

impl DisturbanceKind {
    /// Returns its name.
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

const KINDS: [&str; 5] = ["block", "cpu", "memory", "cache", "io"];

/// The error of a text that is not a disturbance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no disturbance{near}; write block, cpu, memory, cache or io, alone for every domain, or with one, as in `block:host`, `cache:task`, `block:under:vm`",
    near = did_you_mean(.0.split(':').next().unwrap_or_default(), KINDS)
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

/// A domain of a group, with its CPUs while all domains of the group run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Participant {
    /// Name of the domain.
    pub domain: String,
    /// Its measured CPUs, which no other domain of the group uses.
    pub cpus: CpuSet,
}

/// Domains that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferGroup {
    /// The domains.
    pub participants: Vec<Participant>,
    /// The disturbances, one after the other. Each names a participant.
    pub disturbances: Vec<Disturbance>,
}

/// The settings of transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferSettings {
    /// Groups of domains; one group on a machine with enough CPUs for all.
    pub groups: Vec<TransferGroup>,
    /// Period of the wakeup meter in every domain.
    pub interval: Nanos,
    /// Policy of the meter's threads.
    pub policy: SchedulingPolicy,
    /// Length of the quiet round before the blocks, which determines their length.
    pub quiet: Nanos,
    /// Length of a round under load.
    pub loaded: Nanos,
    /// Blocks in a round.
    pub blocks: u32,
    /// The intended length of a block is the worst quiet latency times this.
    pub block_factor: u32,
    /// Minimum length of a block; the maximum is the blocker's.
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
    /// The worst sample that ended in each slot, without gaps between slots; `None` if no sample
    /// ended.
    pub worst: Vec<Option<Nanos>>,
}

/// An interval whose worst latency a transfer is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Window {
    /// Its start, on the clock of the timeline.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// The number of the block in it; `None` for a control window without a block.
    pub block: Option<u32>,
    /// The worst sample that ended in it; `None` if no sample ended.
    pub worst: Option<Nanos>,
}

/// The measurement of one domain in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Watched {
    /// Name of the domain.
    pub domain: String,
    /// The measured CPU, as the host numbers it.
    pub cpu: CpuId,
    /// Relation of the domain's clock to the host's, before and after; empty if it is the same
    /// clock.
    #[serde(default)]
    pub clock: Vec<ClockRelation>,
    /// Its latencies over time.
    pub timeline: Timeline,
    /// The windows that the verdict compares, in chronological order; empty in a round without
    /// blocks. Reports show them on the timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// The distribution of all its latencies as taken.
    pub seen: Distribution,
    /// The distribution corrected for missed periods, which interference is judged by; `None` if it
    /// equals `seen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Distribution>,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// The guest, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// What happened on its CPU during the round, if the CPU was taken for a detached thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<DetachedCounts>,
    /// The reasons why it is invalid; empty if it is valid.
    pub invalid: Vec<Finding>,
    /// Warnings that do not invalidate the figures.
    pub findings: Vec<Finding>,
}

/// The blocks that were made in a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlocksMade {
    /// The means of stopping the CPUs.
    pub kind: BlockKind,
    /// The requested length.
    pub length: Nanos,
    /// Relation of the clock of the spans to the host's; empty if it is the same clock.
    #[serde(default)]
    pub clock: Vec<ClockRelation>,
    /// Every block, in chronological order.
    pub spans: Vec<BlockSpan>,
}

/// One round: all domains of a group are measured simultaneously, at most one is disturbed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferRecord {
    /// `quiet/GROUP/NUMBER` or `DISTURBANCE/GROUP/NUMBER`, unique in its evaluation.
    pub id: String,
    /// Index of the group in the plan.
    pub group: u32,
    /// Its index in the order of all rounds, from 0.
    pub order: u32,
    /// The disturbance; `None` for a quiet round.
    pub disturbance: Option<Disturbance>,
    /// Start time, RFC 3339.
    pub started: String,
    /// Length of the round.
    pub duration: Nanos,
    /// The blocks, if the disturbance is blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlocksMade>,
    /// The load, if the disturbance is a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadRecord>,
    /// The measurement of each domain, in the order of the group's participants.
    pub watched: Vec<Watched>,
    /// The reasons why the round is invalid; empty if it is valid.
    pub invalid: Vec<Finding>,
    /// Warnings that do not invalidate it.
    pub findings: Vec<Finding>,
}

/// The path of a domain's signs of life to the observer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SignPath {
    /// Through a process of the host: none arrives after a crash of the host, even if the domain
    /// runs.
    #[default]
    ThroughHost,
    /// Through a channel of the domain.
    OwnChannel,
    /// The domain writes them into the machine's memory, which is read from outside after the
    /// crash.
    Memory,
}

/// The contents of the memory with a domain's signs of life.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SignForm {
    /// A word of 64 bits with the end of its last sample, in nanoseconds of its clock.
    #[default]
    LastSample,
    /// The section of its agent: the last messages, including figures of the meter.
    Agent,
}

/// The location in the machine's memory to which a domain writes its measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SignInMemory {
    /// Physical address.
    pub address: u64,
    /// Number of bytes to read.
    #[serde(default = "SignInMemory::word_bytes")]
    pub bytes: u64,
    /// Their format.
    #[serde(default)]
    pub form: SignForm,
    /// Its clock minus the host's (`CLOCK_MONOTONIC`).
    pub offset: SignedNanos,
}

impl SignInMemory {
    /// Returns the size of a word of 64 bits.
    const fn word_bytes() -> u64 {
        8
    }
}

/// The records of a domain from the time after the crash of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RecordedAfter {
    /// Samples.
    pub samples: u64,
    /// The worst of these samples.
    pub worst: Nanos,
    /// Samples that its meter lost.
    pub lost: u64,
    /// Duration with records after the crash.
    pub duration: Nanos,
    /// Whether the records are without a gap from before the crash on.
    pub without_gap: bool,
}

/// The survival of one domain during a crash of its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CrashWitness {
    /// Name of the domain.
    pub domain: String,
    /// End of its last known sample (`CLOCK_MONOTONIC` of the host); `None` if it never measured.
    pub last_sample: Option<Nanos>,
    /// End of its last known sample relative to the crash; negative is before it.
    pub lived: Option<SignedNanos>,
    /// Uncertainty of `lived`: the pause between two signs of life, and the uncertainty of the
    /// domain's clock.
    pub uncertainty: Nanos,
    /// The path of its signs of life.
    #[serde(default)]
    pub signs: SignPath,
    /// The location of its signs of life after the host's crash; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SignInMemory>,
    /// Its records after the crash; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RecordedAfter>,
    /// The reasons why its survival is unknown; empty if it is known.
    pub invalid: Vec<Finding>,
}

/// A deliberate panic of the host's kernel while every domain measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CrashRecord {
    /// The means of the crash.
    pub how: String,
    /// Time of the crash (`CLOCK_MONOTONIC` of the host).
    pub at: Nanos,
    /// Confirmation that the host stopped; `None` if it is not certain.
    pub confirmed: Option<String>,
    /// Time that signs of life were observed after the crash.
    pub observed: Nanos,
    /// Each domain.
    pub witnesses: Vec<CrashWitness>,
}

/// The machine that an evaluation ran on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bench {
    /// The machine of the command.
    #[default]
    Local,
    /// Another machine, through OpenSSH.
    Ssh {
        /// The host as the user wrote it.
        host: String,
    },
    /// A simulated machine.
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
    fn disturbances_round_trip() {
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
