// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explains the worst samples of a run from a kernel trace of its CPUs.
//!
//! For a guest, the host is traced. The trace shows what preempted the thread of the virtual CPU.
//! It does not show the activity of the guest's kernel.

use std::cmp::Reverse;

use rampart_host::{KernelTrace, Measurer, StateDirectory, TracedSample, Tracing};
use rampart_model::{
    Cause, CauseKind, CpuId, CpuSet, DomainKind, ExplainedWorst, Finding, GuestReport,
    GuestThreadRole, MeterDetail, MeterSettings, Nanos, Severity, ThreadOutcome,
};

use crate::transfer::windows::Clock;

/// Number of worst samples to explain.
const EXPLAINED: usize = 10;

const PLACE: &str = "explanation of the worst samples";

/// The cause of a sample that is too short for the uncertainty between the clocks of guest and
/// host.
const TOO_SHORT: &str = "shorter than the uncertainty of the clocks of guest and host";

/// A trace during a run, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct Explaining {
    kind: DomainKind,
    tracing: Option<Tracing>,
    findings: Vec<Finding>,
}

impl Explaining {
    /// Starts the trace if `wanted`. Call this before the domain starts, since it disturbs all
    /// CPUs.
    pub(crate) fn start(
        wanted: bool,
        kind: DomainKind,
        settings: &MeterSettings,
        housekeeping: &CpuSet,
    ) -> Self {
        let (tracing, findings) = match wanted {
            true => begin(settings, housekeeping),
            false => (None, Vec::new()),
        };
        Self {
            kind,
            tracing,
            findings,
        }
    }

    /// Ends the trace and explains the worst samples of `threads`, worst first. Also returns
    /// findings about the explanations. `guest` is the guest that measured them, if any. Call this
    /// after the domain has ended.
    pub(crate) fn finish(
        self,
        settings: &MeterSettings,
        threads: &[ThreadOutcome],
        guest: Option<&GuestReport>,
    ) -> (Vec<ExplainedWorst>, Vec<Finding>) {
        let mut findings = self.findings;
        let Some(tracing) = self.tracing else {
            return (Vec::new(), findings);
        };
        match tracing.finish() {
            Ok(trace) => {
                findings.push(cost(&trace));
                findings.extend(trace.findings.iter().cloned());
                let worst = worst(settings, threads);
                let explained = match (self.kind.is_above_host(), guest) {
                    (true, Some(guest)) => {
                        findings.push(from_outside(guest));
                        let view = HostView {
                            trace: &trace,
                            guest,
                        };
                        worst.iter().filter_map(|one| view.explain(one)).collect()
                    }
                    // A guest that did not start has no samples.
                    (true, None) => Vec::new(),
                    _ => worst.iter().map(|sample| trace.explain(sample)).collect(),
                };
                findings.extend(remedies(&explained));
                (explained, findings)
            }
            Err(error) => {
                findings.push(
                    Finding::new(Severity::Warning, PLACE, error.to_string())
                        .fix("rampart release"),
                );
                (Vec::new(), findings)
            }
        }
    }
}

/// Starts the trace. Returns the reason as a finding if it cannot start.
fn begin(settings: &MeterSettings, housekeeping: &CpuSet) -> (Option<Tracing>, Vec<Finding>) {
    match Tracing::start(&StateDirectory::standard(), &settings.cpus, housekeeping) {
        Ok(tracing) => (Some(tracing), Vec::new()),
        Err(error) => {
            let finding = Finding::new(
                Severity::Warning,
                PLACE,
                format!("the kernel cannot be traced, so causes are not named: {error}"),
            );
            (None, vec![finding])
        }
    }
}

/// A guest as its host sees it.
struct HostView<'a> {
    trace: &'a KernelTrace,
    guest: &'a GuestReport,
}

impl HostView<'_> {
    /// Returns the causes of a guest's sample that the host's trace shows, with all times on the
    /// guest's clock. Returns `None` if no thread runs a virtual CPU on that CPU of the host.
    fn explain(&self, sample: &TracedSample) -> Option<ExplainedWorst> {
        let thread = thread_behind(self.guest, sample.cpu)?;
        let clock = Clock(&self.guest.clock);
        let mut on_host = *sample;
        on_host.measurer = Measurer::VirtualCpu(thread);
        on_host.event.at = clock.outside(sample.event.at);
        let mut explained = self.trace.explain(&on_host);
        explained.event = sample.event;
        for cause in &mut explained.causes {
            cause.start = clock.inside(cause.start);
        }
        if is_too_short(sample, clock.uncertainty()) {
            let disturbed = sample.window.saturating_sub(sample.work);
            explained.unexplained = disturbed;
            explained.causes.truncate(1);
            for cause in &mut explained.causes {
                cause.kind = CauseKind::Unseen;
                cause.name = TOO_SHORT.to_owned();
                cause.start = sample.event.at.saturating_sub(sample.window);
                cause.duration = disturbed;
            }
        }
        Some(explained)
    }
}

/// Returns whether the clock uncertainty is more than half of the sample.
fn is_too_short(sample: &TracedSample, uncertainty: Nanos) -> bool {
    sample.window.0 < uncertainty.0.saturating_mul(2)
}

/// Returns the host's thread that runs the virtual CPU on this CPU of the host.
fn thread_behind(guest: &GuestReport, cpu: CpuId) -> Option<u32> {
    let number = guest.pinned.iter().rposition(|bound| *bound == Some(cpu))?;
    let number = GuestThreadRole::VirtualCpu(u32::try_from(number).ok()?);
    let mut threads = guest.threads.iter();
    Some(threads.find(|thread| thread.role == number)?.thread)
}

/// Returns a note on the limits of explanations of a guest's samples.
fn from_outside(guest: &GuestReport) -> Finding {
    let uncertainty = Clock(&guest.clock).uncertainty();
    Finding::new(
        Severity::Note,
        PLACE,
        format!(
            "the trace is that of the guest's host: it names what took the CPU from the thread of the virtual CPU, and does not see the guest's own kernel. The offset of the clocks is known to ±{uncertainty}, and no sample shorter than twice that is explained"
        ),
    )
}

/// Shortest idle time within a sample that points to an idle state: PREEMPT_RT on hardware leaves a shallow one in less.
const DEEP: Nanos = Nanos::from_micros(20);

/// Returns a note with a fix for each kind of cause whose name alone does not say what to do. Limits of real-time
/// threads have a finding of the meter.
fn remedies(explained: &[ExplainedWorst]) -> Vec<Finding> {
    let longest = |is: fn(&Cause) -> bool| {
        let causes = explained.iter().flat_map(|one| &one.causes);
        causes
            .filter(|cause| is(cause))
            .map(|cause| cause.duration)
            .max()
    };
    let note = |what: String, fix: &str| Finding::new(Severity::Note, PLACE, what).fix(fix);
    let stopped =
        longest(|cause| cause.kind == CauseKind::Thread && cause.name.starts_with("migration/"));
    let idle = longest(|cause| {
        cause.kind == CauseKind::Unseen && cause.name == "idle" && cause.duration >= DEEP
    });
    [
        stopped.map(|time| {
            note(
                format!(
                    "migration/* ran for up to {time}: the kernel stopped all CPUs (stop_machine) to change its code, or moved a thread"
                ),
                "before real-time work begins: load all modules, start and stop tracing, take CPUs offline",
            )
        }),
        idle.map(|time| {
            note(
                format!(
                    "the CPU was idle for up to {time} of a sample: it left an idle state late, or firmware or a hypervisor had it"
                ),
                "rampart check shows the idle states that are allowed, and how to limit them (idle-states)",
            )
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cost(trace: &KernelTrace) -> Finding {
    Finding::new(
        Severity::Note,
        PLACE,
        format!(
            "the kernel traced the measured CPUs meanwhile ({}), which makes each interrupt and each switch of threads a little longer",
            trace.source
        ),
    )
}

/// Returns the worst samples of all threads, each with the time window that it covers.
fn worst(settings: &MeterSettings, threads: &[ThreadOutcome]) -> Vec<TracedSample> {
    let mut samples: Vec<TracedSample> = threads
        .iter()
        .flat_map(|thread| {
            let (more, work) = match thread.detail {
                MeterDetail::Wakeup {}
                | MeterDetail::Noise { .. }
                | MeterDetail::Irq {}
                | MeterDetail::Mmio { .. } => (Nanos::ZERO, Nanos::ZERO),
                // The sample is the excess of a quantum over the shortest one.
                MeterDetail::Fwq { shortest, .. } => (shortest, shortest),
                MeterDetail::Loop { .. } => (Nanos::ZERO, settings.work),
            };
            thread.worst.iter().map(move |event| TracedSample {
                measurer: Measurer::Meter,
                cpu: thread.cpu,
                event: *event,
                window: event.value + more,
                work,
            })
        })
        .collect();
    samples.sort_by_key(|sample| (Reverse(sample.event.value), sample.event.at));
    samples.truncate(EXPLAINED);
    samples
}

#[cfg(test)]
mod tests {
    use rampart_host::{Source, TraceInterval};
    use rampart_model::{
        Accelerator, ClockRelation, GuestThread, SchedulingPolicy, SignedNanos, WorstEvent,
    };

    use super::*;

    fn guest(uncertainty: Nanos) -> GuestReport {
        let thread = |thread, role, cpu| GuestThread {
            name: String::new(),
            thread,
            role,
            cpus: CpuSet::single(CpuId(cpu)),
            policy: SchedulingPolicy::Fifo(1),
        };
        let relation = |at| ClockRelation {
            at: Nanos::from_secs(at),
            // The guest's clock is 90 s behind.
            offset: SignedNanos(-90_000_000_000),
            uncertainty,
            exchanges: 3,
        };
        GuestReport {
            accelerator: Accelerator::Kvm,
            program: String::new(),
            command: Vec::new(),
            kernel: String::new(),
            kernel_command_line: String::new(),
            memory_bytes: 0,
            page_bytes: 4096,
            locked_bytes: 0,
            // Two virtual CPUs share one CPU of the host; the second is the real-time one.
            pinned: vec![Some(CpuId(1)), Some(CpuId(1))],
            threads: vec![
                thread(8, GuestThreadRole::Other, 1),
                thread(9, GuestThreadRole::VirtualCpu(1), 1),
                thread(7, GuestThreadRole::VirtualCpu(0), 1),
            ],
            knobs: Vec::new(),
            boot_time: Nanos::SECOND,
            clock: vec![relation(100), relation(120)],
            findings: Vec::new(),
        }
    }

    /// Explains a sample: a planted thread ran on the host's CPU from 110.1 to 110.3 s.
    fn explained(guest: &GuestReport) -> ExplainedWorst {
        let interval = |name: &str, start, end| TraceInterval {
            kind: CauseKind::Thread,
            name: name.into(),
            start: Nanos::from_millis(start),
            end: Nanos::from_millis(end),
        };
        let intervals = vec![
            interval("CPU 1/KVM:9", 109_000, 110_100),
            interval("planted:5", 110_100, 110_300),
            interval("CPU 1/KVM:9", 110_300, 111_000),
        ];
        let trace = KernelTrace::known(Source::Osnoise, [(CpuId(1), intervals)].into());
        let window = Nanos::from_millis(210);
        let sample = TracedSample {
            measurer: Measurer::Meter,
            cpu: CpuId(1),
            event: WorstEvent {
                at: Nanos::from_millis(20_305),
                value: window,
                sequence: 3,
            },
            window,
            work: Nanos::ZERO,
        };
        let view = HostView {
            trace: &trace,
            guest,
        };
        view.explain(&sample).expect("its thread is known")
    }

    #[test]
    fn reports_the_preempting_thread_on_the_guests_clock() {
        let result = explained(&guest(Nanos::from_millis(1)));
        assert_eq!(result.event.at, Nanos::from_millis(20_305));
        let [cause] = &result.causes[..] else {
            panic!("{result:?}");
        };
        assert_eq!((cause.kind, &*cause.name), (CauseKind::Thread, "planted:5"));
        assert_eq!(cause.start, Nanos::from_millis(20_100));
        assert_eq!(cause.duration, Nanos::from_millis(200));
        assert_eq!(result.unexplained, Nanos::from_millis(10));
    }

    #[test]
    fn does_not_explain_samples_within_the_clock_uncertainty() {
        let result = explained(&guest(Nanos::from_millis(106)));
        let [cause] = &result.causes[..] else {
            panic!("{result:?}");
        };
        assert_eq!((cause.kind, &*cause.name), (CauseKind::Unseen, TOO_SHORT));
        assert_eq!(result.unexplained, Nanos::from_millis(210));
    }

    #[test]
    fn finds_the_thread_of_a_virtual_cpu_only_on_its_own_cpu() {
        assert_eq!(thread_behind(&guest(Nanos::ZERO), CpuId(1)), Some(9));
        assert_eq!(thread_behind(&guest(Nanos::ZERO), CpuId(2)), None);
        let finding = from_outside(&guest(Nanos::from_millis(3)));
        assert!(finding.what.contains("±3 ms"), "{}", finding.what);
    }

    #[test]
    fn names_that_do_not_say_what_to_do_have_a_fix() {
        let of = |kind, name: &str, micros| ExplainedWorst {
            cpu: CpuId(1),
            event: WorstEvent {
                at: Nanos::SECOND,
                value: Nanos::from_millis(1),
                sequence: 0,
            },
            causes: vec![Cause {
                kind,
                name: name.to_owned(),
                start: Nanos::ZERO,
                duration: Nanos::from_micros(micros),
            }],
            unexplained: Nanos::ZERO,
        };
        for (kind, name, micros, expected) in [
            (
                CauseKind::Thread,
                "migration/1:23",
                90,
                Some("stop_machine"),
            ),
            (CauseKind::Unseen, "idle", 90, Some("idle state")),
            (CauseKind::Unseen, "idle", 5, None),
            (CauseKind::Thread, "loop:99", 90, None),
        ] {
            let found = remedies(&[of(kind, name, micros)]);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{name}");
            for finding in found {
                assert!(finding.what.contains(expected.unwrap_or_default()));
                assert!(finding.what.contains("90 µs"), "{}", finding.what);
            }
        }
    }
}
