// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a domain is separated from the others, from what blocks and loads did. Pure.
//!
//! The words are those of OSADL's talk (Embedded Open Source Summit 2023); what each of them takes
//! is written down in `docs/verdicts.md`.

use rampart_model::{
    ComparisonEntry, DomainKernel, EvaluatedDomain, EvaluationSettings, Question, Side, Verdict,
    VerdictOutcome,
};

use crate::comparison::answered;

/// Verdicts on a domain as the one that is disturbed and as the one that disturbs.
struct Walls<'a> {
    /// Blocks of other domains' CPUs, in it.
    inward: Vec<&'a Verdict>,
    /// Its own blocks, in other domains.
    outward: Vec<&'a Verdict>,
    /// Blocks that the host's kernel makes on the CPUs under it, in it.
    under: Vec<&'a Verdict>,
    /// Its own blocks, in itself.
    own: Vec<&'a Verdict>,
    /// Loads of other domains in it, and its own in them.
    loads: Vec<&'a Verdict>,
}

impl<'a> Walls<'a> {
    fn of(domain: &str, verdicts: &'a [Verdict]) -> Self {
        let mut walls = Self {
            inward: Vec::new(),
            outward: Vec::new(),
            under: Vec::new(),
            own: Vec::new(),
            loads: Vec::new(),
        };
        for verdict in verdicts {
            let here = verdict.domain == domain;
            match (verdict.question, &verdict.disturbance) {
                (Question::Transfer, Some(by)) => {
                    let location = match (here, by.domain == domain, by.side) {
                        (true, true, Side::Under) => &mut walls.under,
                        (true, true, Side::Inside) => &mut walls.own,
                        (true, false, _) => &mut walls.inward,
                        (false, true, Side::Inside) => &mut walls.outward,
                        // What the host's kernel does under it is none of its doing.
                        _ => continue,
                    };
                    location.push(verdict);
                }
                (Question::Interference, Some(by)) if here != (by.domain == domain) => {
                    walls.loads.push(verdict);
                }
                _ => {}
            }
        }
        walls
    }

    fn ids(&self) -> Vec<String> {
        [
            &self.inward,
            &self.outward,
            &self.under,
            &self.own,
            &self.loads,
        ]
        .into_iter()
        .flatten()
        .map(|verdict| verdict.id.clone())
        .collect()
    }
}

fn with<'a>(verdicts: &[&'a Verdict], outcome: VerdictOutcome) -> Vec<&'a Verdict> {
    verdicts
        .iter()
        .copied()
        .filter(|verdict| verdict.outcome == outcome)
        .collect()
}

/// `block:host in task, block:task in host`
fn named(verdicts: &[&Verdict]) -> String {
    let words: Vec<String> = verdicts
        .iter()
        .filter_map(|verdict| {
            let by = verdict.disturbance.as_ref()?;
            Some(format!("{by} in {}", verdict.domain))
        })
        .collect();
    words.join(", ")
}

/// The answer with its evidence; none where no block of or in this domain was judged. Where times
/// are `emulated`, loads decide nothing, and blocks answer alone.
pub(crate) fn separation(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts: &[Verdict],
    emulated: bool,
) -> Option<ComparisonEntry> {
    let walls = Walls::of(&domain.name, verdicts);
    if walls.inward.is_empty() && walls.outward.is_empty() {
        return None;
    }
    let (answer, outcome, reason) = answer(plan, domain, &walls, emulated);
    Some(ComparisonEntry {
        verdicts: walls.ids(),
        ..answered(domain, answer, Some(outcome), &reason)
    })
}

/// Pairs of this domain with others of the plan that no verdict is about: the other's name where
/// neither direction was measured, else the disturbance.
fn not_measured(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    inward: &[&Verdict],
    outward: &[&Verdict],
    word: &str,
) -> Vec<String> {
    let comes_from = |verdict: &&&Verdict, other: &str| {
        let by = verdict.disturbance.as_ref();
        by.is_some_and(|by| by.domain == other)
    };
    let mut missing = Vec::new();
    let others = plan
        .domains
        .iter()
        .filter(|other| other.name != domain.name);
    for other in others.map(|other| other.name.as_str()) {
        let in_it = inward.iter().any(|verdict| comes_from(&verdict, other));
        let from_it = outward.iter().any(|verdict| verdict.domain == other);
        let own = &domain.name;
        match (in_it, from_it) {
            (true, true) => {}
            (false, false) => missing.push(other.to_owned()),
            (false, true) => missing.push(format!("{word}:{other} in {own}")),
            (true, false) => missing.push(format!("{word}:{own} in {other}")),
        }
    }
    missing
}

/// What is missing about loads before it can be said that none reaches across.
fn open_about_loads(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    walls: &Walls<'_>,
) -> Vec<String> {
    let (inward, outward): (Vec<&Verdict>, Vec<&Verdict>) = walls
        .loads
        .iter()
        .copied()
        .partition(|verdict| verdict.domain == domain.name);
    let mut open = Vec::new();
    let missing = not_measured(plan, domain, &inward, &outward, "loads");
    if !missing.is_empty() {
        open.push(format!(
            "loads were not measured with: {}",
            missing.join(", ")
        ));
    }
    let undecided = with(&walls.loads, VerdictOutcome::Inconclusive);
    if !undecided.is_empty() {
        open.push(format!("loads are not decided: {}", named(&undecided)));
    }
    open
}

fn answer(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    walls: &Walls<'_>,
    emulated: bool,
) -> (&'static str, VerdictOutcome, String) {
    use VerdictOutcome::{Fails, Holds, Inconclusive, Leaks};
    let across = [walls.inward.as_slice(), &walls.outward].concat();
    let crossing = with(&across, Leaks);
    if !crossing.is_empty() {
        return ("none", Fails, format!("blocks cross: {}", named(&crossing)));
    }
    let open = with(&across, Inconclusive);
    if !open.is_empty() {
        let why = "the windows do not decide about";
        return (
            "not decided",
            Inconclusive,
            format!("{why} {}", named(&open)),
        );
    }
    let missing = not_measured(plan, domain, &walls.inward, &walls.outward, "block");
    let apart = if missing.is_empty() {
        "no block of another domain reaches it, and its own reach no other".to_owned()
    } else {
        format!(
            "as far as it was measured no block of another domain reaches it, and its own reach no other (not measured with: {})",
            missing.join(", ")
        )
    };
    let leaking = with(&walls.loads, Leaks);
    if !leaking.is_empty() {
        return (
            "limited",
            Leaks,
            format!("{apart}; but loads do: {}", named(&leaking)),
        );
    }
    let about_loads = open_about_loads(plan, domain, walls);
    if domain.selection.kind.kernel() == DomainKernel::Host {
        let stopped = !with(&walls.own, Leaks).is_empty();
        let how = if stopped {
            "what stops that kernel on its CPU stops it, as its own blocks show"
        } else {
            "what stops that kernel on its CPU stops it"
        };
        let beside = if about_loads.is_empty() {
            String::new()
        } else {
            format!("; {}", about_loads.join("; "))
        };
        return (
            "limited",
            Leaks,
            format!("{apart}; but it has no kernel of its own, only the host's: {how}{beside}"),
        );
    }
    let about_loads_here = if emulated {
        "; loads decide nothing here, where a load anywhere slows the emulation of all CPUs"
    } else {
        ""
    };
    if !missing.is_empty() || (!emulated && !about_loads.is_empty()) {
        let open = if emulated {
            String::new()
        } else {
            about_loads.iter().map(|open| format!("; {open}")).collect()
        };
        return ("not decided", Inconclusive, format!("{apart}{open}"));
    }
    let untouched = !walls.under.is_empty() && with(&walls.under, Holds).len() == walls.under.len();
    if !with(&walls.under, Leaks).is_empty() {
        (
            "good",
            Holds,
            format!(
                "{apart}; only the host's kernel, blocking the CPU under it, stops it{about_loads_here}"
            ),
        )
    } else if untouched {
        (
            "excellent",
            Holds,
            format!(
                "{apart}; not even the host's kernel, blocking its CPU, stops it{about_loads_here}"
            ),
        )
    } else {
        (
            "good",
            Holds,
            format!(
                "{apart}; whether the host's kernel, blocking the CPU under it, stops it is not decided{about_loads_here}"
            ),
        )
    }
}
