// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the matrices of plans of the machine.

use rampart_evaluate::{EvaluateError, PlanRequest, Proposal, Request, propose};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{
    Availability, ChangeStep, DomainKind, DomainSelection, EvaluationPart, GuestRole, Machine,
    Nanos, Plan, PlanVariant, PlannedDomain, SchedulingPolicy, StepAction, StepKind,
};

/// Returns this machine with processors 0 to 4.
fn machine() -> Machine {
    let mut machine = read_machine(&MachineRoot::system());
    machine.topology.online = "0-4".parse().expect("CPUs");
    machine.topology.allowed = machine.topology.online.clone();
    machine.virtualisation.emulated = false;
    machine
}

fn availability() -> Vec<Availability> {
    [
        DomainSelection::of(DomainKind::Host),
        DomainSelection::of(DomainKind::Task),
        DomainSelection::of(DomainKind::Container),
        DomainSelection::of(DomainKind::Vm),
        DomainSelection {
            guest: Some(GuestRole::Noisy),
            ..DomainSelection::of(DomainKind::Vm)
        },
    ]
    .into_iter()
    .map(|domain| Availability {
        domain,
        available: domain.guest != Some(GuestRole::RealTime),
        description: domain.to_string(),
        findings: Vec::new(),
    })
    .collect()
}

/// Returns a plan of two tasks and a guest, which this machine cannot host.
fn plan(names: &[&str]) -> PlanRequest {
    let planned = |name: &str, kind, deadline| PlannedDomain {
        deadline,
        ..PlannedDomain::new(name, kind)
    };
    let domain = |name: &str, kind: &str, cpus: &str, policy: serde_json::Value| {
        serde_json::json!({
            "name": name, "kind": kind, "cpus": cpus, "policy": policy, "reasons": []
        })
    };
    PlanRequest {
        file: "press.toml".to_owned(),
        plan: Plan {
            domains: vec![
                planned("press", DomainKind::Task, Some(Nanos::from_micros(100))),
                planned("vision", DomainKind::Vm, None),
                planned("log", DomainKind::Task, None),
            ],
            ..Plan::default()
        },
        resolved: serde_json::from_value(serde_json::json!({
            "schema_version": 1, "fingerprint": "five CPUs", "housekeeping": "0-1",
            "real_time": "2-4", "smt": "idle-sibling", "cpus": [],
            "domains": [
                domain("press", "task", "3", serde_json::json!("fifo:70")),
                domain("vision", "vm", "4", serde_json::json!("fifo:1")),
                domain("log", "task", "2", serde_json::json!(null)),
            ],
            "interrupts": [], "caches": [], "nodes": [], "host": {}, "boot": {}, "findings": []
        }))
        .expect("a resolved plan"),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        before_after: false,
        ablate: false,
        steps: [
            (StepKind::Isolation, "press", StepAction::Apply),
            (StepKind::Knob, "ksm", StepAction::Apply),
            (
                StepKind::KernelCommandLine,
                "nohz_full",
                StepAction::AtRestart,
            ),
        ]
        .into_iter()
        .map(|(kind, name, action)| ChangeStep {
            kind,
            name: name.to_owned(),
            title: String::new(),
            action,
            why: String::new(),
            present: "a".to_owned(),
            wanted: "b".to_owned(),
            locations: Vec::new(),
            disruptive: None,
            fix: None,
            source: String::new(),
        })
        .collect(),
    }
}

fn proposed(plan: PlanRequest, total: Option<u64>) -> Result<Proposal, EvaluateError> {
    let request = Request {
        plan: Some(plan),
        total: total.map(Nanos::from_secs),
        ..Request::default()
    };
    propose(&machine(), &availability(), &request)
}

fn names(proposal: &Proposal) -> Vec<String> {
    let domains = proposal.settings.domains.iter();
    domains
        .map(|domain| format!("{} {}", domain.name, domain.cpus))
        .collect()
}

#[test]
fn keeps_cpus_policy_and_deadline_of_each_domain() {
    let proposal = proposed(plan(&[]), Some(300)).expect("a matrix");
    assert_eq!(names(&proposal), ["host 1", "press 3", "log 2"]);
    let matrix = &proposal.settings;
    assert_eq!(matrix.housekeeping.to_string(), "0-1");
    assert_eq!(matrix.domains[1].policy, Some(SchedulingPolicy::Fifo(70)));
    assert_eq!(matrix.deadline_of("press"), Nanos::from_micros(100));
    assert!(matrix.deadline_is_named("press") && !matrix.deadline_is_named("log"));
    assert_eq!(matrix.deadline_of("log"), matrix.deadline);
    let vision = EvaluationPart::Domain("vision".to_owned());
    assert!(proposal.not_measured.iter().any(|one| one.part == vision));
    let transfer = matrix.transfer.as_ref().expect("disturbances");
    assert_eq!(transfer.groups[0].participants.len(), 3);
    assert!(matrix.variants.is_empty() && proposal.plan_effects.is_none());
    assert_eq!(
        matrix.measured.as_ref().map(|one| &*one.file),
        Some("press.toml")
    );
}

#[test]
fn accepts_names_of_the_plan_and_kinds() {
    let proposal = proposed(plan(&["press", "host"]), Some(300)).expect("a matrix");
    assert_eq!(names(&proposal), ["host 1", "press 3"]);
    let proposal = proposed(plan(&["task", "vm:noisy"]), Some(300)).expect("a matrix");
    assert_eq!(names(&proposal), ["press 3", "log 2"]);
    assert_eq!(proposal.noisy_guests.len(), 1);
    for (asked, expected) in [
        ("moon", "press, vision, log"),
        ("vision", "vision"),
        ("host", "press.toml"),
    ] {
        let refused = proposed(plan(&[asked]), Some(300))
            .expect_err(asked)
            .to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_comparison_uses_the_whole_time_and_reports_its_need() {
    let compared = |before_after, ablate| PlanRequest {
        before_after,
        ablate,
        ..plan(&["press"])
    };
    let proposal = proposed(compared(true, true), None).expect("a matrix");
    let matrix = &proposal.settings;
    assert!(matrix.transfer.is_none());
    let variants: Vec<String> = matrix
        .variants
        .iter()
        .map(|variant| variant.variant.to_string())
        .collect();
    assert_eq!(
        variants,
        [
            "with the plan",
            "without the plan",
            "without isolation of press",
            "without ksm"
        ]
    );
    let order = rampart_evaluate::schedule(matrix);
    let visits: u32 = matrix.variants.iter().map(|variant| variant.visits).sum();
    let entries = matrix.conditions.len() * matrix.meters.len();
    assert_eq!(
        order.len(),
        entries * (visits * matrix.repetitions) as usize
    );
    let effects = proposal.plan_effects.expect("effects");
    assert_eq!(effects.changes.len(), 2);
    let EvaluationPart::Change(change) = &effects.not_compared[0].part else {
        panic!("{:?}", effects.not_compared[0]);
    };
    assert_eq!(change.to_string(), "kernel command line nohz_full");

    let refused = proposed(compared(false, true), Some(10)).expect_err("too short");
    assert!(
        matches!(refused, EvaluateError::TooShortToCompare { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("fix: --for "), "{refused}");
    let order = proposed(compared(true, false), Some(60))
        .expect("a matrix")
        .settings
        .variants;
    assert_eq!(order[0].variant, PlanVariant::After);
    assert_eq!(order.len(), 2);
}
