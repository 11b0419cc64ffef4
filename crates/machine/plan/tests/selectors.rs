// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that are selected by property, and the remaining CPUs.

use crate::example_machines::{broken, cpus, machine, one, quad, resolve, threads};
use rampart_model::{CpuRole, IsolationSource, IsolationSourceKind, ResolvedPlan};

fn selecting(name: &str, selector: &str) -> String {
    format!("[[domain]]\nname = \"{name}\"\nkind = \"task\"\ncpus = {{ {selector} }}\n")
}

fn of<'a>(resolved: &'a ResolvedPlan, name: &str) -> &'a rampart_model::ResolvedDomain {
    resolved.domain(name).expect("the domain")
}

#[test]
fn prefers_whole_cores_far_from_the_boot_cpu() {
    let resolved = resolve(&threads(), &selecting("a", "count = 1"));
    assert_eq!(of(&resolved, "a").cpus, cpus("6"));
    assert_eq!(resolved.with_role(CpuRole::IdleSibling), cpus("7"));
    assert_eq!(resolved.housekeeping, cpus("0-5"));
    let reasons = of(&resolved, "a").reasons.join(" ");
    assert!(
        reasons.contains("whole cores") && reasons.contains("memory node 1"),
        "{reasons}"
    );
    assert!(reasons.contains("L3 of CPUs 4-7"), "{reasons}");
}

#[test]
fn prefers_cpus_that_the_machine_keeps_for_real_time_work() {
    let mut quad = quad();
    quad.topology.isolation_sources = vec![IsolationSource {
        kind: IsolationSourceKind::Tickless,
        name: "nohz_full=".to_owned(),
        cpus: cpus("1"),
    }];
    let resolved = resolve(&quad, &selecting("a", "count = 1"));
    assert_eq!(of(&resolved, "a").cpus, cpus("1"));
    assert!(
        of(&resolved, "a")
            .reasons
            .join(" ")
            .contains("kept for real-time work, from nohz_full=")
    );
}

#[test]
fn respects_nodes_and_caches() {
    let machine = threads();
    let at = |text: &str| {
        let resolved = resolve(&machine, text);
        (of(&resolved, "a").cpus.clone(), resolved)
    };
    assert_eq!(at(&selecting("a", "count = 1, node = 0")).0, cpus("2"));
    assert_eq!(
        at(&selecting("a", "count = 2")).0,
        cpus("4,6"),
        "one node, not two"
    );
    assert_eq!(
        at(&selecting("a", "count = 1, same-l3-as = \"housekeeping\"")).0,
        cpus("2")
    );
    assert_eq!(
        at(&selecting("a", "count = 2, not-l3-of = \"housekeeping\"")).0,
        cpus("4,6")
    );
    let pair = format!(
        "{}{}",
        selecting("a", "count = 1"),
        selecting("b", "count = 1, same-l3-as = \"a\"")
    );
    assert_eq!(of(&resolve(&machine, &pair), "b").cpus, cpus("4"));
    let apart = format!(
        "{}{}",
        selecting("a", "count = 1"),
        selecting("b", "count = 1, not-l3-of = \"a\"")
    );
    assert_eq!(of(&resolve(&machine, &apart), "b").cpus, cpus("2"));
}

/// A free CPU whose core is not free is named, with what takes the rest of the core.
#[test]
fn a_cpu_that_is_free_is_not_reported_as_none() {
    let plan = format!(
        "[machine]\nhousekeeping = \"0,2,4,6\"\n{}",
        selecting("a", "count = 1, whole-cores = true")
    );
    let resolved = resolve(&threads(), &plan);
    let finding = one(&resolved, "selector");
    let found = finding.finding.found.as_deref();
    assert_eq!(
        found,
        Some("CPUs 1,3,5,7 are free, which share cores with CPUs 0,2,4,6")
    );
}

#[test]
fn reports_selectors_without_cpus() {
    let machine = threads();
    let resolved = resolve(&machine, &selecting("a", "count = 3, whole-cores = true"));
    let finding = one(&resolved, "selector");
    assert!(finding.impossible && resolved.is_refused());
    assert!(
        finding
            .finding
            .to_string()
            .contains("3 CPUs in whole cores"),
        "{}",
        finding.finding
    );
    for selector in [
        "count = 9",
        "count = 4000000000",
        "count = 1, node = 5",
        "count = 3, node = 1, whole-cores = true",
    ] {
        let resolved = resolve(&machine, &selecting("a", selector));
        let finding = one(&resolved, "selector");
        assert!(finding.impossible, "{selector}");
        let found = finding.finding.found.as_deref().unwrap_or_default();
        assert!(found.contains("free"), "{selector}: {found}");
        assert!(of(&resolved, "a").cpus.is_empty());
    }
    assert!(
        broken(
            &resolve(&machine, &selecting("a", "count = 2, node = 1")),
            "selector"
        )
        .is_empty()
    );
}

#[test]
fn takes_single_threads_if_whole_cores_are_too_few() {
    let resolved = resolve(&threads(), &selecting("a", "count = 3"));
    assert_eq!(of(&resolved, "a").cpus.len(), 3);
    assert!(
        of(&resolved, "a")
            .reasons
            .join(" ")
            .contains("single threads")
    );
}

#[test]
fn one_owner_can_have_both_threads() {
    let text = format!(
        "[machine]\nsmt = \"same-owner\"\n{}",
        selecting("a", "count = 2")
    );
    let resolved = resolve(&threads(), &text);
    assert_eq!(of(&resolved, "a").cpus, cpus("6-7"));
    assert!(resolved.with_role(CpuRole::IdleSibling).is_empty());
}

#[test]
fn without_smt_a_core_is_one_cpu() {
    let text = format!(
        "[machine]\nsmt = \"off\"\n{}",
        selecting("a", "count = 2, whole-cores = true")
    );
    let resolved = resolve(&threads(), &text);
    assert_eq!(of(&resolved, "a").cpus, cpus("4,6"));
    assert_eq!(resolved.with_role(CpuRole::Offline), cpus("1,3,5,7"));
    assert!(!resolved.is_refused(), "{:#?}", resolved.findings);
}

#[test]
fn assigns_lists_before_selectors() {
    let listed = "[[domain]]\nname = \"b\"\nkind = \"task\"\ncpus = \"3\"\n";
    let resolved = resolve(&quad(), &format!("{}{listed}", selecting("a", "count = 1")));
    assert_eq!(of(&resolved, "b").cpus, cpus("3"));
    assert_eq!(of(&resolved, "a").cpus, cpus("2"));
}

#[test]
fn prefers_fast_cores_and_does_not_mix_kinds() {
    let mut machine = machine(&["0", "1", "2", "3", "4", "5"], &["0-3", "4-5"], &["0-5"]);
    for cpu in &mut machine.topology.cpus {
        cpu.capacity = Some(if cpu.id.0 < 4 { 1024 } else { 500 });
    }
    assert_eq!(
        of(&resolve(&machine, &selecting("a", "count = 2")), "a").cpus,
        cpus("2-3")
    );
    let five = resolve(&machine, &selecting("a", "count = 5"));
    assert_eq!(broken(&five, "one-kind-of-core").len(), 1);
}

#[test]
fn binds_virtual_cpus_in_rising_order() {
    let text = "[machine]\nhousekeeping = \"0\"\n[[domain]]\nname = \"g\"\nkind = \"vm\"\nmemory = { size = \"1GiB\" }\nvcpus = { count = 2, policy = { fifo = 1 }, real-time = \"1\" }\nemulator = \"1\"\n";
    let resolved = resolve(&quad(), text);
    let roles: Vec<String> = resolved
        .cpus
        .iter()
        .map(|cpu| {
            format!(
                "{} {}",
                cpu.role,
                cpu.policy
                    .map_or_else(String::new, |policy| policy.to_string())
            )
        })
        .collect();
    assert_eq!(
        roles,
        [
            "housekeeping ",
            "emulator ",
            "vCPU 0 other",
            "vCPU 1 fifo:1"
        ]
    );
    assert_eq!(resolved.real_time, cpus("2-3"));
}

#[test]
fn an_emulator_on_the_boot_cpu_leaves_it_housekeeping() {
    let text = "[[domain]]\nname = \"g\"\nkind = \"vm\"\nmemory = { size = \"1GiB\" }\nvcpus = \"2-3\"\nemulator = \"0\"\n";
    let resolved = resolve(&quad(), text);
    assert_eq!(resolved.housekeeping, cpus("0-1"));
    assert!(broken(&resolved, "housekeeping").is_empty());
}
