// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts from a crash of the host: who went on. Pure.

use rampart_model::{
    Condition, CrashRecord, CrashWitness, Exposure, MeterKind, Question, Verdict, VerdictFigures,
    VerdictOutcome,
};

/// What became of each domain.
///
/// A domain holds if its last sign of life came after the crash by more than is not known of its
/// clock and of the pause between signs, and fails otherwise. Nothing is decided where nobody
/// confirmed that the host is dead, and of a domain that had fallen silent before.
pub(crate) fn judge_crash(crash: &CrashRecord) -> Vec<Verdict> {
    crash
        .witnesses
        .iter()
        .map(|witness| judge(crash, witness))
        .collect()
}

fn judge(crash: &CrashRecord, witness: &CrashWitness) -> Verdict {
    let uncertainty = witness.uncertainty;
    let margin = i64::try_from(uncertainty.0).unwrap_or(i64::MAX);
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
                "it went on measuring for {} at least after the host's crash, known to {uncertainty}; {} were waited",
                rampart_model::Nanos(lived.0.unsigned_abs()),
                crash.observed
            ),
        ),
        (Some(_), Some(lived)) if lived.0 < -margin => (
            VerdictOutcome::Inconclusive,
            format!(
                "it had fallen silent {} before the host's crash",
                rampart_model::Nanos(lived.0.unsigned_abs())
            ),
        ),
        (Some(by), Some(_)) => (
            VerdictOutcome::Fails,
            format!(
                "it ended with its host: no sign of life later than {uncertainty} after the crash in {} of waiting ({by})",
                crash.observed
            ),
        ),
    };
    Verdict {
        id: format!("crash/{}/{}/crash:host", witness.domain, MeterKind::Wakeup),
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
    use rampart_model::{Finding, Nanos, Severity, SignedNanos};

    fn outcome(lived: Option<i64>, confirmed: bool) -> VerdictOutcome {
        let witness = CrashWitness {
            domain: "vm".to_owned(),
            last_sample: None,
            lived: lived.map(SignedNanos),
            uncertainty: Nanos::from_millis(100),
            invalid: vec![Finding::new(Severity::Problem, "vm", "it never spoke")],
        };
        let crash = CrashRecord {
            how: "sysrq c".to_owned(),
            at: Nanos::SECOND,
            confirmed: confirmed.then(|| "a panic was seen".to_owned()),
            observed: Nanos::from_secs(10),
            witnesses: vec![witness],
        };
        let verdicts = judge_crash(&crash);
        assert!(!verdicts[0].statement.is_empty());
        verdicts[0].outcome
    }

    #[test]
    fn who_lives_on_holds_and_who_ends_fails() {
        let millis = 1_000_000;
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
}
