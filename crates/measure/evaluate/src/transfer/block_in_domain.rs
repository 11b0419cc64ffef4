// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks the CPUs of one domain of a group, from this kernel or from the domain's own.

use std::path::Path;
use std::time::Duration;

use rampart_domain::{Inside, InsideProcess};
use rampart_load::{Blocks, BlocksError, BlocksOutcome, BlocksProgress};
use rampart_model::{
    BlockSettings, BlocksMade, CpuSet, Finding, Nanos, RefusalKind, Severity, Side,
};

use super::group::Member;
use crate::run::reason;

/// Blocks that are in progress or prepared.
#[derive(Debug)]
pub(crate) struct Blocking {
    blocks: Blocks,
    settings: BlockSettings,
    location: String,
    /// Whether the domain's own kernel makes the blocks.
    inside: bool,
    findings: Vec<Finding>,
}

impl Blocking {
    /// Prepares the blocks of a member from the requested side. The host's kernel always blocks a
    /// domain without a kernel of its own. If the blocks exceed the limit of the kernel module,
    /// they are shortened to it and a finding is added.
    pub(crate) fn start(
        meter: &Path,
        member: &Member,
        side: Side,
        settings: BlockSettings,
    ) -> Result<Self, Finding> {
        let (mut settings, mut findings) = (settings, Vec::new());
        let inside = member
            .running
            .as_ref()
            .and_then(|running| running.inside())
            .filter(|_| side == Side::Inside);
        if let Some(inside) = inside {
            settings.cpus = cpus_inside(inside, member)?;
        }
        let start = |settings: &BlockSettings| match inside {
            Some(inside) => start_inside(inside, member, settings),
            None => {
                let shield = member.running.as_ref().and_then(|running| running.shield());
                Blocks::start_within(meter, settings, shield)
                    .map_err(|error| Failure::Blocks(Box::new(error)))
            }
        };
        let blocks = match start(&settings) {
            Err(Failure::Blocks(refused)) if is_bad_plan(&refused) => {
                let shortest = BlockSettings {
                    length: settings.length.min(Nanos::from_micros(100)),
                    ..settings.clone()
                };
                let longest = start(&shortest)
                    .map_err(|failure| failure.finding(&member.name))?
                    .longest();
                if longest >= settings.length || longest == Nanos::ZERO {
                    return Err(Failure::Blocks(refused).finding(&member.name));
                }
                findings.push(
                    Finding::new(
                        Severity::Warning,
                        member.name.as_str(),
                        "the source of the blocks limits their length, so they differ less from quiet latencies",
                    )
                    .values(longest.to_string(), settings.length.to_string()),
                );
                settings.length = longest;
                start(&settings)
            }
            other => other,
        };
        Ok(Self {
            blocks: blocks.map_err(|failure| failure.finding(&member.name))?,
            settings,
            location: member.name.clone(),
            inside: inside.is_some(),
            findings,
        })
    }

    /// Returns the time limit of all blocks: random pauses are at most half as long again.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from(self.settings.duration()).mul_f64(1.5)
    }

    /// Starts the blocks.
    pub(crate) fn go(&mut self) -> Result<(), Finding> {
        self.blocks
            .go()
            .map_err(|error| finding(&self.location, &error))
    }

    /// Reads the blocks made since the last call. Returns whether all are done.
    pub(crate) fn read_progress(&mut self) -> Result<bool, Finding> {
        loop {
            match self.blocks.poll(Duration::ZERO) {
                Ok(Some(BlocksProgress::Finished)) => return Ok(true),
                Ok(Some(BlocksProgress::Made(_))) => {}
                Ok(None) => return Ok(false),
                Err(error) => return Err(finding(&self.location, &error)),
            }
        }
    }

    /// Ends the blocks, also before the last one. Returns the blocks that were made, with findings.
    pub(crate) fn end(self) -> (BlocksMade, Vec<Finding>) {
        let mut findings = self.findings;
        match self.blocks.finish() {
            Ok(BlocksOutcome {
                made,
                findings: notes,
                ..
            }) => {
                let of = |mut one: Finding| {
                    // Each kernel has a file of this name.
                    if self.inside {
                        one.location = format!("{}: {}", self.location, one.location);
                    }
                    one
                };
                findings.extend(notes.into_iter().map(of));
                (made, findings)
            }
            Err(error) => {
                findings.push(finding(&self.location, &error));
                let nothing = BlocksMade {
                    kind: self
                        .settings
                        .kind
                        .unwrap_or(rampart_model::BlockKind::Module),
                    length: self.settings.length,
                    clock: Vec::new(),
                    spans: Vec::new(),
                };
                (nothing, findings)
            }
        }
    }
}

/// Why blocks cannot start.
enum Failure {
    Blocks(Box<BlocksError>),
    Domain(Finding),
}

impl Failure {
    fn finding(self, location: &str) -> Finding {
        match self {
            Self::Blocks(error) => finding(location, &error),
            Self::Domain(finding) => finding,
        }
    }
}

fn is_bad_plan(error: &BlocksError) -> bool {
    matches!(error, BlocksError::Refused(refusal) if refusal.kind == RefusalKind::BadPlan)
}

fn finding(location: &str, error: &BlocksError) -> Finding {
    match error {
        BlocksError::Refused(refusal) => refusal.finding.clone(),
        other => Finding::new(Severity::Error, location, other.to_string()),
    }
}

/// Returns the member's CPUs as numbered by its own kernel.
fn cpus_inside(inside: &dyn Inside, member: &Member) -> Result<CpuSet, Finding> {
    member
        .cpus
        .iter()
        .map(|cpu| {
            inside.cpu_inside(cpu).ok_or_else(|| {
                Finding::new(
                    Severity::Error,
                    member.name.as_str(),
                    format!("it has no CPU of its own on the host's CPU {cpu}"),
                )
            })
        })
        .collect()
}

fn start_inside(
    inside: &dyn Inside,
    member: &Member,
    settings: &BlockSettings,
) -> Result<Blocks, Failure> {
    let command = ["rampart-meter", "block"].map(str::to_owned);
    let InsideProcess {
        input,
        output,
        handle,
    } = inside
        .spawn(&command)
        .map_err(|error| Failure::Domain(reason(&member.name, &error)))?;
    let name = format!("rampart-meter block in {}", member.name);
    Blocks::over(&name, input, output, handle, settings)
        .map_err(|error| Failure::Blocks(Box::new(error)))
}
