// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For each rule: a plan that breaks it, its finding, and a plan that does not break it.

mod environment;
mod guests;
mod hardware;
mod kernel;
mod owners;

use crate::example_machines::{
    self, broken, cpus, found, machine, one, quad, resolve, resolve_in, threads,
};
use rampart_model::{
    Allocation, AllocationGroup, CacheControl, CacheResource, CpuId, Environment, HugePages,
    Interrupt, KernelThread, Machine, Nanos, NetworkQueues, PreemptionModel, ResourceInstance,
    ResourceLimits, SchedulingPolicy, Schemata, Severity, WayMask,
};

fn task(cpus: &str) -> String {
    format!("[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = {cpus}\npolicy = {{ fifo = 10 }}\n")
}

fn guest(vcpus: &str, more: &str) -> String {
    format!(
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = {vcpus}\nmemory = {{ size = \"64MiB\" }}\n{more}\n"
    )
}

fn severity(machine: &Machine, text: &str, around: &Environment, rule: &str) -> Option<Severity> {
    let resolved = resolve_in(machine, text, around);
    broken(&resolved, rule)
        .first()
        .map(|finding| finding.finding.severity)
}

#[test]
fn a_waiver_applies_by_rule_and_domain() {
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
    assert_eq!(found(&other, "unused-waiver").len(), 1);
    // A finding that is impossible is not waived, and stays an error.
    let warn = format!("[machine]\npolicy = \"warn\"\n{both}");
    assert!(!resolve(&quad, &warn).is_refused());
    assert!(resolve(&quad, &warn.replace("2-3", "2-9")).is_refused());
}

/// Returns whether a test asserts the findings of a rule, by its id or by a variable that holds it.
fn asserts(text: &str, rule: &str) -> bool {
    text.split("\n#[test]\n").any(|test| {
        let name = format!("\"{rule}\"");
        let held = test.contains(&format!("let rule = {name};"));
        let asks = |call: &str| {
            ["broken(", "found(", "one(", "severity("]
                .iter()
                .any(|function| call.contains(function))
                && (call.contains(&name) || (held && call.contains("rule")))
        };
        test.split("assert")
            .skip(1)
            .any(|call| asks(call.split(';').next().unwrap_or_default()))
    })
}

#[test]
fn every_rule_has_a_test() {
    let tests = [
        include_str!("mod.rs"),
        include_str!("guests.rs"),
        include_str!("hardware.rs"),
        include_str!("kernel.rs"),
        include_str!("owners.rs"),
        include_str!("environment.rs"),
        include_str!("../selectors.rs"),
    ];
    for rule in rampart_rules::PLAN_RULES {
        assert!(
            tests.iter().any(|text| asserts(text, rule.id)),
            "no test asserts that a plan breaks {}",
            rule.id
        );
        assert!(!rule.title.is_empty() && !rule.reason.is_empty() && !rule.source.is_empty());
    }
}

#[test]
fn every_finding_has_values_and_a_fix_and_the_severity_of_its_rule() {
    let mut seen = std::collections::BTreeSet::new();
    let domains = format!(
        "{}{}{}",
        task("\"2-3,99\""),
        task("{ count = 1 }").replace("\"a\"", "\"b\""),
        guest(
            "{ count = 2, cpus = \"1-3\", policy = { fifo = 1 } }",
            "kernel = \"/no/kernel\"\ndevices = [\"0000:03:00.0\"]\ncpu-pm = true"
        )
        .replace("\"64MiB\"", "\"64MiB\", hugepage = \"2MiB\", node = 0")
    );
    let plans = [
        format!(
            "{domains}[host]\npreempt-rt = \"apply\"\n[[waive]]\nrule = \"one-kind-of-core\"\nreason = \"-\"\n"
        ),
        format!(
            "[machine]\nhousekeeping = \"2\"\nsmt = \"off\"\nfingerprint = \"topology-1:0 architecture=x\"\n{domains}"
        ),
        format!(
            "[machine]\nhousekeeping = \"0\"\n{}",
            guest("\"3\"", "disk = \"/d\"")
        ),
    ];
    let mut machines = vec![
        (quad(), Environment::default()),
        (threads(), Environment::default()),
    ];
    for name in example_machines::RECORDED {
        let (machine, around) = example_machines::recorded(name);
        machines.push((machine.clone(), Environment::default()));
        machines.push((machine, around));
    }
    for (machine, around) in &machines {
        for plan in &plans {
            for finding in resolve_in(machine, plan, around).findings {
                let text = &finding.finding;
                assert!(
                    text.found.is_some() && text.expected.is_some() && text.fix.is_some(),
                    "{}: {text}",
                    finding.rule()
                );
                let rule = rampart_rules::rule(finding.rule()).expect("a rule");
                let expected = if text.undecided {
                    Severity::Note
                } else {
                    rule.severity
                };
                assert_eq!(text.severity, expected, "{}", rule.id);
                seen.insert(rule.id);
            }
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}
