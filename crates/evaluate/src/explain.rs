// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What caused the worst samples of a run, from the kernel's own trace of its CPUs.

use std::cmp::Reverse;

use rampart_host::{StateDirectory, Trace, TracedSample, Tracing};
use rampart_model::{
    CpuSet, DomainKind, ExplainedWorst, Finding, MeterDetail, MeterPlan, Nanos, Severity,
    ThreadOutcome,
};

/// How many of the worst samples are explained.
const EXPLAINED: usize = 10;

/// A trace beside a run, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct Explaining {
    tracing: Option<Tracing>,
    findings: Vec<Finding>,
}

impl Explaining {
    /// Begins to trace if it is wanted. To be called before the domain is started, since it
    /// disturbs all CPUs.
    pub(crate) fn start(
        wanted: bool,
        kind: DomainKind,
        plan: &MeterPlan,
        housekeeping: &CpuSet,
    ) -> Self {
        let none = |finding| Self {
            tracing: None,
            findings: vec![finding],
        };
        if !wanted {
            return Self {
                tracing: None,
                findings: Vec::new(),
            };
        }
        if kind == DomainKind::Vm {
            // Its samples are on another clock, and its kernel is another one.
            return none(
                Finding::new(
                    Severity::Warning,
                    "explanation of the worst samples",
                    "the trace tells of the host's kernel alone, and a guest's samples are on the clock of its own",
                )
                .mend("measure the domain `host` on the same CPUs with --explain"),
            );
        }
        match Tracing::start(&StateDirectory::standard(), &plan.cpus, housekeeping) {
            Ok(tracing) => Self {
                tracing: Some(tracing),
                findings: Vec::new(),
            },
            Err(error) => none(Finding::new(
                Severity::Warning,
                "explanation of the worst samples",
                format!("the kernel cannot be traced, so causes are not named: {error}"),
            )),
        }
    }

    /// Ends the trace and explains the worst samples of `threads`, worst first, with what has to be
    /// known about the explanations. To be called when the domain is down.
    pub(crate) fn finish(
        self,
        plan: &MeterPlan,
        threads: &[ThreadOutcome],
    ) -> (Vec<ExplainedWorst>, Vec<Finding>) {
        let mut findings = self.findings;
        let Some(tracing) = self.tracing else {
            return (Vec::new(), findings);
        };
        match tracing.finish() {
            Ok(trace) => {
                findings.push(cost(&trace));
                findings.extend(trace.findings.iter().cloned());
                let explained = worst(plan, threads)
                    .iter()
                    .map(|sample| trace.explain(sample))
                    .collect();
                (explained, findings)
            }
            Err(error) => {
                findings.push(
                    Finding::new(
                        Severity::Warning,
                        "explanation of the worst samples",
                        error.to_string(),
                    )
                    .mend("rampart release"),
                );
                (Vec::new(), findings)
            }
        }
    }
}

fn cost(trace: &Trace) -> Finding {
    Finding::new(
        Severity::Note,
        "explanation of the worst samples",
        format!(
            "the kernel traced the measured CPUs meanwhile ({}), which makes each interrupt and each switch of threads a little longer",
            trace.source
        ),
    )
}

/// The worst samples of all threads, each with the stretch of time that it tells of.
fn worst(plan: &MeterPlan, threads: &[ThreadOutcome]) -> Vec<TracedSample> {
    let mut samples: Vec<TracedSample> = threads
        .iter()
        .flat_map(|thread| {
            let (more, work) = match thread.detail {
                MeterDetail::Wakeup {} | MeterDetail::Noise { .. } => (Nanos::ZERO, Nanos::ZERO),
                // The sample is what a quantum took longer than the shortest.
                MeterDetail::Fwq { shortest, .. } => (shortest, shortest),
                MeterDetail::Loop { .. } => (Nanos::ZERO, plan.work),
            };
            thread.worst.iter().map(move |event| TracedSample {
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
    use super::*;

    #[test]
    fn a_guest_is_told_why_it_is_not_explained() {
        let none = CpuSet::new();
        let plan = MeterPlan::new(rampart_model::MeterKind::Wakeup, none.clone());
        let explaining = Explaining::start(true, DomainKind::Vm, &plan, &none);
        let (explained, findings) = explaining.finish(&plan, &[]);
        assert!(explained.is_empty());
        assert!(findings[0].what.contains("guest"), "{findings:?}");
    }
}
