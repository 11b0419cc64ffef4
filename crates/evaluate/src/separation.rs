// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a domain is separated from the others, from what blocks and loads did. Pure.
//!
//! The words are those of OSADL's talk (Embedded Open Source Summit 2023); what each of them takes
//! is written down in `docs/verdicts.md`.

use rampart_model::{
    ComparisonCell, DomainKind, DomainPlan, Question, Side, Verdict, VerdictOutcome,
};

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
                    let place = match (here, by.domain == domain, by.side) {
                        (true, true, Side::Under) => &mut walls.under,
                        (true, true, Side::Inside) => &mut walls.own,
                        (true, false, _) => &mut walls.inward,
                        (false, true, Side::Inside) => &mut walls.outward,
                        // What the host's kernel does under it is none of its doing.
                        _ => continue,
                    };
                    place.push(verdict);
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

/// The answer with its evidence; none where no block of or in this domain was judged.
pub(crate) fn separation(domain: &DomainPlan, verdicts: &[Verdict]) -> Option<ComparisonCell> {
    let walls = Walls::of(&domain.name, verdicts);
    if walls.inward.is_empty() && walls.outward.is_empty() {
        return None;
    }
    let (answer, reason) = answer(domain, &walls);
    Some(ComparisonCell {
        domain: domain.name.clone(),
        answer: answer.to_owned(),
        reason,
        verdicts: walls.ids(),
    })
}

fn answer(domain: &DomainPlan, walls: &Walls<'_>) -> (&'static str, String) {
    let across = [walls.inward.as_slice(), &walls.outward].concat();
    let crossing = with(&across, VerdictOutcome::Leaks);
    if !crossing.is_empty() {
        return ("none", format!("blocks cross: {}", named(&crossing)));
    }
    let open = with(&across, VerdictOutcome::Inconclusive);
    if !open.is_empty() {
        let why = "the windows do not decide about";
        return ("not decided", format!("{why} {}", named(&open)));
    }
    let apart = "no block of another domain reaches it, and its own reach no other";
    let leaking = with(&walls.loads, VerdictOutcome::Leaks);
    if !leaking.is_empty() {
        return (
            "limited",
            format!("{apart}; but loads do: {}", named(&leaking)),
        );
    }
    if !matches!(domain.selection.kind, DomainKind::Vm | DomainKind::Cell) {
        let stopped = !with(&walls.own, VerdictOutcome::Leaks).is_empty();
        let how = if stopped {
            "what stops that kernel on its CPU stops it, as its own blocks show"
        } else {
            "what stops that kernel on its CPU stops it"
        };
        return (
            "limited",
            format!("{apart}; but it has no kernel of its own, only the host's: {how}"),
        );
    }
    if !with(&walls.under, VerdictOutcome::Leaks).is_empty() {
        return (
            "good",
            format!("{apart}; only the host's kernel, blocking the CPU under it, stops it"),
        );
    }
    let untouched = !walls.under.is_empty()
        && with(&walls.under, VerdictOutcome::Holds).len() == walls.under.len();
    if untouched {
        (
            "excellent",
            format!("{apart}; not even the host's kernel, blocking its CPU, stops it"),
        )
    } else {
        (
            "good",
            format!(
                "{apart}; whether the host's kernel, blocking the CPU under it, stops it is not decided"
            ),
        )
    }
}
