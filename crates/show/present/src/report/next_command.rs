// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The next command after an evaluation: one that can be pasted into a shell as it is.

use rampart_model::{
    Bench, DomainProgram, Evaluation, EvaluationState, Finding, Nanos, Severity, Verdict,
    VerdictOutcome, plural,
};
use rampart_rules::ROOT_RULES;
use rampart_stats::BestDomain;

use crate::{format, transfer_matrix};

/// Returns why a command is the next, and the command.
///
/// In this order: start with the needed permission, end what was interrupted, leave the emulator,
/// repair what makes latencies unbounded, decide what is open, make the choice permanent.
pub(super) fn next(evaluation: &Evaluation, best: Option<&BestDomain<'_>>) -> (String, String) {
    let answer = |why: &str, command: String| (why.to_owned(), command);
    if needs_root(evaluation) {
        return answer(
            "Run the evaluation as root: without root no CPU is isolated and no real-time policy is allowed.",
            format!("sudo {}", again(evaluation, None)),
        );
    }
    if evaluation.state != EvaluationState::Complete {
        return answer("Run the evaluation to its end.", again(evaluation, None));
    }
    let Some(best) = best else {
        return answer(
            "List what is missing on this machine.",
            on("check", evaluation),
        );
    };
    if best.by_structure {
        let here = "rampart evaluate".to_owned();
        return answer("Measure latency on a real machine.", here);
    }
    let unbounded = |finding: &Finding| finding.severity == Severity::Error;
    if evaluation.machine.findings.iter().any(unbounded) {
        return answer(
            "List the causes of latency on this machine, each with its fix.",
            on("check", evaluation),
        );
    }
    // A load that leaks does so whatever runs beside it.
    let mut others = evaluation.verdicts.iter();
    let others = others
        .find(|verdict| verdict.outcome != VerdictOutcome::Leaks && verdict.beside().is_some());
    if let Some(busy) = others.and_then(Verdict::beside) {
        return (
            format!(
                "End the other programs that use the CPUs ({}), then evaluate again. What a load does to an otherwise idle machine was not measured.",
                busy.programs
            ),
            again(evaluation, None),
        );
    }
    if let Some(why) = open(evaluation, best) {
        return match evaluation.comparison.decided_after {
            Some(after) => (
                format!(
                    "{why} Measuring for about {} would decide more.",
                    about(after)
                ),
                again(evaluation, Some(Time::UntilDecided(twice(after)))),
            ),
            None => {
                let longer = longer(evaluation.settings.total);
                (why, again(evaluation, Some(Time::For(longer))))
            }
        };
    }
    match &evaluation.settings.measured {
        Some(plan) if plan.active => answer(
            "Check from time to time that the plan is still in effect.",
            on("status", evaluation),
        ),
        Some(plan) => answer(
            "Apply the plan, until `rampart release`.",
            format!(
                "rampart apply {}",
                format::shell(std::slice::from_ref(&plan.file))
            ),
        ),
        None => match proposal(evaluation, best) {
            Some(options) => answer(
                "Write a plan that makes this isolation permanent.",
                on(
                    &format!("plan propose{options} --out plan.toml"),
                    evaluation,
                ),
            ),
            None => answer(
                "List the settings that would reduce latency.",
                on("check", evaluation),
            ),
        },
    }
}

/// Returns why the comparison has to be continued; `None` if all is decided.
fn open(evaluation: &Evaluation, best: &BestDomain<'_>) -> Option<String> {
    let judged = |verdict: &&Verdict| !transfer_matrix::is_control(verdict);
    let all = evaluation.verdicts.iter().filter(judged);
    let (open, decided): (Vec<&Verdict>, Vec<&Verdict>) =
        all.partition(|verdict| verdict.outcome == VerdictOutcome::Inconclusive);
    if !open.is_empty() {
        let all = plural(open.len() + decided.len(), "verdict");
        let are = if open.len() == 1 { "is" } else { "are" };
        return Some(format!(
            "Measure longer: {} of {all} {are} inconclusive.",
            open.len()
        ));
    }
    (best.domains.len() > 1 && best.ruled_out.is_empty())
        .then(|| "Measure longer, to find smaller differences.".to_owned())
}

/// Returns the options of `rampart plan propose` for the best domain; `None` for the host, which
/// needs no plan.
fn proposal(evaluation: &Evaluation, best: &BestDomain<'_>) -> Option<&'static str> {
    let mut kinds = best
        .domains
        .iter()
        .filter_map(|domain| evaluation.kind_of(domain))
        .filter(|kind| !kind.is_housekeeping());
    Some(match kinds.next()?.program() {
        DomainProgram::Container => " --containers 1",
        DomainProgram::Guest => " --guests 1",
        _ => "",
    })
}

/// Returns whether a finding asks to run Rampart as root.
fn needs_root(evaluation: &Evaluation) -> bool {
    let runs = || evaluation.records.iter().flat_map(|record| &record.runs);
    let shields = runs().flat_map(|run| run.shield.iter().flat_map(|shield| &shield.findings));
    let refused = evaluation.not_measured.iter().flat_map(|one| &one.findings);
    let invalid = evaluation.records.iter().flat_map(|one| &one.invalid);
    shields
        .chain(refused)
        .chain(invalid)
        .filter_map(|finding| finding.rule.as_deref())
        .any(|rule| ROOT_RULES.iter().any(|root| root.id == rule))
}

/// Returns a command for the machine of the evaluation.
fn on(command: &str, evaluation: &Evaluation) -> String {
    match &evaluation.bench {
        Bench::Ssh { host } => format!("rampart {command} --on ssh:{host}"),
        Bench::Local | Bench::Sim { .. } => format!("rampart {command}"),
    }
}

/// Returns a time in whole minutes, in words.
pub(super) fn about(time: Nanos) -> String {
    format!("{} min", time.0.div_ceil(60_000_000_000))
}

/// Returns twice a time in whole minutes: an estimate may be wrong.
fn twice(time: Nanos) -> Nanos {
    Nanos::from_secs(time.0.div_ceil(30_000_000_000) * 60)
}

/// Another time for the same evaluation.
#[derive(Debug, Clone, Copy)]
enum Time {
    For(Nanos),
    UntilDecided(Nanos),
}

/// Returns a longer time: ten times a short one, three times a long one.
fn longer(total: Nanos) -> Nanos {
    let short = Nanos::from_secs(600);
    Nanos(total.0.saturating_mul(if total < short { 10 } else { 3 }))
}

/// Returns the command of the evaluation without its output options, and with another time.
fn again(evaluation: &Evaluation, time: Option<Time>) -> String {
    let mut given = evaluation
        .command
        .iter()
        .skip_while(|word| *word != "evaluate");
    given.next();
    let mut words = vec!["rampart".to_owned(), "evaluate".to_owned()];
    let mut dropped = vec!["--out", "--show-progress", "--color"];
    dropped.extend(match time {
        Some(Time::For(_)) => Some("--for"),
        Some(Time::UntilDecided(_)) | None => None,
    });
    while let Some(word) = given.next() {
        let (name, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        if name == "--json" || (name == "--until-decided" && time.is_some()) {
            continue;
        }
        if dropped.contains(&name) {
            if value.is_none() {
                given.next();
            }
            continue;
        }
        words.push(word.clone());
    }
    match time {
        Some(Time::For(time)) => words.extend(["--for".to_owned(), duration(time)]),
        Some(Time::UntilDecided(time)) => {
            words.push(format!("--until-decided={}", duration(time)));
        }
        None => {}
    }
    format::shell(&words)
}

/// Returns a time as an argument: `90s`, `20m`, `2h`.
fn duration(time: Nanos) -> String {
    let seconds = time.0.div_ceil(1_000_000_000);
    if seconds.is_multiple_of(3600) {
        format!("{}h", seconds / 3600)
    } else if seconds.is_multiple_of(60) {
        format!("{}m", seconds / 60)
    } else {
        format!("{seconds}s")
    }
}
