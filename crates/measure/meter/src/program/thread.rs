// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measuring thread, from its start to its report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use rampart_model::{
    CpuId, CpuSet, MeterKind, MeterSettings, Nanos, PlacedBy, Refusal, SchedulingPolicy,
    ThreadCounters,
};

use super::findings;
use crate::engine::control_loop::ControlLoop;
use crate::engine::fwq::FixedWork;
use crate::engine::noise::{self, Noise, NoiseTotals};
use crate::engine::wakeup::Wakeup;
use crate::engine::work::calibrate;
use crate::engine::{Clock, ProcessorWatch, Sleep};
use crate::linux::clock::FastClock;
use crate::linux::counter::CounterKind;
use crate::linux::environment::{ByClock, LinuxThread};
use crate::linux::rseq::CurrentCpu;
use crate::linux::scheduling::{self, EffectivePolicy};
use crate::linux::{diagnosis, files, memory_locking, thread_id, usage};
use crate::ring::Producer;
use crate::timescale::Timescale;

/// The end of the warm-up within the thread's samples.
#[derive(Debug)]
pub(super) struct Boundary {
    /// Samples written before the boundary; `u64::MAX` until the boundary is reached.
    pub(super) samples: AtomicU64,
    /// Samples lost before the boundary; valid once the boundary is reached.
    pub(super) lost: AtomicU64,
    /// All samples that ended before this moment, in nanoseconds, have been written. For a thread
    /// that receives its samples late from a cell; `u64::MAX` if samples are written at once.
    pub(super) read_until: AtomicU64,
}

impl Default for Boundary {
    fn default() -> Self {
        Self {
            samples: AtomicU64::new(u64::MAX),
            lost: AtomicU64::new(0),
            read_until: AtomicU64::new(u64::MAX),
        }
    }
}

/// A command to a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Command {
    /// Verify the placement and prepare.
    Verify,
    /// Begin the warm-up at this moment.
    Start(Nanos),
}

/// A report of a thread.
#[derive(Debug)]
pub(super) enum Report {
    /// The thread runs and has placed itself if the plan requires it; its thread id.
    Placed(u32),
    /// The placement is as requested.
    Verified,
    /// The thread cannot carry out the request.
    Refused(Refusal),
    /// The thread has measured.
    Done(Box<Outcome>),
}

/// The effective settings and results of a thread, without its samples.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) policy: SchedulingPolicy,
    pub(super) affinity: CpuSet,
    pub(super) cpus_seen: CpuSet,
    pub(super) migrations: u64,
    pub(super) counters: ThreadCounters,
    /// Length of the warm-up.
    pub(super) warm_up: Nanos,
    /// Length of the measurement.
    pub(super) duration: Nanos,
    pub(super) detail: EngineDetail,
}

/// Results of one kind of meter.
#[derive(Debug, Clone, Copy)]
pub(super) enum EngineDetail {
    Wakeup,
    Noise {
        totals: NoiseTotals,
        threshold: Nanos,
    },
    Fwq {
        turns: u64,
        shortest: Nanos,
        lowered: Nanos,
    },
    Loop {
        turns: u64,
    },
    Irq,
    Mmio,
}

/// The task of a thread and the channels that it needs.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) cpu: CpuId,
    pub(super) settings: Arc<MeterSettings>,
    /// Index among the plan's CPUs, by which aligned starts are spread.
    pub(super) location: usize,
    /// The CPUs that the program may run on.
    pub(super) allowed: CpuSet,
    pub(super) counter: CounterKind,
    pub(super) scale: Timescale,
    pub(super) producer: Producer,
    pub(super) boundary: Arc<Boundary>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) commands: Receiver<Command>,
    pub(super) reports: Sender<(CpuId, Report)>,
}

/// Returns the name of the thread for `cpu`, for its `comm`.
pub(super) fn name(cpu: CpuId) -> String {
    format!("meter/{cpu}")
}

enum Engine {
    Wakeup(Wakeup),
    Noise(Noise),
    Fwq(FixedWork),
    Loop(ControlLoop),
}

impl Assignment {
    /// Runs the thread. It ends without an error if the main thread no longer receives.
    pub(super) fn carry_out(self) {
        let (cpu, reports) = (self.cpu, self.reports.clone());
        if let Err(refusal) = self.measure() {
            // If the receiver is gone, the program is ending.
            let _ = reports.send((cpu, Report::Refused(refusal)));
        }
    }

    fn measure(self) -> Result<(), Refusal> {
        let send = |report| self.reports.send((self.cpu, report)).is_ok();
        if self.settings.placed_by == PlacedBy::Itself {
            self.place_itself()?;
        }
        if !send(Report::Placed(thread_id())) {
            return Ok(());
        }
        let Ok(Command::Verify) = self.commands.recv() else {
            return Ok(());
        };
        self.verify()?;
        let control_groups = files::cpu_groups_of_thread();
        let mut producer = self.producer;
        producer.prefault();
        memory_locking::prefault_stack();
        let mut thread = LinuxThread {
            producer,
            cpu: CurrentCpu::of_this_thread(),
            clock: FastClock::find(),
            stop: &self.stop,
        };
        let checks = Checks {
            cpu: self.cpu,
            settings: &self.settings,
        };
        let prepared = Prepared::new(&self.settings, self.counter, self.scale, &mut thread)?;
        if !send(Report::Verified) {
            return Ok(());
        }
        let Ok(Command::Start(start)) = self.commands.recv() else {
            return Ok(());
        };
        let settings = &*self.settings;
        let offset = if settings.aligned {
            Nanos::ZERO
        } else {
            Nanos(
                (u128::from(settings.interval.0) * self.location as u128
                    / settings.cpus.len().max(1) as u128) as u64,
            )
        };
        let mut run = Running {
            engine: prepared.engine(settings, start + offset),
            watch: ProcessorWatch::default(),
            counter: self.counter,
            scale: self.scale,
        };
        thread.sleep_until(start);
        let warm_up_end = start + settings.warm_up;
        run.run(&mut thread, warm_up_end);
        run.restart();
        let lost = thread.producer.lost();
        self.boundary.lost.store(lost, Ordering::Relaxed);
        let written = thread.producer.written();
        self.boundary.samples.store(written, Ordering::Release);
        let end = warm_up_end + settings.duration;
        let counters = usage::of_this_thread();
        let begun = thread.now();
        let cut_short = self.stop.load(Ordering::Relaxed);
        let totals = run.run(&mut thread, end);
        let ended = thread.now();
        let counters = usage::between(&counters, &usage::of_this_thread());
        let stopped = self.stop.load(Ordering::Relaxed);
        let periodic = settings.meter.is_periodic();
        let (policy, affinity) = checks
            .verify()
            .and_then(|placement| checks.verify_seen(&run.watch).map(|()| placement))
            .and_then(|placement| {
                checks
                    .verify_groups(control_groups.as_deref())
                    .map(|()| placement)
            })
            .map_err(diagnosis::changed)?;
        let outcome = Outcome {
            policy,
            affinity,
            cpus_seen: run.watch.seen().map(CpuId).collect(),
            migrations: run.watch.migrations(),
            counters,
            warm_up: if cut_short {
                begun.min(warm_up_end).saturating_sub(start)
            } else {
                settings.warm_up
            },
            duration: if periodic && !stopped {
                // The last planned moment is up to an interval before the end.
                settings.duration
            } else {
                ended.saturating_sub(begun)
            },
            detail: run.detail(totals),
        };
        send(Report::Done(Box::new(outcome)));
        Ok(())
    }

    fn place_itself(&self) -> Result<(), Refusal> {
        // A deadline thread must be allowed on all CPUs of its root domain (sched(7),
        // sched-deadline.rst 5.1), so it is not bound.
        let deadline = matches!(self.settings.policy, SchedulingPolicy::Deadline { .. });
        let wanted = if deadline {
            self.allowed.clone()
        } else {
            CpuSet::single(self.cpu)
        };
        if let Err(cause) = scheduling::set_affinity(&wanted) {
            let location = format!("thread {}", name(self.cpu));
            return Err(match cause.raw_os_error() {
                Some(libc::EINVAL) => diagnosis::outside(self.cpu, &self.allowed),
                _ => diagnosis::system(&location, "cannot bind it to its CPU", &cause),
            });
        }
        scheduling::set_policy(self.settings.policy)
            .map_err(|cause| diagnosis::policy(self.settings.policy, &cause))
    }

    fn verify(&self) -> Result<(), Refusal> {
        let checks = Checks {
            cpu: self.cpu,
            settings: &self.settings,
        };
        checks.verify().map(|_| ())
    }
}

/// The checks of the placement that is read back from the kernel.
struct Checks<'a> {
    cpu: CpuId,
    settings: &'a MeterSettings,
}

impl Checks<'_> {
    fn verify(&self) -> Result<(SchedulingPolicy, CpuSet), Refusal> {
        let name = name(self.cpu);
        let location = format!("thread {name}");
        let policy = scheduling::policy()
            .map_err(|cause| diagnosis::system(&location, "cannot read its policy", &cause))?;
        if policy != EffectivePolicy::Known(self.settings.policy) {
            let present = policy.to_string();
            return Err(diagnosis::other_policy(
                &name,
                self.settings.policy,
                &present,
            ));
        }
        let affinity = scheduling::affinity()
            .map_err(|cause| diagnosis::system(&location, "cannot read its affinity", &cause))?;
        if affinity != CpuSet::single(self.cpu) && !self.roams() {
            return Err(diagnosis::affinity(&name, self.cpu, &affinity));
        }
        Ok((self.settings.policy, affinity))
    }

    /// Verifies that every sample was taken on the right CPU: an affinity that was changed and
    /// changed back is visible only here.
    fn verify_seen(&self, watch: &ProcessorWatch) -> Result<(), Refusal> {
        let seen: CpuSet = watch.seen().map(CpuId).collect();
        if self.roams() || seen.is_subset(&CpuSet::single(self.cpu)) {
            return Ok(());
        }
        Err(diagnosis::affinity(&name(self.cpu), self.cpu, &seen))
    }

    /// Verifies that the thread is still in the control groups that it was in when it was placed: its
    /// affinity stays the same in another cpuset.
    fn verify_groups(&self, before: Option<&str>) -> Result<(), Refusal> {
        let present = files::cpu_groups_of_thread();
        match (before, present.as_deref()) {
            (Some(before), Some(present)) if before != present => {
                Err(diagnosis::control_group(&name(self.cpu), before, present))
            }
            _ => Ok(()),
        }
    }

    const fn roams(&self) -> bool {
        matches!(self.settings.policy, SchedulingPolicy::Deadline { .. })
    }
}

/// The result of the calibration on the measured CPU.
enum Prepared {
    Wakeup,
    Noise(Noise),
    Fwq(u64),
    Loop(u64),
}

impl Prepared {
    fn new(
        settings: &MeterSettings,
        counter: CounterKind,
        scale: Timescale,
        thread: &mut LinuxThread<'_>,
    ) -> Result<Self, Refusal> {
        Ok(match settings.meter {
            MeterKind::Wakeup => Self::Wakeup,
            MeterKind::Fwq => Self::Fwq(calibrate(thread, settings.work)),
            MeterKind::Loop => Self::Loop(calibrate(thread, settings.work)),
            MeterKind::Noise => {
                let threshold = settings.threshold.unwrap_or_else(|| {
                    let own = match counter {
                        CounterKind::Hardware => noise::own_period(thread, &scale),
                        CounterKind::Clock => noise::own_period(&mut ByClock(thread), &scale),
                    };
                    Nanos((scale.length(own).0 * 3 / 1024).max(200))
                });
                // The fewest ticks that are not shorter than the threshold.
                let ticks = scale.ticks(threshold);
                let short = scale.picos(ticks) < threshold.0.saturating_mul(1000);
                Self::Noise(Noise::new(ticks.saturating_add(u64::from(short))))
            }
            MeterKind::Irq | MeterKind::Mmio => return Err(findings::no_bare_metal(settings)),
        })
    }

    fn engine(self, settings: &MeterSettings, first: Nanos) -> Engine {
        match self {
            Self::Wakeup => Engine::Wakeup(Wakeup::new(first, settings.interval)),
            Self::Noise(noise) => Engine::Noise(noise),
            Self::Fwq(turns) => Engine::Fwq(FixedWork::new(turns)),
            Self::Loop(turns) => Engine::Loop(ControlLoop::new(first, settings.interval, turns)),
        }
    }
}

struct Running {
    engine: Engine,
    watch: ProcessorWatch,
    counter: CounterKind,
    scale: Timescale,
}

impl Running {
    fn run(&mut self, thread: &mut LinuxThread<'_>, until: Nanos) -> NoiseTotals {
        let watch = &mut self.watch;
        match &mut self.engine {
            Engine::Wakeup(wakeup) => wakeup.run(thread, watch, until),
            Engine::Fwq(fixed_work) => fixed_work.run(thread, watch, until),
            Engine::Loop(control_loop) => control_loop.run(thread, watch, until),
            Engine::Noise(noise) => {
                return match self.counter {
                    CounterKind::Hardware => noise.run(thread, watch, &self.scale, until),
                    CounterKind::Clock => {
                        noise.run(&mut ByClock(thread), watch, &self.scale, until)
                    }
                };
            }
        }
        NoiseTotals::default()
    }

    /// Resets the counters at the end of the warm-up.
    fn restart(&mut self) {
        self.watch.restart();
        if let Engine::Fwq(fixed_work) = &mut self.engine {
            fixed_work.restart();
        }
    }

    fn detail(&self, totals: NoiseTotals) -> EngineDetail {
        match &self.engine {
            Engine::Wakeup(_) => EngineDetail::Wakeup,
            Engine::Noise(noise) => EngineDetail::Noise {
                totals,
                threshold: self.scale.length(noise.threshold()),
            },
            Engine::Fwq(fixed_work) => EngineDetail::Fwq {
                turns: fixed_work.turns(),
                shortest: fixed_work.shortest().unwrap_or_default(),
                lowered: fixed_work.lowered(),
            },
            Engine::Loop(control_loop) => EngineDetail::Loop {
                turns: control_loop.turns(),
            },
        }
    }
}
