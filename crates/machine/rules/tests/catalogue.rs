// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of all entries of the catalogue.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rampart_model::{CpuId, CpuSet, KnobGroup, Severity, VitalThread};
use rampart_rules::{
    Expected, Format, Isolation, Knob, Location, When, all, entry, named, satisfies, to_write,
};

fn isolation(real_time: &str, housekeeping: &str) -> Isolation {
    Isolation {
        real_time: real_time.parse().expect("CPUs"),
        housekeeping: housekeeping.parse().expect("CPUs"),
        ..Isolation::default()
    }
}

fn format(knob: &Knob) -> Format {
    match knob.location {
        Location::File(format, _) | Location::Boot { format, .. } => format,
        _ => Format::List,
    }
}

fn expectations(knob: &Knob) -> Vec<Expected> {
    let mut expectations = vec![knob.expected];
    expectations.extend(knob.choices.iter().map(|choice| choice.expected));
    expectations
}

#[test]
fn names_are_unique_and_kebab_case() {
    let mut names = BTreeSet::new();
    for knob in all() {
        assert!(names.insert(knob.name), "{} occurs twice", knob.name);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(knob.name.chars().all(plain), "{}", knob.name);
        assert!(
            !knob.name.starts_with('-') && !knob.name.ends_with('-'),
            "{}",
            knob.name
        );
        assert_eq!(named(knob.name).map(|found| found.name), Some(knob.name));
    }
    assert!(names.len() > 150, "{} knobs", names.len());
    assert!(named("no-such-knob").is_none());
}

#[test]
fn every_group_has_knobs_and_every_knob_has_all_texts() {
    for group in KnobGroup::ALL {
        assert!(all().any(|knob| knob.group == group), "{group:?}");
    }
    for knob in all() {
        let shown = entry(knob);
        for (what, text) in [
            ("title", &shown.title),
            ("expected", &shown.expected),
            ("reason", &shown.reason),
            ("cost", &shown.cost),
            ("kernels", &shown.kernels),
            ("verify", &shown.verify),
            ("undo", &shown.undo),
            ("source", &shown.source),
        ] {
            assert!(!text.trim().is_empty(), "{}: no {what}", knob.name);
            assert!(
                !text.contains('\n') && !text.contains("  "),
                "{}: {what} {text:?}",
                knob.name
            );
        }
        assert!(!shown.locations.is_empty(), "{}: no location", knob.name);
        assert!(
            shown.reason.ends_with('.'),
            "{}: {}",
            knob.name,
            shown.reason
        );
        assert!(shown.cost.ends_with('.'), "{}: {}", knob.name, shown.cost);
        assert!(
            !shown.title.ends_with('.'),
            "{}: {}",
            knob.name,
            shown.title
        );
    }
}

#[test]
fn locations_are_kernel_paths_with_matching_braces() {
    for knob in all() {
        let paths = match knob.location {
            Location::File(_, paths) | Location::Exists(paths) => paths,
            _ => continue,
        };
        assert!(!paths.is_empty(), "{}", knob.name);
        for path in paths {
            assert!(
                path.starts_with('/') && !path.contains("//"),
                "{}: {path}",
                knob.name
            );
            assert!(!path.contains(['*', ' ']), "{}: {path}", knob.name);
            // No brace spans directories, and each is closed.
            for part in path.split('/') {
                let (open, close) = (part.matches('{').count(), part.matches('}').count());
                assert_eq!(open, close, "{}: {path}", knob.name);
                assert!(open <= 1, "{}: {path}", knob.name);
            }
        }
    }
}

#[test]
fn choices_have_unique_names_and_start_with_the_expected_value() {
    for knob in all().filter(|knob| !knob.choices.is_empty()) {
        assert!(knob.choices.len() > 1, "{}", knob.name);
        assert_eq!(knob.choices[0].expected, knob.expected, "{}", knob.name);
        let names: BTreeSet<&str> = knob.choices.iter().map(|choice| choice.name).collect();
        assert_eq!(names.len(), knob.choices.len(), "{}", knob.name);
        for choice in knob.choices {
            assert!(
                !choice.who.is_empty() && !choice.why.is_empty(),
                "{}",
                knob.name
            );
            let mut isolation = isolation("2-3", "0-1");
            isolation
                .choices
                .insert(knob.name.to_owned(), choice.name.to_owned());
            assert_eq!(
                knob.expected_by(&isolation),
                choice.expected,
                "{}",
                knob.name
            );
        }
    }
}

#[test]
fn an_unknown_choice_changes_nothing() {
    let mut isolation = isolation("2-3", "0-1");
    let knob = named("timer-migration").expect("knob");
    isolation
        .choices
        .insert(knob.name.to_owned(), "no-such-choice".to_owned());
    assert_eq!(knob.expected_by(&isolation), knob.expected);
}

/// Checks knobs whose sources are known to differ.
#[test]
fn knobs_with_differing_sources_have_choices() {
    for name in [
        "timer-migration",
        "real-time-throttling",
        "fair-server",
        "ksoftirqd-priority",
        "rcuc-priority",
        "numa-balancing",
        "nohz-full",
        "mitigations",
        "statistics-interval",
        "rcu-nocb-poll",
        "irqbalance-banned-cpus",
        "stalld",
        "tsc-reliable",
        "scheduler-isolation",
        "busy-poll",
    ] {
        let knob = named(name).unwrap_or_else(|| panic!("{name}"));
        assert!(knob.choices.len() > 1, "{name}");
    }
}

#[test]
fn errors_have_a_fix() {
    for knob in all().filter(|knob| knob.severity == Severity::Error) {
        let by_location = matches!(
            knob.location,
            Location::Boot { .. } | Location::KernelOption(_) | Location::File(_, _)
        );
        assert!(knob.fix.is_some() || by_location, "{}", knob.name);
    }
}

#[test]
fn settings_of_kvm_modules_apply_only_with_guests() {
    for knob in all().filter(|knob| knob.name.starts_with("kvm-")) {
        if matches!(knob.location, Location::File(_, _)) {
            assert!(knob.applies.contains(&When::Guests), "{}", knob.name);
        }
    }
}

proptest! {
    /// Checks that a written value satisfies the expectation, in every notation of the kernel.
    #[test]
    fn a_written_value_is_as_expected(
        cpus in 2u32..80,
        split in proptest::collection::vec(any::<bool>(), 80),
        zeros in 0usize..8,
    ) {
        let is_real_time = |cpu: &u32| split.get(*cpu as usize).copied().unwrap_or(false);
        let real_time: CpuSet = (1..cpus).filter(is_real_time).map(CpuId).collect();
        let housekeeping = (0..cpus).map(CpuId).collect::<CpuSet>().difference(&real_time);
        let isolation = Isolation { real_time, housekeeping, ..Isolation::default() };
        for knob in all() {
            let format = format(knob);
            for expected in expectations(knob) {
                let Some(text) = to_write(expected, format, &isolation) else {
                    continue;
                };
                let mut notations = vec![text.clone(), format!("{text}\n"), format!(" {text} ")];
                if format == Format::Mask {
                    notations.push(format!("{}{text}", "0".repeat(zeros.min(8 - text.find(',').unwrap_or(text.len())))));
                }
                if format == Format::List
                    && !isolation.real_time.is_empty()
                    && let Ok(cpus) = text.parse::<CpuSet>()
                {
                    let each: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
                    notations.push(each.join(","));
                }
                for notation in notations {
                    prop_assert_eq!(
                        satisfies(expected, format, &notation, &isolation),
                        Some(true),
                        "{}: {:?} as {:?}", knob.name, expected, notation
                    );
                }
            }
        }
    }

    #[test]
    fn accepts_any_text(text in ".{0,40}") {
        let isolation = isolation("2-3", "0-1");
        for knob in all() {
            for expected in expectations(knob) {
                let _ = satisfies(expected, format(knob), &text, &isolation);
            }
        }
    }
}

/// Checks that each vital kernel thread has a knob that names it.
#[test]
fn vital_threads_have_knobs() {
    for kind in VitalThread::ALL {
        let knob = named(kind.knob).expect(kind.knob);
        let Location::ThreadPolicy(names) = knob.location else {
            panic!("{}: {:?}", kind.knob, knob.location);
        };
        assert!(
            names.iter().any(|name| name.starts_with(kind.prefix)),
            "{}: {names:?}",
            kind.prefix
        );
    }
}
