// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each guest got, in a few lines.

use rampart_model::{Evaluation, GuestKnob, GuestReport, GuestThreadRole, plural};

use super::text::Page;
use crate::format;

/// The last report on each guest: what ran it, where its threads are, what it lacks.
pub(crate) fn guests(page: &mut Page, evaluation: &Evaluation) {
    let found: Vec<(&str, &GuestReport)> = evaluation
        .plan
        .domains
        .iter()
        .filter_map(|domain| {
            Some((
                domain.name.as_str(),
                format::guest(evaluation, &domain.name)?,
            ))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    page.heading("Guests");
    for (name, guest) in found {
        page.hanging(&format!("{name}: "), &head(guest), 0);
        page.hanging("threads: ", &threads(guest), 2);
        if let Some(uncertainty) = guest.clock.iter().map(|clock| clock.uncertainty).max() {
            let known = format!(
                "related to the host's within ±\u{a0}{}",
                format::time(uncertainty)
            );
            page.hanging("clock: ", &known, 2);
        }
        let satisfied = guest.knobs.iter().filter(|knob| knob.satisfied).count();
        let known = format!("{satisfied} of {} as wanted", guest.knobs.len());
        page.hanging("settings: ", &known, 2);
        for knob in guest.knobs.iter().filter(|knob| !knob.satisfied) {
            page.hanging("- ", &missing(knob), 4);
        }
    }
}

fn head(guest: &GuestReport) -> String {
    format!(
        "{} by {}; Linux {}; {} MiB, {} MiB of the program locked; first word after {}",
        guest.accelerator,
        guest.program,
        guest.kernel,
        guest.memory_bytes >> 20,
        guest.locked_bytes >> 20,
        format::time(guest.boot_time)
    )
}

fn threads(guest: &GuestReport) -> String {
    let mut words: Vec<String> = guest
        .threads
        .iter()
        .filter_map(|thread| match thread.role {
            GuestThreadRole::VirtualCpu(number) => Some(format!(
                "vCPU {number} on {} {}",
                thread.cpus.named(),
                thread.policy
            )),
            GuestThreadRole::Other => None,
        })
        .collect();
    let others = guest
        .threads
        .iter()
        .filter(|thread| thread.role == GuestThreadRole::Other);
    let locations: std::collections::BTreeSet<String> = others
        .clone()
        .map(|thread| thread.cpus.named().to_string())
        .collect();
    let locations: Vec<String> = locations.into_iter().collect();
    if !locations.is_empty() {
        words.push(format!(
            "{} on {}",
            plural(others.count(), "other"),
            locations.join(" and ")
        ));
    }
    words.join(", ")
}

fn missing(knob: &GuestKnob) -> String {
    format!(
        "{} is {}, wanted {}: {}",
        knob.name, knob.found, knob.expected, knob.reason
    )
}
