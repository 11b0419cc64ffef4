// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue: one file a group, or a few small groups together.
//!
//! Profiles are cited by name: tuned's `realtime`, `realtime-virtual-host` (and `-guest`),
//! `network-latency`, `latency-performance`, `cpu-partitioning`; NTO is OpenShift's node tuning
//! operator, partrt is Enea's, SEAPATH the LF Energy project. Paths beginning with
//! `Documentation/` are the kernel's.

mod control_groups;
mod guest;
mod hardware;
mod interrupts;
mod kernel;
mod kvm;
mod managers;
mod memory;
mod network;
mod observation;
mod power;
mod scheduler;
mod threads;
mod timers;
mod watchdogs;
mod workqueues;

use rampart_model::{KnobEffect, KnobGroup, Severity};

use crate::{Choice, Expected, Fact, Format, Kernels, Knob, Place, When};

/// A file with a text or a number.
const fn text(paths: &'static [&'static str]) -> Place {
    Place::File(Format::Text, paths)
}

/// A file with CPUs as a list.
const fn list(paths: &'static [&'static str]) -> Place {
    Place::File(Format::List, paths)
}

/// A file with CPUs as a mask.
const fn mask(paths: &'static [&'static str]) -> Place {
    Place::File(Format::Mask, paths)
}

/// A parameter of the kernel command line with a text.
const fn boot(parameter: &'static str) -> Place {
    Place::Boot {
        parameter,
        format: Format::Text,
        also: &[],
    }
}

/// A parameter of the kernel command line with CPUs.
const fn boot_cpus(parameter: &'static str, also: &'static [&'static str]) -> Place {
    Place::Boot {
        parameter,
        format: Format::List,
        also,
    }
}

/// One opinion.
const fn choice(
    name: &'static str,
    expected: Expected,
    who: &'static str,
    why: &'static str,
) -> Choice {
    Choice {
        name,
        expected,
        who,
        why,
    }
}

const GROUPS: [&[Knob]; 16] = [
    hardware::KNOBS,
    kernel::KNOBS,
    scheduler::KNOBS,
    threads::KNOBS,
    interrupts::KNOBS,
    timers::KNOBS,
    workqueues::KNOBS,
    memory::KNOBS,
    power::KNOBS,
    watchdogs::KNOBS,
    network::KNOBS,
    control_groups::KNOBS,
    kvm::KNOBS,
    guest::KNOBS,
    observation::KNOBS,
    managers::KNOBS,
];

/// Every knob, by group in the order of [`KnobGroup::ALL`].
pub fn all() -> impl Iterator<Item = &'static Knob> {
    KnobGroup::ALL.into_iter().flat_map(|group| {
        GROUPS
            .into_iter()
            .flatten()
            .filter(move |knob| knob.group == group)
    })
}

/// The knob of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Knob> {
    all().find(|knob| knob.name == name)
}

/// Returns the knob of this name; for constants.
pub(crate) const fn const_named(name: &str) -> Option<&'static Knob> {
    let mut group = 0;
    while group < GROUPS.len() {
        let mut index = 0;
        while index < GROUPS[group].len() {
            let knob = &GROUPS[group][index];
            if is_same(knob.name.as_bytes(), name.as_bytes()) {
                return Some(knob);
            }
            index += 1;
        }
        group += 1;
    }
    None
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}
