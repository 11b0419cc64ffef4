// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `rampart-meter block`: one conversation ([`rampart_model::BlockerRequest`] in,
//! [`rampart_model::BlockerEvent`] out), one series of blocks.

mod module;
mod spin;

use std::collections::BTreeMap;

use rampart_model::{
    BLOCKER_PROTOCOL_VERSION, BlockKind, BlockSettings, BlockSpan, BlockSpread, BlockerEvent,
    BlockerRequest, CpuId, CpuSet, ExitCode, Finding, Nanos, Refusal, RefusalKind, Severity,
};

use self::module::{Missing, Module};
use self::spin::Spin;
use super::cell::{self, CellBlocks, CellMemoryLocation};
use super::console::Console;
use super::conversation::{End, Requests, conclude, ignored, refuse_plan};
use crate::engine::schedule::Spacing;
use crate::linux::{diagnosis, scheduling};

/// Interval between two polls for new blocks, in ms.
const TICK: i32 = 20;

/// How many polls it may take until no more blocks come after the request to end; the longest block
/// takes a second.
const LAST_TICKS: u32 = 1500;

/// The protocol of blocks.
const REQUESTS: Requests = Requests {
    protocol: BLOCKER_PROTOCOL_VERSION,
    command: "rampart block",
    schema: "blocker-request",
};

/// Holds the conversation on standard input and output. Returns the exit code: 0 after `finished`,
/// 2 for an invalid plan, 4 for another refusal, 1 if the output was closed early.
#[must_use]
pub fn run_blocker(cell: Option<&CellMemoryLocation>) -> ExitCode {
    let mut console = Console::new();
    let ended = converse(cell, &mut console);
    conclude(&mut console, ended, BlockerEvent::Refused)
}

fn converse(cell: Option<&CellMemoryLocation>, console: &mut Console) -> Result<(), End> {
    let Some(line) = console.wait_for_line()? else {
        return Err(REQUESTS.none().into());
    };
    let plan = plan(&line)?;
    let mut blocker = match cell {
        None => Blocker::prepare(&plan)?,
        Some(location) => Blocker::of_cell(location, &plan)?,
    };
    console.send(&BlockerEvent::Ready {
        protocol: BLOCKER_PROTOCOL_VERSION,
        kind: blocker.kind(),
        longest: blocker.longest(),
        findings: std::mem::take(&mut blocker.findings),
    });
    console.flush()?;
    match console.wait_for_line()?.map(|line| REQUESTS.read(&line)) {
        Some(Ok(BlockerRequest::Go {})) => blocker.go(&plan)?,
        None | Some(Ok(BlockerRequest::Stop {})) => {
            console.send(&BlockerEvent::Finished {
                made: 0,
                findings: Vec::new(),
            });
            return Ok(console.flush()?);
        }
        Some(Ok(BlockerRequest::Prepare { .. })) => return Err(REQUESTS.out_of_turn("go").into()),
        Some(Err(refusal)) => return Err(refusal.into()),
    }
    let (made, findings) = block(console, &mut blocker, &plan)?;
    console.send(&BlockerEvent::Finished { made, findings });
    Ok(console.flush()?)
}

/// Reports blocks until no more come. Returns their number and the findings.
fn block(
    console: &mut Console,
    blocker: &mut Blocker,
    settings: &BlockSettings,
) -> Result<(u32, Vec<Finding>), End> {
    let mut made: BTreeMap<CpuId, u32> = settings.cpus.iter().map(|cpu| (cpu, 0)).collect();
    let mut stopping = false;
    let mut out_of_turn = false;
    let mut ticks_late = 0;
    loop {
        console.wait(TICK)?;
        while let Some(line) = console.next_line() {
            match REQUESTS.read(&line) {
                Ok(BlockerRequest::Stop {}) => stopping = true,
                _ => out_of_turn = true,
            }
        }
        stopping |= console.end_wanted();
        if stopping {
            blocker.stop();
            ticks_late += 1;
            if ticks_late > LAST_TICKS {
                return Err(endless().into());
            }
        }
        let (mut spans, ended) = blocker.take()?;
        spans.sort_by_key(|span| (span.start, span.cpu));
        for span in &spans {
            *made.entry(span.cpu).or_default() += 1;
        }
        if !spans.is_empty() {
            console.send(&BlockerEvent::Blocked { spans });
        }
        if ended {
            break;
        }
    }
    let mut findings = blocker.last_findings(stopping, settings);
    if out_of_turn {
        findings.push(ignored("while blocks were made"));
    }
    let everywhere = settings.cpus.iter().filter_map(|cpu| made.get(&cpu)).min();
    Ok((everywhere.copied().unwrap_or(0), findings))
}

/// Returns the refusal for blocks that do not end. This program ends, and with it its threads and
/// its use of the device.
fn endless() -> Refusal {
    Refusal {
        kind: RefusalKind::System,
        finding: Finding::new(
            Severity::Error,
            "blocks",
            "blocks continue after the request to stop: a thread or the module does not answer",
        )
        .values(
            "still running",
            format!("stopped within {} s", LAST_TICKS as i32 * TICK / 1000),
        )
        .fix("dmesg"),
    }
}

enum Maker {
    Module(Module),
    Spin(Spin),
    Cell(Box<CellBlocks>),
}

struct Blocker {
    maker: Maker,
    findings: Vec<Finding>,
}

impl Blocker {
    /// Creates the blocker for a cell that blocks itself.
    fn of_cell(location: &CellMemoryLocation, settings: &BlockSettings) -> Result<Self, Refusal> {
        within(settings, cell::LONGEST, cell::SHARE)?;
        Ok(Self {
            maker: Maker::Cell(Box::new(CellBlocks::prepare(location, settings)?)),
            findings: Vec::new(),
        })
    }

    fn prepare(settings: &BlockSettings) -> Result<Self, Refusal> {
        let allowed = scheduling::affinity().map_err(|cause| {
            diagnosis::system("the program", "cannot read its affinity", &cause)
        })?;
        if let Some(refusal) = diagnosis::unusable_cpu(&settings.cpus, &allowed, false) {
            return Err(refusal);
        }
        let mut findings: Vec<Finding> = settle(settings, &allowed)?.into_iter().collect();
        let maker = match settings.kind {
            Some(BlockKind::Spin) => None,
            kind => match Module::open() {
                Ok(module) => Some(Maker::Module(module)),
                Err(Missing::Unavailable(refusal)) if kind.is_none() => {
                    findings.push(Finding {
                        severity: Severity::Warning,
                        ..refusal.finding
                    });
                    None
                }
                Err(Missing::Unavailable(refusal) | Missing::Refused(refusal)) => {
                    return Err(refusal);
                }
            },
        };
        let (longest, share) = match &maker {
            Some(Maker::Module(module)) => (module.longest(), module.share()),
            _ => (spin::LONGEST, spin::SHARE),
        };
        within(settings, longest, share)?;
        let maker = match maker {
            Some(maker) => maker,
            None => {
                let spin = Spin::prepare(settings, &allowed)?;
                findings.extend_from_slice(spin.weaknesses());
                Maker::Spin(spin)
            }
        };
        Ok(Self { maker, findings })
    }

    const fn kind(&self) -> BlockKind {
        match self.maker {
            Maker::Module(_) => BlockKind::Module,
            Maker::Spin(_) => BlockKind::Spin,
            Maker::Cell(_) => BlockKind::Cell,
        }
    }

    const fn longest(&self) -> Nanos {
        match &self.maker {
            Maker::Module(module) => module.longest(),
            Maker::Spin(_) => spin::LONGEST,
            Maker::Cell(_) => cell::LONGEST,
        }
    }

    fn go(&mut self, settings: &BlockSettings) -> Result<(), Refusal> {
        match &mut self.maker {
            Maker::Module(module) => module.go(settings),
            Maker::Spin(spin) => {
                spin.go();
                Ok(())
            }
            Maker::Cell(cell) => cell.go(settings),
        }
    }

    fn stop(&mut self) {
        match &mut self.maker {
            Maker::Module(module) => module.stop(),
            Maker::Spin(spin) => spin.stop(),
            Maker::Cell(cell) => cell.stop(),
        }
    }

    fn take(&mut self) -> Result<(Vec<BlockSpan>, bool), Refusal> {
        match &mut self.maker {
            Maker::Module(module) => module.take(),
            Maker::Spin(spin) => spin.take(),
            Maker::Cell(cell) => cell.take(),
        }
    }

    fn last_findings(&mut self, stopped: bool, settings: &BlockSettings) -> Vec<Finding> {
        let (mut findings, latest) = match &mut self.maker {
            Maker::Module(module) => (module.findings(stopped), module.latest()),
            Maker::Spin(spin) => (spin.findings(), spin.latest()),
            Maker::Cell(cell) => (cell.findings(), cell.latest()),
        };
        if latest.0 > settings.pause.0 / 2 {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    "times of the blocks",
                    "a block began so late that pauses were shortened",
                )
                .values(
                    format!("{latest} late"),
                    format!("less than half of the pause of {}", settings.pause),
                ),
            );
        }
        findings
    }
}

/// Returns the distribution of the plan's blocks in time.
pub(super) fn spacing(settings: &BlockSettings) -> Spacing {
    Spacing {
        length: settings.length,
        pause: settings.pause,
        random: settings.spread == BlockSpread::Random,
        seed: settings.seed,
    }
}

/// Keeps this thread off the CPUs to be blocked, if there are others.
fn settle(settings: &BlockSettings, allowed: &CpuSet) -> Result<Option<Finding>, Refusal> {
    let others = allowed.difference(&settings.cpus);
    if others.is_empty() {
        return Ok(Some(Finding::new(
            Severity::Note,
            "the blocking program",
            "each of its CPUs is stopped, so it reports blocks late",
        )));
    }
    if others != *allowed {
        scheduling::set_affinity(&others).map_err(|cause| {
            diagnosis::system(
                "the program",
                "it cannot leave the CPUs that it stops",
                &cause,
            )
        })?;
    }
    Ok(None)
}

/// Checks the plan against the limits of its blocker.
fn within(settings: &BlockSettings, longest: Nanos, share: u32) -> Result<(), Refusal> {
    let refuse = |location: &str, what: &str, present: String, needed: String, fix: String| {
        let finding = Finding::new(Severity::Error, location, what).values(present, needed);
        Err(Refusal {
            kind: RefusalKind::BadPlan,
            finding: finding.fix(fix),
        })
    };
    if settings.length > longest {
        return refuse(
            "length",
            "the block is too long: watchdogs and other CPUs would wait for the stopped CPU",
            settings.length.to_string(),
            format!("{longest} or less"),
            "use shorter blocks, or load the module with a higher limit (longest_us=)".to_owned(),
        );
    }
    let present = settings.share_percent();
    if present > share {
        let whole = (u128::from(settings.length.0) * 100).div_ceil(share.max(1).into());
        let pause = Nanos((whole as u64).saturating_sub(settings.length.0));
        return refuse(
            "pause",
            "the blocks would take too large a share of the time",
            format!("{present} %"),
            format!("{share} % or less"),
            format!("use a pause of {pause} or longer"),
        );
    }
    Ok(())
}

/// Returns the plan of the first request if it is valid.
fn plan(line: &[u8]) -> Result<BlockSettings, Refusal> {
    let BlockerRequest::Prepare {
        protocol,
        settings: plan,
    } = REQUESTS.read(line)?
    else {
        return Err(REQUESTS.out_of_turn("prepare"));
    };
    REQUESTS.check_protocol(protocol)?;
    refuse_plan(plan.findings())?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BlockSettings {
        BlockSettings {
            cpus: CpuSet::single(CpuId(1)),
            length: Nanos::from_millis(4),
            count: 50,
            pause: Nanos::from_millis(16),
            spread: BlockSpread::Random,
            seed: 1,
            kind: None,
        }
    }

    #[test]
    fn refusals_of_limits_suggest_an_accepted_value() {
        let limit = |plan: &BlockSettings| within(plan, Nanos::from_millis(100), 50);
        assert!(limit(&sample()).is_ok());
        let long = BlockSettings {
            length: Nanos(100_000_001),
            pause: Nanos::SECOND,
            ..sample()
        };
        assert_eq!(
            limit(&long).expect_err("too long").finding.location,
            "length"
        );
        let dense = BlockSettings {
            pause: Nanos::from_millis(3),
            ..sample()
        };
        let refusal = limit(&dense).expect_err("too much");
        assert_eq!(refusal.kind, RefusalKind::BadPlan);
        assert_eq!(refusal.finding.found.as_deref(), Some("58 %"));
        // The value suggested in the message is accepted.
        let even = BlockSettings {
            pause: Nanos::from_millis(4),
            ..sample()
        };
        assert!(limit(&even).is_ok());
        assert!(
            refusal
                .finding
                .fix
                .is_some_and(|fix| fix.contains(&even.pause.to_string()))
        );
    }

    #[test]
    fn refuses_unreadable_requests_with_the_reason() {
        let reason = |line: &str| plan(line.as_bytes()).expect_err("refused").finding.what;
        assert!(reason("{").starts_with("cannot read"));
        assert_eq!(reason(r#"{"go":{}}"#), "it is out of sequence");
        assert_eq!(
            reason(r#"{"prepare":{"protocol":0,"settings":{"other":1}}}"#),
            "the request has another protocol version"
        );
        let text = serde_json::to_string(&BlockerRequest::Prepare {
            protocol: BLOCKER_PROTOCOL_VERSION,
            settings: BlockSettings {
                count: 0,
                length: Nanos::ZERO,
                ..sample()
            },
        })
        .expect("text");
        assert!(reason(&text).contains("and count"));
    }
}
