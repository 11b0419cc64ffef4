// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The next command after an evaluation: one that can be pasted into a shell as it is.

use rampart_model::{
    Bench, DomainProgram, Evaluation, EvaluationState, Finding, Nanos, Severity, Verdict,
    VerdictOutcome, plural,
};
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
            "Run it as root: without root no CPU is isolated and no real-time policy is allowed.",
            format!("sudo {}", again(evaluation, None)),
        );
    }
    if evaluation.state != EvaluationState::Complete {
        return answer("Let it run to its end.", again(evaluation, None));
    }
    let Some(best) = best else {
        return answer("See what this machine lacks.", on("check", evaluation));
    };
    if best.by_structure {
        let here = "rampart evaluate".to_owned();
        return answer("Measure latency on a real machine.", here);
    }
    let unbounded = |finding: &Finding| finding.severity == Severity::Error;
    if evaluation.machine.findings.iter().any(unbounded) {
        return answer(
            "See all that delays threads on this machine, each with its fix.",
            on("check", evaluation),
        );
    }
    if let Some(why) = open(evaluation, best) {
        let longer = longer(evaluation.settings.total);
        return (why, again(evaluation, Some(longer)));
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
                "See what would make this machine better.",
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
            "Measure longer: {} of {all} {are} not decided.",
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
        .filter(|finding| finding.severity > Severity::Note)
        .filter_map(|finding| finding.fix.as_deref())
        .any(|fix| fix.contains("sudo"))
}

/// Returns a command for the machine of the evaluation.
fn on(command: &str, evaluation: &Evaluation) -> String {
    match &evaluation.bench {
        Bench::Ssh { host } => format!("rampart {command} --on ssh:{host}"),
        Bench::Local | Bench::Sim { .. } => format!("rampart {command}"),
    }
}

/// Returns a longer time: ten times a short one, three times a long one.
fn longer(total: Nanos) -> Nanos {
    let short = Nanos::from_secs(600);
    Nanos(total.0.saturating_mul(if total < short { 10 } else { 3 }))
}

/// Returns the command of the evaluation without its output options, and with another time.
fn again(evaluation: &Evaluation, time: Option<Nanos>) -> String {
    let mut given = evaluation
        .command
        .iter()
        .skip_while(|word| *word != "evaluate");
    given.next();
    let mut words = vec!["rampart".to_owned(), "evaluate".to_owned()];
    let mut dropped = vec!["--out", "--show-progress", "--color"];
    dropped.extend(time.map(|_| "--for"));
    while let Some(word) = given.next() {
        let (name, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        if name == "--json" {
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
    if let Some(time) = time {
        words.extend(["--for".to_owned(), duration(time)]);
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
