// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts from a crash of the host: which domains survived. Pure.

use rampart_model::{
    Condition, CrashRecord, CrashWitness, DomainKernel, DomainKind, EvaluationSettings, Exposure,
    MeterKind, Nanos, Question, RecordedAfter, SignPath, Verdict, VerdictFigures, VerdictOutcome,
    plural,
};

/// Judges for each domain whether it survived the crash.
///
/// A domain holds if its last sign of life came after the crash by more than the uncertainty of its
/// clock and of the interval between signs. It fails if no such sign came although it would have been
/// seen (on a channel of its own), or if it cannot run without the host's kernel. The verdict is
/// inconclusive if the crash was not confirmed, if the domain was silent before the crash, or if its
/// signs leave through the host.
pub(crate) fn judge_crash(settings: &EvaluationSettings, crash: &CrashRecord) -> Vec<Verdict> {
    crash
        .witnesses
        .iter()
        .map(|witness| {
            let domain = settings
                .domains
                .iter()
                .find(|domain| domain.name == witness.domain);
            judge(crash, witness, domain.map(|domain| domain.selection.kind))
        })
        .collect()
}

/// Returns why a domain of this kind cannot survive a crash of the host, or `None` if it can.
fn bound_to_the_host(kind: DomainKind) -> Option<&'static str> {
    match kind.kernel() {
        DomainKernel::Host => Some("it runs on the host's kernel"),
        DomainKernel::AboveHost => Some("its virtual CPUs are threads of the host's kernel"),
        DomainKernel::Apart => None,
    }
}

/// Formats `. Its records of that time: 95 samples, without a gap and none lost`.
fn recorded(after: RecordedAfter) -> String {
    let gap = if after.without_gap {
        "without a gap"
    } else {
        "with gaps between them"
    };
    let lost = match after.lost {
        0 => "none lost".to_owned(),
        lost => format!("{lost} lost"),
    };
    let samples = plural(after.samples, "sample");
    format!(". Its records of that time: {samples}, {gap} and {lost}")
}

fn judge(crash: &CrashRecord, witness: &CrashWitness, kind: Option<DomainKind>) -> Verdict {
    let uncertainty = witness.uncertainty;
    let observed = crash.observed;
    let margin = i64::try_from(uncertainty.0).unwrap_or(i64::MAX);
    let bound = kind.and_then(bound_to_the_host);
    let (outcome, statement) = match (&crash.confirmed, witness.lived) {
        (None, _) => (
            VerdictOutcome::Inconclusive,
            "the crash of the host was not confirmed".to_owned(),
        ),
        (_, None) => (
            VerdictOutcome::Inconclusive,
            match witness.invalid.first() {
                Some(reason) => format!("no data: {reason}"),
                None => "no data".to_owned(),
            },
        ),
        (Some(_), Some(lived)) if lived.0 > margin => (
            VerdictOutcome::Holds,
            format!(
                "it survived: it measured for at least {} after the crash (uncertainty {uncertainty}, observed for {observed}){}",
                Nanos(lived.0.unsigned_abs()),
                witness.after.map(recorded).unwrap_or_default(),
            ),
        ),
        (Some(_), Some(lived)) if lived.0 < -margin => (
            VerdictOutcome::Inconclusive,
            format!(
                "it was silent from {} before the crash",
                Nanos(lived.0.unsigned_abs())
            ),
        ),
        (Some(by), Some(_)) => match (witness.signs, bound) {
            (SignPath::OwnChannel | SignPath::Memory, _) => (
                VerdictOutcome::Fails,
                format!(
                    "it did not survive: no sign of life later than {uncertainty} after the crash within {observed} ({by})"
                ),
            ),
            (SignPath::ThroughHost, Some(bound)) => (
                VerdictOutcome::Fails,
                format!(
                    "it did not survive: {bound}. No sign of life after the crash within {observed} ({by}), but its signs leave through the host"
                ),
            ),
            (SignPath::ThroughHost, None) => (
                VerdictOutcome::Inconclusive,
                format!(
                    "no sign of life after the crash within {observed} ({by}), but its signs leave through the host"
                ),
            ),
        },
    };
    Verdict {
        id: Question::Crash.id(&witness.domain, MeterKind::Wakeup, &"crash:host"),
        question: Question::Crash,
        domain: witness.domain.clone(),
        meter: MeterKind::Wakeup,
        condition: Condition::IDLE,
        disturbance: None,
        outcome,
        statement,
        figures: witness.lived.map(|lived| VerdictFigures::Crash {
            lived,
            uncertainty,
            observed: crash.observed,
        }),
        exposure: Exposure {
            duration: crash.observed,
            runs: 1,
            ..Exposure::default()
        },
        records: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Finding, Severity, SignedNanos};

    fn verdict(
        lived: Option<i64>,
        confirmed: bool,
        signs: SignPath,
        kind: DomainKind,
    ) -> (VerdictOutcome, String) {
        let witness = CrashWitness {
            domain: "one".to_owned(),
            last_sample: None,
            lived: lived.map(SignedNanos),
            uncertainty: Nanos::from_millis(100),
            signs,
            memory: None,
            after: None,
            invalid: vec![Finding::new(Severity::Error, "one", "it never spoke")],
        };
        let crash = CrashRecord {
            how: "sysrq c".to_owned(),
            at: Nanos::SECOND,
            confirmed: confirmed.then(|| "a panic was seen".to_owned()),
            observed: Nanos::from_secs(10),
            witnesses: Vec::new(),
        };
        let verdict = judge(&crash, &witness, Some(kind));
        (verdict.outcome, verdict.statement)
    }

    #[test]
    fn survival_holds_and_silence_fails() {
        let millis = 1_000_000;
        let outcome =
            |lived, confirmed| verdict(lived, confirmed, SignPath::OwnChannel, DomainKind::Cell).0;
        assert_eq!(outcome(Some(5000 * millis), true), VerdictOutcome::Holds);
        assert_eq!(outcome(Some(50 * millis), true), VerdictOutcome::Fails);
        assert_eq!(outcome(Some(-80 * millis), true), VerdictOutcome::Fails);
        for (lived, confirmed) in [
            (Some(5000 * millis), false),
            (Some(-3000 * millis), true),
            (None, true),
        ] {
            assert_eq!(outcome(lived, confirmed), VerdictOutcome::Inconclusive);
        }
    }

    /// Silence proves nothing if the signs leave through the host, unless the kind cannot survive.
    #[test]
    fn silence_through_the_host_proves_nothing_alone() {
        for (kind, expected) in [
            (DomainKind::Task, VerdictOutcome::Fails),
            (DomainKind::Vm, VerdictOutcome::Fails),
            (DomainKind::Cell, VerdictOutcome::Inconclusive),
        ] {
            let (outcome, statement) = verdict(Some(0), true, SignPath::ThroughHost, kind);
            assert_eq!(outcome, expected, "{statement}");
            assert!(
                statement.contains("its signs leave through the host"),
                "{statement}"
            );
        }
    }
}
