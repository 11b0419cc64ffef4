// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every id belongs to one rule, and every rule has one severity.

use std::collections::BTreeSet;

use rampart_host::{
    MachineRoot, read_environment, read_figure_findings, read_knob_values, read_machine,
};
use rampart_model::{
    Accelerator, CheckState, CpuSet, Finding, Machine, Nanos, SchedulingPolicy, Severity,
};
use rampart_rules::guest::{
    GUEST_PLACEMENT_RULES, GuestMemory, GuestSetup, GuestSubject, HostFacts, VirtualCpu,
    guest_finding, guest_settings,
};
use rampart_rules::{
    FIGURE_RULES, Isolation, MANAGER_RULES, Readings, Subject, all_rules, check, findings_of, rule,
};

const RECORDED: [&str; 5] = ["board", "laptop", "server", "simulated", "virtual-machine"];

/// Plans that break many rules.
const PLANS: [&str; 2] = [
    "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"0-1\"\n",
    "[[domain]]\nname = \"guest\"\nkind = \"vm\"\nvcpus = \"1-2\"\nmemory = { size = \"1GiB\", hugepage = \"2MiB\" }\n",
];

#[test]
fn ids_are_unique_over_all_books() {
    let mut ids = BTreeSet::new();
    for rule in all_rules() {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        assert!(!rule.title.is_empty() && !rule.reason.is_empty() && !rule.source.is_empty());
    }
    for id in FIGURE_RULES
        .iter()
        .chain(&MANAGER_RULES)
        .chain(&GUEST_PLACEMENT_RULES)
    {
        assert!(ids.contains(id), "{id}");
    }
}

/// Panics if a finding has no rule, or another severity than its rule.
fn assert_severity(shown_by: &str, finding: &Finding) {
    let id = finding.rule.as_deref();
    let rule = id
        .and_then(rule)
        .unwrap_or_else(|| panic!("{shown_by}: no rule: {finding:?}"));
    let expected = if finding.undecided {
        Severity::Note
    } else {
        rule.severity
    };
    assert_eq!(finding.severity, expected, "{shown_by}: {}", rule.id);
}

#[test]
fn an_id_has_one_severity_everywhere() {
    let mut shown = BTreeSet::new();
    for name in RECORDED {
        let root = MachineRoot::at(rampart_recorded::directory(name));
        let machine = read_machine(&root);
        for cpus in ["0", "1", "1-2", "0-3"] {
            let real_time: CpuSet = cpus.parse().expect("CPUs");
            let readings = read_knob_values(&root, &real_time);
            let isolation = Isolation {
                housekeeping: machine.topology.online.difference(&real_time),
                real_time: real_time.clone(),
                has_guests: true,
                ..Isolation::default()
            };
            let subject = Subject {
                machine: &machine,
                readings: &readings,
            };
            for finding in check(subject, &isolation, "the test", "test").findings {
                let severity = match finding.state {
                    CheckState::Error => Severity::Error,
                    CheckState::Warning => Severity::Warning,
                    _ => continue,
                };
                let rule = rule(&finding.rule).expect("a rule");
                assert_eq!(rule.severity, severity, "check: {}", rule.id);
                shown.insert(finding.rule);
            }
            let figures = read_figure_findings(&root, &machine, &real_time);
            let placement = findings_of(GUEST_PLACEMENT_RULES, subject, &isolation);
            for (shown_by, findings) in [
                ("evaluate", figures),
                ("guest placement", placement),
                ("guest", guest(&machine, &readings, &isolation)),
            ] {
                for finding in findings {
                    assert_severity(shown_by, &finding);
                    shown.extend(finding.rule);
                }
            }
        }
        let environment = read_environment(&root, &[]);
        for text in PLANS {
            let plan = rampart_plan::parse(text, "plan.toml").unwrap_or_else(|e| panic!("{e}"));
            for found in rampart_plan::resolve(&machine, &plan, &environment).findings {
                assert_severity("plan", &found.finding);
                shown.extend(found.finding.rule);
            }
        }
    }
    assert!(shown.len() > 60, "{} rules were shown", shown.len());
}

/// Returns the findings of a guest on these CPUs without any of the needed settings.
fn guest(machine: &Machine, readings: &Readings, isolation: &Isolation) -> Vec<Finding> {
    let facts = HostFacts {
        files: readings
            .files
            .values()
            .flatten()
            .filter_map(|file| match &file.reading {
                rampart_rules::Reading::Value(text) => Some((file.path.clone(), text.clone())),
                rampart_rules::Reading::Refused(_) => None,
            })
            .collect(),
        command_line: machine.command_line.clone(),
        possible: machine.topology.possible.clone(),
        kernel_threads: vec![("ksoftirqd/1".to_owned(), SchedulingPolicy::Other)],
        idle_exit: Nanos::from_micros(200),
        nodes: machine.topology.nodes.len(),
        divides_caches: true,
        iommus: 1,
        firmware_interrupts: Some(1),
        ..HostFacts::default()
    };
    let virtual_cpus: Vec<VirtualCpu> = [isolation.housekeeping.clone()]
        .into_iter()
        .chain(isolation.real_time.iter().map(CpuSet::single))
        .map(|cpus| VirtualCpu {
            cpus,
            policy: SchedulingPolicy::Fifo(1),
        })
        .collect();
    let settings = guest_settings(&GuestSubject {
        facts: &facts,
        guest: GuestSetup {
            accelerator: Accelerator::Kvm,
            memory: GuestMemory {
                mebibytes: 512,
                huge_page: None,
            },
            cpus: &virtual_cpus,
            emulator: &isolation.housekeeping,
            housekeeping: &isolation.housekeeping,
            real_time: true,
            emulated: false,
            kernel_variable: "KERNEL",
        },
        command: &[],
        threads: &[],
        locked: 0,
        kernel_version: "",
        kernel_command_line: "",
        firmware_interrupts: Some(2),
    });
    settings.iter().filter_map(guest_finding).collect()
}
