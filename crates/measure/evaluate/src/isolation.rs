// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The isolation of a domain from the others, from the effects of blocks and loads. Pure.
//!
//! The levels follow OSADL's talk at the Embedded Open Source Summit 2023. `docs/verdicts.md` defines
//! what each of them requires.

use std::borrow::Cow;

use rampart_model::{
    ComparisonEntry, DomainKernel, EvaluatedDomain, EvaluationSettings, Question, Side, Verdict,
    VerdictOutcome,
};

use crate::comparison::{NOT_ENOUGH_DATA, answered};

/// The verdicts on a domain, as the disturbed one and as the source of the disturbance.
struct VerdictsByDirection<'a> {
    /// On blocks in other domains, measured in this domain.
    inward: Vec<&'a Verdict>,
    /// On blocks in this domain, measured in other domains.
    outward: Vec<&'a Verdict>,
    /// On blocks of the host's kernel on the CPUs under this domain, measured in it.
    under: Vec<&'a Verdict>,
    /// On blocks in this domain, measured in it.
    own: Vec<&'a Verdict>,
    /// On loads of other domains in this domain, and of this domain in others.
    loads: Vec<&'a Verdict>,
}

impl<'a> VerdictsByDirection<'a> {
    fn of(domain: &str, verdicts: &'a [Verdict]) -> Self {
        let mut verdicts_on = Self {
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
                    let target = match (here, by.domain == domain, by.side) {
                        (true, true, Side::Under) => &mut verdicts_on.under,
                        (true, true, Side::Inside) => &mut verdicts_on.own,
                        (true, false, _) => &mut verdicts_on.inward,
                        (false, true, Side::Inside) => &mut verdicts_on.outward,
                        // The host's kernel causes the blocks under a domain, not the domain.
                        _ => continue,
                    };
                    target.push(verdict);
                }
                (Question::Interference, Some(by)) if here != (by.domain == domain) => {
                    verdicts_on.loads.push(verdict);
                }
                _ => {}
            }
        }
        verdicts_on
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

/// Lists disturbances and affected domains: `block:host in task, block:task in host`.
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

/// Returns the answer with its evidence, or `None` if no block in or of this domain was judged.
///
/// If times are `emulated`, only blocks count: a load anywhere slows the emulation of all CPUs.
pub(crate) fn isolation(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts: &[Verdict],
    emulated: bool,
) -> Option<ComparisonEntry> {
    let verdicts_on = VerdictsByDirection::of(&domain.name, verdicts);
    if verdicts_on.inward.is_empty() && verdicts_on.outward.is_empty() {
        return None;
    }
    let (answer, outcome, reason) = answer(settings, domain, &verdicts_on, emulated);
    Some(ComparisonEntry {
        verdicts: verdicts_on.ids(),
        ..answered(domain, &answer, Some(outcome), &reason)
    })
}

/// Returns the pairs of this domain with others that no verdict covers: the other's name if neither
/// direction was measured, otherwise the disturbance.
fn not_measured(
    settings: &EvaluationSettings,
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
    let others = settings
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

/// Returns the reasons why the data about loads does not show isolation.
fn open_about_loads(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts_on: &VerdictsByDirection<'_>,
) -> Vec<String> {
    let (inward, outward): (Vec<&Verdict>, Vec<&Verdict>) = verdicts_on
        .loads
        .iter()
        .copied()
        .partition(|verdict| verdict.domain == domain.name);
    let mut open = Vec::new();
    let missing = not_measured(settings, domain, &inward, &outward, "loads");
    if !missing.is_empty() {
        open.push(format!("not measured with loads: {}", missing.join(", ")));
    }
    let undecided = with(&verdicts_on.loads, VerdictOutcome::Inconclusive);
    if !undecided.is_empty() {
        open.push(format!(
            "not enough data about loads: {}",
            named(&undecided)
        ));
    }
    open
}

fn answer(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts_on: &VerdictsByDirection<'_>,
    emulated: bool,
) -> (Cow<'static, str>, VerdictOutcome, String) {
    use VerdictOutcome::{Fails, Holds, Inconclusive, Leaks};
    let across = [verdicts_on.inward.as_slice(), &verdicts_on.outward].concat();
    let crossing = with(&across, Leaks);
    if !crossing.is_empty() {
        return (
            "not isolated".into(),
            Fails,
            format!("affected by blocks: {}", named(&crossing)),
        );
    }
    let open = with(&across, Inconclusive);
    if !open.is_empty() {
        return (
            format!("{} of {} blocks open", open.len(), across.len()).into(),
            Inconclusive,
            format!("not enough data about {}", named(&open)),
        );
    }
    let missing = not_measured(
        settings,
        domain,
        &verdicts_on.inward,
        &verdicts_on.outward,
        "block",
    );
    let apart = if missing.is_empty() {
        "isolated from blocks in both directions".to_owned()
    } else {
        format!(
            "isolated from blocks in both directions as far as measured (not measured with: {})",
            missing.join(", ")
        )
    };
    let leaking = with(&verdicts_on.loads, Leaks);
    if !leaking.is_empty() {
        return (
            "limited, a load reaches it".into(),
            Leaks,
            format!("{apart}, but not from loads: {}", named(&leaking)),
        );
    }
    let about_loads = open_about_loads(settings, domain, verdicts_on);
    if domain.selection.kind.kernel() == DomainKernel::Host {
        let stopped = !with(&verdicts_on.own, Leaks).is_empty();
        let how = if stopped {
            "a block of that kernel stops it, as measured"
        } else {
            "a block of that kernel stops it"
        };
        let beside = if about_loads.is_empty() {
            String::new()
        } else {
            format!(". Loads: {}", about_loads.join(", "))
        };
        return (
            "limited, the kernel is the host's".into(),
            Leaks,
            format!("{apart}, but it shares the host's kernel: {how}{beside}"),
        );
    }
    let about_loads_here = if emulated {
        ". Loads are not judged on an emulated machine"
    } else {
        ""
    };
    if !missing.is_empty() || (!emulated && !about_loads.is_empty()) {
        let open = if emulated {
            String::new()
        } else {
            about_loads.iter().map(|open| format!(", {open}")).collect()
        };
        return (
            NOT_ENOUGH_DATA.into(),
            Inconclusive,
            format!("{apart}{open}"),
        );
    }
    let untouched = !verdicts_on.under.is_empty()
        && with(&verdicts_on.under, Holds).len() == verdicts_on.under.len();
    if !with(&verdicts_on.under, Leaks).is_empty() {
        (
            "good".into(),
            Holds,
            format!(
                "{apart}, only a block of the host's kernel under it stops it{about_loads_here}"
            ),
        )
    } else if untouched {
        (
            "excellent".into(),
            Holds,
            format!("{apart}, even from blocks of the host's kernel under it{about_loads_here}"),
        )
    } else {
        (
            "good".into(),
            Holds,
            format!(
                "{apart}, not enough data about blocks of the host's kernel under it{about_loads_here}"
            ),
        )
    }
}
