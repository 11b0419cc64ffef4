// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts from a crash of the host: who went on. Pure.

use rampart_model::{
    Condition, CrashRecord, CrashWitness, DomainKernel, DomainKind, EvaluationSettings, Exposure,
    MeterKind, Nanos, Question, RecordedAfter, SignPath, Verdict, VerdictFigures, VerdictOutcome,
    plural,
};

/// What became of each domain.
///
/// A domain holds if its last sign of life came after the crash by more than is not known of its
/// clock and of the pause between signs. It fails where no such sign came and none could fail to:
/// on a channel of its own, or because it cannot go on by structure, as it runs on the host's
/// kernel or its processors are the host's threads. Nothing is decided where nobody confirmed that
/// the host is dead, of a domain that had fallen silent before, and of one whose signs leave through
/// the host.
pub(crate) fn judge_crash(plan: &EvaluationSettings, crash: &CrashRecord) -> Vec<Verdict> {
    crash
        .witnesses
        .iter()
        .map(|witness| {
            let domain = plan
                .domains
                .iter()
                .find(|domain| domain.name == witness.domain);
            judge(crash, witness, domain.map(|domain| domain.selection.kind))
        })
        .collect()
}

/// Why a domain of this kind cannot outlive the host's kernel; none for one that may.
fn bound_to_the_host(kind: DomainKind) -> Option<&'static str> {
    match kind.kernel() {
        DomainKernel::Host => Some("it runs on the host's kernel"),
        DomainKernel::AboveHost => Some("its processors are threads of the host's kernel"),
        DomainKernel::Apart => None,
    }
}

/// `; its records of that time hold 95 samples, without a gap and none lost`
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
    format!("; its records of that time hold {samples}, {gap} and {lost}")
}

fn judge(crash: &CrashRecord, witness: &CrashWitness, kind: Option<DomainKind>) -> Verdict {
    let uncertainty = witness.uncertainty;
    let observed = crash.observed;
    let margin = i64::try_from(uncertainty.0).unwrap_or(i64::MAX);
    let bound = kind.and_then(bound_to_the_host);
    let (outcome, statement) = match (&crash.confirmed, witness.lived) {
        (None, _) => (
            VerdictOutcome::Inconclusive,
            "nobody confirmed that the host was dead".to_owned(),
        ),
        (_, None) => (
            VerdictOutcome::Inconclusive,
            match witness.invalid.first() {
                Some(reason) => format!("nothing is known of it: {reason}"),
                None => "nothing is known of it".to_owned(),
            },
        ),
        (Some(_), Some(lived)) if lived.0 > margin => (
            VerdictOutcome::Holds,
            format!(
                "it went on measuring for {} at least after the host's crash, known to {uncertainty}; {observed} were waited{}",
                Nanos(lived.0.unsigned_abs()),
                witness.after.map(recorded).unwrap_or_default(),
            ),
        ),
        (Some(_), Some(lived)) if lived.0 < -margin => (
            VerdictOutcome::Inconclusive,
            format!(
                "it had fallen silent {} before the host's crash",
                Nanos(lived.0.unsigned_abs())
            ),
        ),
        (Some(by), Some(_)) => match (witness.signs, bound) {
            (SignPath::OwnChannel | SignPath::Memory, _) => (
                VerdictOutcome::Fails,
                format!(
                    "it ended with its host: no sign of life later than {uncertainty} after the crash in {observed} of waiting ({by})"
                ),
            ),
            (SignPath::ThroughHost, Some(bound)) => (
                VerdictOutcome::Fails,
                format!(
                    "nothing was heard of it after the crash in {observed} of waiting ({by}); its signs leave through the host, but it cannot go on: {bound}"
                ),
            ),
            (SignPath::ThroughHost, None) => (
                VerdictOutcome::Inconclusive,
                format!(
                    "nothing was heard of it after the crash in {observed} of waiting ({by}); its signs leave through the host, so that nothing follows"
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
    fn who_lives_on_holds_and_who_ends_fails() {
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

    /// Silence proves nothing where no sign could come, unless the kind cannot live on anyway.
    #[test]
    fn silence_through_the_host_proves_nothing_by_itself() {
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
