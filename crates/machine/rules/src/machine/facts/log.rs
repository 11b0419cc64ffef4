// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts from the kernel log, and words of the kernel command line that the kernel does not know.

use std::collections::BTreeSet;

use rampart_model::CheckLocation;

use super::{Judgement, deviations};
use crate::{Location, Readings, Unread};

/// Number of messages that are shown of one kind.
const SHOWN: usize = 5;

/// Judges whether the kernel has logged a message that contains one of these texts.
pub(crate) fn messages(texts: &[&str], readings: &Readings) -> Judgement {
    let Some(log) = &readings.kernel_log else {
        return Judgement::Unread(Unread::KernelLog);
    };
    let all: Vec<&String> = log
        .iter()
        .filter(|message| texts.iter().any(|text| message.contains(text)))
        .collect();
    let Some(first) = all.first() else {
        return Judgement::is("no such message", true);
    };
    Judgement::Is {
        found: match all.len() {
            1 => (*first).clone(),
            count => format!("{first} (and {} more)", count - 1),
        },
        satisfied: Some(false),
        locations: all
            .iter()
            .take(SHOWN)
            .map(|message| CheckLocation {
                location: "kernel log".to_owned(),
                found: (*message).clone(),
                expected: "no such message".to_owned(),
                satisfied: Some(false),
            })
            .collect(),
    }
}

/// What init/main.c (`print_unknown_bootoptions`, from 5.13) logs before and after the words.
const UNKNOWN: (&str, &str) = ("Unknown kernel command line parameters \"", "\"");

/// Judges flags of `isolcpus=`.
pub(super) fn isolcpus_flags(readings: &Readings) -> Judgement {
    let line = &readings.kernel_command_line;
    if !line.has("isolcpus") {
        return Judgement::not_applicable("the kernel command line has no isolcpus=");
    }
    let unknown = line.unknown_flags_of_isolcpus();
    if unknown.is_empty() {
        Judgement::is("all known", true)
    } else {
        Judgement::is(format!("{} unknown", unknown.join(" and ")), false)
    }
}

/// Judges words of the kernel command line that resemble a parameter of the catalogue and are none. Other words that the
/// kernel does not know are for programs, and are only reported.
pub(super) fn unknown_parameters(readings: &Readings) -> Judgement {
    let line = &readings.kernel_command_line;
    let logged: Vec<&str> = readings
        .kernel_log
        .iter()
        .flatten()
        .filter_map(|message| {
            let (_, words) = message.split_once(UNKNOWN.0)?;
            Some(
                words
                    .rsplit_once(UNKNOWN.1)
                    .map_or(words, |(words, _)| words),
            )
        })
        .flat_map(str::split_whitespace)
        .collect();
    let known = known_parameters();
    let mut found: Vec<(String, String)> = Vec::new();
    for name in line.names() {
        let plain = name.replace('-', "_");
        if known.contains(&plain) {
            continue;
        }
        if let Some(meant) = known.iter().find(|known| is_misspelt(&plain, known)) {
            found.push((
                format!("/proc/cmdline ({name})"),
                format!("{name} is unknown, {meant} is similar"),
            ));
        }
    }
    if found.is_empty() && !logged.is_empty() {
        return Judgement::informational(format!("not known to the kernel: {}", logged.join(" ")));
    }
    deviations(found.into_iter(), "none", "a parameter of the kernel")
}

/// Returns the names of parameters that decide about real-time work: those of the catalogue, and those that its fixes
/// add.
fn known_parameters() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for knob in crate::all() {
        if let Location::Boot {
            parameter, also, ..
        } = knob.location
        {
            names.insert(parameter.replace('-', "_"));
            names.extend(also.iter().map(|name| name.replace('-', "_")));
        }
        let added = knob.fix.unwrap_or_default().lines();
        for parameters in added.filter_map(|line| Some(line.split_once("{add} ")?.1)) {
            let parameters = parameters.split("  #").next().unwrap_or_default();
            names.extend(parameters.split_whitespace().map(|parameter| {
                let name = parameter.split('=').next().unwrap_or(parameter);
                name.replace('-', "_")
            }));
        }
    }
    names
}

/// Shortest name that is compared: short ones resemble too many others.
const SHORTEST: usize = 6;

/// Returns whether a name is one edit away from a known one: a letter more, less, another, or two exchanged. Names
/// with a dot belong to modules, which the kernel does not know before they are loaded.
fn is_misspelt(name: &str, known: &str) -> bool {
    if name.len() < SHORTEST || name.contains('.') != known.contains('.') {
        return false;
    }
    let (name, known) = (name.as_bytes(), known.as_bytes());
    let same = name.iter().zip(known).take_while(|(a, b)| a == b).count();
    let (rest, of_known) = (&name[same..], &known[same..]);
    match (rest, of_known) {
        ([], [_]) | ([_], []) => true,
        ([a, b, rest @ ..], [c, d, of_known @ ..]) if a == d && b == c => rest == of_known,
        ([_, rest @ ..], [_, of_known @ ..]) if rest == of_known => true,
        ([_, rest @ ..], of_known) if rest == of_known => true,
        (rest, [_, of_known @ ..]) if rest == of_known => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_one_edit_away_is_misspelt() {
        for (name, known, expected) in [
            ("isolcpu", "isolcpus", true),
            ("isolcpuss", "isolcpus", true),
            ("islocpus", "isolcpus", true),
            ("isolcpux", "isolcpus", true),
            ("rcu_nocb", "rcu_nocbs", true),
            ("nohz_ful", "nohz_full", true),
            ("nohz", "nohz_full", false),
            ("isolcpus", "nohz_full", false),
            ("quiet", "audit", false),
            ("splash", "skew_tick", false),
            ("rcutree.kthread_pri", "rcutree.kthread_prio", true),
        ] {
            assert_eq!(is_misspelt(name, known), expected, "{name} {known}");
        }
    }
}
