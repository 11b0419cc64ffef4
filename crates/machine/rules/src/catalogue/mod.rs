// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of knobs: one file for each group, or for a few small groups.
//!
//! Sources cite profiles by name: `realtime`, `realtime-virtual-host` (and `-guest`),
//! `network-latency`, `latency-performance` and `cpu-partitioning` belong to tuned; NTO is
//! OpenShift's node tuning operator, partrt a tool of Enea, SEAPATH a project of LF Energy. Paths
//! that start with `Documentation/` are in the kernel's source.

mod control_groups;
mod guest;
mod hardware;
mod interrupts;
mod kernel;
mod kernel_log;
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

use crate::{Choice, Expected, Fact, Format, Kernels, Knob, Location, When};

/// Returns the location of a file with a text or a number.
const fn text(paths: &'static [&'static str]) -> Location {
    Location::File(Format::Text, paths)
}

/// Returns the location of a file with CPUs as a list.
const fn list(paths: &'static [&'static str]) -> Location {
    Location::File(Format::List, paths)
}

/// Returns the location of a file with CPUs as a mask.
const fn mask(paths: &'static [&'static str]) -> Location {
    Location::File(Format::Mask, paths)
}

/// Returns the location of a kernel parameter with a text.
const fn boot(parameter: &'static str) -> Location {
    Location::Boot {
        parameter,
        format: Format::Text,
        also: &[],
    }
}

/// Returns the location of a kernel parameter with CPUs.
const fn boot_cpus(parameter: &'static str, also: &'static [&'static str]) -> Location {
    Location::Boot {
        parameter,
        format: Format::List,
        also,
    }
}

/// Returns one choice of a knob.
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

const GROUPS: [&[Knob]; 17] = [
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
    kernel_log::KNOBS,
    managers::KNOBS,
];

/// Returns every knob, by group in the order of [`KnobGroup::ALL`].
pub fn all() -> impl Iterator<Item = &'static Knob> {
    KnobGroup::ALL.into_iter().flat_map(|group| {
        GROUPS
            .into_iter()
            .flatten()
            .filter(move |knob| knob.group == group)
    })
}

/// Returns the knob with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Knob> {
    all().find(|knob| knob.name == name)
}

/// Returns the programs that no machine with a plan should run, as systemd names them.
pub fn manager_programs() -> impl Iterator<Item = &'static str> {
    let programs = |knob: &'static Knob| match (knob.location, knob.expected) {
        (Location::Program(names), Expected::Absent) => names,
        _ => &[],
    };
    all()
        .filter(|knob| knob.group == KnobGroup::OtherManagers)
        .flat_map(move |knob| programs(knob).iter().copied())
}

/// Returns the knob with this name, for constants.
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
