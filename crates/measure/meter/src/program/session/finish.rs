// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the last event of a measurement: the result of each thread, and findings.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rampart_model::{EffectivePlacement, MeterDetail, MeterEvent, MeterKind, ThreadOutcome};

use super::{Measuring, Session, TIMEOUT};
use crate::linux::{continued, real_time_limits};
use crate::program::collector::Collector;
use crate::program::console::Console;
use crate::program::thread::{EngineDetail, Outcome};
use crate::throttling;
use crate::timescale::Timescale;

impl Session {
    /// Combines all results once every thread has reported.
    pub(super) fn finished(self, console: &mut Console) -> MeterEvent {
        let Self {
            plan,
            threads,
            housekeeping,
            memory_locked,
            clock_source,
            mut findings,
            steal,
            counter_clock,
            scale,
            ..
        } = self;
        let lengths = counter_clock
            .as_ref()
            .map_or(scale, |clock| *clock.lengths());
        let mut outcomes = Vec::with_capacity(threads.len());
        for Measuring {
            mut collector,
            handle,
            outcome,
            ..
        } in threads
        {
            await_end(handle);
            let Some(outcome) = outcome else { continue };
            collector.finish(outcome.duration, console);
            let cpu = collector.cpu();
            let totals = collector.totals();
            let mut warm_up = collector.warm_up();
            warm_up.duration = outcome.warm_up;
            let detail = detail(&outcome, &collector, &lengths);
            let mut counters = outcome.counters;
            counters.steal = steal[1].since(&steal[0], cpu);
            counters.continued = continued::was_continued();
            // `noise` keeps more long gaps than worst samples.
            let long_gaps = collector.long_gaps().to_vec();
            let worst = collector.into_worst();
            if plan.policy.is_real_time() {
                let gaps = match plan.meter {
                    MeterKind::Noise => long_gaps,
                    _ => throttling::gaps(worst.iter().copied()),
                };
                let limits = real_time_limits::of_cpu(cpu);
                findings.extend(throttling::explain(cpu, &gaps, &limits));
            }
            outcomes.push(ThreadOutcome {
                cpu,
                placement: EffectivePlacement {
                    policy: outcome.policy,
                    affinity: outcome.affinity,
                    cpus_seen: outcome.cpus_seen,
                    migrations: outcome.migrations,
                    memory_locked,
                    housekeeping: housekeeping.cpus.clone(),
                    clock_source: clock_source.clone(),
                },
                counters,
                duration: outcome.duration,
                samples: totals.samples,
                missed: totals.missed,
                over_deadline: totals.over_deadline,
                lost: totals.lost,
                worst,
                warm_up,
                detail,
            });
        }
        MeterEvent::Finished {
            threads: outcomes,
            findings,
        }
    }
}

/// Waits for the end of a thread that has reported, because a thread of the next measurement may
/// have the same name. Gives up if the thread does not get its CPU.
fn await_end(handle: JoinHandle<()>) {
    let begin = Instant::now();
    while !handle.is_finished() {
        if begin.elapsed() >= TIMEOUT {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The thread returns no value, and after a panic it has ended too.
    let _ = handle.join();
}

fn detail(outcome: &Outcome, collector: &Collector, lengths: &Timescale) -> MeterDetail {
    let totals = collector.totals();
    match outcome.detail {
        EngineDetail::Wakeup => MeterDetail::Wakeup {},
        EngineDetail::Irq => MeterDetail::Irq {},
        EngineDetail::Mmio => MeterDetail::Mmio {
            accesses: crate::engine::mmio::ACCESSES,
            trapped: crate::cell::TRAPPED_REGISTER.to_owned(),
            mapped: crate::cell::MAPPED_REGISTER.to_owned(),
        },
        EngineDetail::Noise {
            totals: noise,
            threshold,
        } => {
            let undisturbed = noise
                .length
                .saturating_sub(noise.stolen)
                .saturating_sub(noise.recording);
            let turns = noise.turns.saturating_sub(noise.gaps);
            MeterDetail::Noise {
                turns: noise.turns,
                shortest_turn: lengths.length(noise.shortest.unwrap_or(0)),
                mean_turn_picos: lengths.picos(undisturbed).checked_div(turns).unwrap_or(0),
                threshold,
                stolen: lengths.length(noise.stolen),
            }
        }
        EngineDetail::Fwq {
            turns,
            shortest,
            lowered,
        } => MeterDetail::Fwq {
            turns,
            shortest,
            lowered,
        },
        EngineDetail::Loop { turns } => MeterDetail::Loop {
            turns,
            deadline: collector.deadline(),
            deadlines_missed: totals.over_deadline,
            worst_early: totals.worst_early,
            worst_late: totals.worst_late,
            worst_start: totals.worst_start,
        },
    }
}
