// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each rule: a plan that breaks it, what is said, and a plan beside it that keeps it.

#[path = "../support/mod.rs"]
mod support;

mod guests;
mod hardware;
mod kernel;
mod owners;
mod surroundings;

use rampart_model::{
    CpuId, HugePages, Interrupt, KernelThread, Machine, Nanos, NetworkQueues, ResourceLimits,
    SchedulingPolicy, Severity, Surroundings,
};
use support::{broken, cpus, found, machine, one, quad, resolve, resolve_in, threads};

fn task(cpus: &str) -> String {
    format!("[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = {cpus}\npolicy = {{ fifo = 10 }}\n")
}

fn guest(vcpus: &str, more: &str) -> String {
    format!(
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = {vcpus}\nmemory = {{ size = \"64MiB\" }}\n{more}\n"
    )
}

fn severity(machine: &Machine, text: &str, around: &Surroundings, rule: &str) -> Option<Severity> {
    let resolved = resolve_in(machine, text, around);
    broken(&resolved, rule)
        .first()
        .map(|finding| finding.finding.severity)
}

#[test]
fn findings_are_waived_by_name_and_reason() {
    let quad = quad();
    let both = format!(
        "{}{}",
        task("\"1-2\""),
        task("\"2-3\"").replace("\"a\"", "\"b\"")
    );
    assert!(resolve(&quad, &both).is_refused());
    let waive = |more: &str| {
        format!("{both}[[waive]]\nrule = \"one-owner\"\nreason = \"they take turns\"\n{more}")
    };
    let waived = resolve(&quad, &waive(""));
    assert!(!waived.is_refused());
    assert_eq!(
        one(&waived, "one-owner").waived.as_deref(),
        Some("they take turns")
    );
    assert!(!resolve(&quad, &waive("domain = \"b\"\n")).is_refused());
    let other = resolve(&quad, &waive("domain = \"a\"\n"));
    assert!(other.is_refused(), "the finding is about b");
    assert_eq!(
        found(&other, "one-owner").len(),
        2,
        "and the waiver is unused"
    );
    // What cannot work is not waived, nor made milder.
    let warn = format!("[machine]\npolicy = \"warn\"\n{both}");
    assert!(!resolve(&quad, &warn).is_refused());
    assert!(resolve(&quad, &warn.replace("2-3", "2-9")).is_refused());
}

#[test]
fn every_rule_has_a_test() {
    let tests = [
        include_str!("guests.rs"),
        include_str!("hardware.rs"),
        include_str!("kernel.rs"),
        include_str!("owners.rs"),
        include_str!("surroundings.rs"),
        include_str!("../selectors.rs"),
    ];
    for rule in rampart_plan::RULES {
        let quoted = format!("\"{}\"", rule.name);
        assert!(
            tests.iter().any(|text| text.contains(&quoted)),
            "{}",
            rule.name
        );
        assert!(!rule.demand.is_empty() && !rule.source.is_empty());
    }
}
