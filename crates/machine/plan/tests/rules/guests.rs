// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of guests.

use super::*;

#[test]
fn each_virtual_cpu_has_a_cpu_without_the_emulator() {
    let quad = quad();
    let rule = "virtual-cpu-placement";
    assert!(
        one(
            &resolve(&quad, &guest("{ count = 3, cpus = \"2-3\" }", "")),
            rule
        )
        .impossible
    );
    let fewer = resolve(&quad, &guest("{ count = 1, cpus = \"2-3\" }", ""));
    assert!(broken(&fewer, rule).is_empty());
    assert_eq!(broken(&fewer, "spare-guest-cpu").len(), 1);
    let emulator = resolve(&quad, &guest("\"2-3\"", "emulator = \"0,2\""));
    assert_eq!(one(&emulator, rule).finding.severity, Severity::Error);
    assert!(broken(&resolve(&quad, &guest("\"2-3\"", "emulator = \"0\"")), rule).is_empty());
}

#[test]
fn a_guest_with_one_virtual_cpu_needs_cpus_for_its_emulator() {
    let quad = quad();
    let rule = "guest-two-cpus";
    let single = "{ count = 1, policy = { fifo = 1 } }";
    assert_eq!(
        one(&resolve(&quad, &guest(single, "")), rule)
            .finding
            .severity,
        Severity::Error
    );
    assert!(broken(&resolve(&quad, &guest(single, "emulator = \"0\"")), rule).is_empty());
    let two = "{ count = 2, policy = { fifo = 1 } }";
    assert!(broken(&resolve(&quad, &guest(two, "")), rule).is_empty());
    assert!(broken(&resolve(&quad, &guest("{ count = 1 }", "")), rule).is_empty());
}

#[test]
fn virtual_cpus_count_from_0() {
    let quad = quad();
    let beyond = "{ count = 2, real-time = \"1-2\", policy = { fifo = 1 } }";
    let resolved = resolve(&quad, &guest(beyond, ""));
    assert!(
        one(&resolved, "virtual-cpu-range")
            .finding
            .to_string()
            .contains("virtual CPU 2 of 2")
    );
    let within = beyond.replace("1-2", "1");
    assert!(broken(&resolve(&quad, &guest(&within, "")), "virtual-cpu-range").is_empty());
}

#[test]
fn the_dedicated_hint_needs_cpus_of_its_own() {
    let quad = quad();
    let rule = "dedicated-hint";
    let alone = guest("\"2-3\"", "hint-dedicated = true");
    assert!(broken(&resolve(&quad, &alone), rule).is_empty());
    let beside = format!("{}{alone}", task("\"2\""));
    let resolved = resolve(&quad, &beside);
    assert_eq!(one(&resolved, rule).domain.as_deref(), Some("g"));
    let crowded = guest("{ count = 3, cpus = \"2-3\" }", "cpu-pm = true");
    assert_eq!(broken(&resolve(&quad, &crowded), rule).len(), 1);
}

#[test]
fn a_real_time_guest_has_a_real_time_kernel() {
    let quad = quad();
    let rule = "guest-kernel";
    let plan = guest("{ count = 2, policy = { fifo = 1 } }", "kernel = \"/k\"");
    let with = |real_time| Environment {
        guest_kernels: [("/k".to_owned(), real_time)].into(),
        ..Environment::default()
    };
    assert_eq!(
        one(&resolve_in(&quad, &plan, &with(false)), rule)
            .finding
            .severity,
        Severity::Warning
    );
    assert!(found(&resolve_in(&quad, &plan, &with(true)), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
    assert!(
        found(
            &resolve_in(&quad, &guest("\"3\"", "kernel = \"/k\""), &with(false)),
            rule
        )
        .is_empty()
    );
}
