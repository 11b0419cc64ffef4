// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks by a thread on each CPU that has the highest real-time priority and reads the clock until
//! the block is over. The weaker kind: it needs no module, and blocks ordinary and real-time
//! threads, but neither interrupts nor threads of higher precedence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rampart_model::{
    BlockSettings, BlockSpan, CpuId, CpuSet, Finding, Nanos, Refusal, RefusalKind,
    SchedulingPolicy, Severity,
};

use super::spacing;
use crate::engine::schedule::Schedule;
use crate::linux::clock::{self, FastClock};
use crate::linux::rseq::CurrentCpu;
use crate::linux::scheduling::{self, EffectivePolicy};
use crate::linux::{diagnosis, memory_locking, real_time_limits, thread_id, wake};

/// The longest block: the module's default.
pub(super) const LONGEST: Nanos = Nanos::from_millis(100);
/// The largest share of time, in percent: the module's default. It is also below the kernel's limit
/// for real-time threads.
pub(super) const SHARE: u32 = 50;

/// Only deadline threads and the kernel's stopper threads have higher precedence.
const POLICY: SchedulingPolicy = SchedulingPolicy::Fifo(99);
/// Time from the request to the first pause.
const LEAD: Nanos = Nanos::from_millis(1);
/// A longer time between two reads of the clock was taken from the thread.
const GAP: Nanos = Nanos::from_micros(50);
/// How long the placement of a thread may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const STACK: usize = 128 * 1024;

enum Report {
    Placed(u32),
    Refused(Refusal),
    Made { span: BlockSpan, gap: Nanos },
    Done { latest: Nanos },
}

struct Thread {
    id: u32,
    /// Dropping it prevents the start.
    begin: Option<Sender<Nanos>>,
    done: bool,
}

/// The threads, from [`Spin::prepare`] to their end.
pub(super) struct Spin {
    threads: Vec<Thread>,
    reports: Receiver<Report>,
    stop: Arc<AtomicBool>,
    findings: Vec<Finding>,
    length: Nanos,
    worst_gap: Nanos,
    on_other_cpus: u64,
    cpus: CpuSet,
    latest: Nanos,
}

impl Spin {
    /// Starts the threads and waits until all are placed.
    pub(super) fn prepare(settings: &BlockSettings, allowed: &CpuSet) -> Result<Self, Refusal> {
        wake::prepare();
        let (sender, reports) = channel();
        let mut spin = Self {
            threads: Vec::new(),
            reports,
            stop: Arc::default(),
            findings: weaknesses(settings),
            length: settings.length,
            worst_gap: Nanos::ZERO,
            on_other_cpus: 0,
            cpus: settings.cpus.clone(),
            latest: Nanos::ZERO,
        };
        for cpu in settings.cpus.iter() {
            let (begin, begins) = channel();
            let worker = Worker {
                cpu,
                settings: settings.clone(),
                allowed: allowed.clone(),
                begin: begins,
                reports: sender.clone(),
                stop: Arc::clone(&spin.stop),
            };
            std::thread::Builder::new()
                .name(name(cpu))
                .stack_size(STACK)
                .spawn(move || worker.run())
                .map_err(|cause| {
                    diagnosis::system(&format!("thread {}", name(cpu)), "cannot start it", &cause)
                })?;
            spin.threads.push(Thread {
                id: spin.placed()?,
                begin: Some(begin),
                done: false,
            });
        }
        if let Err(cause) = memory_locking::lock() {
            let finding = diagnosis::memory_not_locked(&cause).finding;
            spin.findings.push(Finding {
                severity: Severity::Note,
                ..finding
            });
        }
        Ok(spin)
    }

    fn placed(&self) -> Result<u32, Refusal> {
        match self.reports.recv_timeout(TIMEOUT) {
            Ok(Report::Placed(id)) => Ok(id),
            Ok(Report::Refused(refusal)) => Err(refusal),
            Ok(Report::Made { .. } | Report::Done { .. }) | Err(RecvTimeoutError::Disconnected) => {
                Err(silent("it ended before it began"))
            }
            Err(RecvTimeoutError::Timeout) => Err(silent(
                "it does not answer: a thread of the same priority occupies its CPU",
            )),
        }
    }

    /// Returns findings about the limitations of this kind.
    pub(super) fn weaknesses(&self) -> &[Finding] {
        &self.findings
    }

    /// Starts the blocks.
    pub(super) fn go(&mut self) {
        let base = clock::monotonic() + LEAD;
        for thread in &mut self.threads {
            // A thread that has ended is reported by its report.
            if let Some(begin) = &thread.begin {
                let _ = begin.send(base);
            }
        }
    }

    /// Stops making blocks. Repeat it to wake threads that have just gone to sleep.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.iter_mut().filter(|thread| !thread.done) {
            thread.begin = None;
            wake::wake(thread.id);
        }
    }

    /// Returns the blocks since the last call, and whether they were the last.
    pub(super) fn take(&mut self) -> Result<(Vec<BlockSpan>, bool), Refusal> {
        let mut spans = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Made { span, gap } => {
                    self.worst_gap = self.worst_gap.max(gap);
                    self.on_other_cpus += u64::from(!self.cpus.contains(span.cpu));
                    spans.push(span);
                }
                Report::Done { latest } => {
                    self.latest = self.latest.max(latest);
                    // Any unfinished thread will do: all have to finish.
                    if let Some(thread) = self.threads.iter_mut().find(|thread| !thread.done) {
                        thread.done = true;
                    }
                }
                Report::Refused(refusal) => return Err(refusal),
                Report::Placed(_) => {}
            }
        }
        let ended = self.threads.iter().all(|thread| thread.done);
        Ok((spans, ended))
    }

    /// Returns the largest lateness of a block.
    pub(super) const fn latest(&self) -> Nanos {
        self.latest
    }

    /// Returns the findings at the end.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.worst_gap.0 > self.length.0 / 10 {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    "blocks by a spinning thread",
                    "some blocks had gaps: the thread lost its CPU, or was interrupted, during a block",
                )
                .values(
                    format!("a gap of {} in blocks of {}", self.worst_gap, self.length),
                    "no gap",
                )
                .fix("load the kernel module blocksys"),
            );
        }
        if self.on_other_cpus > 0 {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    "blocks by a spinning thread",
                    "some blocks were on another CPU: another program changed the thread's affinity",
                )
                .values(self.on_other_cpus.to_string(), "0"),
            );
        }
        findings
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // The threads are not joined; they end with the program.
        self.stop();
    }
}

fn name(cpu: CpuId) -> String {
    format!("block/{cpu}")
}

fn silent(what: &str) -> Refusal {
    Refusal {
        kind: RefusalKind::System,
        finding: Finding::new(Severity::Error, "a blocking thread", what)
            .fix("ps -eLo pid,tid,class,rtprio,psr,comm --sort=-rtprio"),
    }
}

/// Returns the limitations of such a thread in general and on this machine.
fn weaknesses(settings: &BlockSettings) -> Vec<Finding> {
    let mut findings = vec![
        Finding::new(
            Severity::Warning,
            "blocks by a spinning thread",
            "interrupts, deadline threads and the kernel's stopper threads still run during a block, so it shows only its effect on other threads",
        )
        .fix("load the kernel module blocksys, which disables interrupts and preemption"),
    ];
    for cpu in settings.cpus.iter().take(1) {
        for limit in real_time_limits::of_cpu(cpu) {
            // The kernel counts over its period; longer or too many blocks reach the limit.
            let allowed = limit.period.saturating_sub(limit.taken);
            let wanted = u128::from(limit.period.0) * u128::from(settings.share_percent()) / 100;
            if settings.length >= allowed || wanted >= u128::from(allowed.0) {
                findings.push(
                    Finding::new(
                        Severity::Warning,
                        limit.location,
                        format!(
                            "{} may interrupt blocks: ordinary threads get a share of the CPU",
                            limit.name
                        ),
                    )
                    .values(limit.present, "more than the blocks take")
                    .fix(limit.fix),
                );
            }
        }
    }
    findings
}

struct Worker {
    cpu: CpuId,
    settings: BlockSettings,
    allowed: CpuSet,
    begin: Receiver<Nanos>,
    reports: Sender<Report>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Runs the thread. Reports without a receiver are dropped.
    fn run(self) {
        if let Err(refusal) = self.place() {
            let _ = self.reports.send(Report::Refused(refusal));
            return;
        }
        let _ = self.reports.send(Report::Placed(thread_id()));
        let latest = match self.begin.recv() {
            Ok(base) => self.block(base),
            Err(_) => Nanos::ZERO,
        };
        let _ = self.reports.send(Report::Done { latest });
    }

    fn place(&self) -> Result<(), Refusal> {
        let location = format!("thread {}", name(self.cpu));
        let wanted = CpuSet::single(self.cpu);
        scheduling::set_affinity(&wanted).map_err(|cause| match cause.raw_os_error() {
            Some(libc::EINVAL) => diagnosis::outside(self.cpu, &self.allowed),
            _ => diagnosis::system(&location, "cannot bind it to its CPU", &cause),
        })?;
        scheduling::set_policy(POLICY).map_err(|cause| diagnosis::policy(POLICY, &cause))?;
        let unreadable = |cause| diagnosis::system(&location, "cannot read its placement", &cause);
        let present = scheduling::affinity().map_err(unreadable)?;
        if present != wanted {
            return Err(diagnosis::affinity(&name(self.cpu), self.cpu, &present));
        }
        let policy = scheduling::policy().map_err(unreadable)?;
        if policy != EffectivePolicy::Known(POLICY) {
            let present = policy.to_string();
            return Err(diagnosis::other_policy(&name(self.cpu), POLICY, &present));
        }
        memory_locking::prefault_stack();
        Ok(())
    }

    /// Makes the blocks and returns the largest lateness.
    fn block(&self, base: Nanos) -> Nanos {
        let clock = FastClock::find();
        let here = CurrentCpu::of_this_thread();
        let mut schedule = Schedule::new(spacing(&self.settings), base);
        let mut latest = Nanos::ZERO;
        for sequence in 0..self.settings.count {
            // A signal interrupts the sleep only to check the stop request.
            while !clock::sleep_until(schedule.next()) && !self.stopping() {}
            if self.stopping() {
                break;
            }
            let start = clock.now();
            let end = start + self.settings.length;
            let (mut now, mut gap) = (start, Nanos::ZERO);
            while now < end && !self.stopping() {
                let before = now;
                now = clock.now();
                gap = gap.max(now.saturating_sub(before));
            }
            latest = latest.max(schedule.lateness(start));
            let span = BlockSpan {
                cpu: CpuId(here.get()),
                sequence,
                start,
                end: now,
            };
            let gap = if gap > GAP { gap } else { Nanos::ZERO };
            if self.reports.send(Report::Made { span, gap }).is_err() {
                break;
            }
            schedule.advance(now);
        }
        latest
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
