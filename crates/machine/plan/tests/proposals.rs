// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proposed plans break no rule on the machine that they are proposed for.

use crate::example_machines::{self, RECORDED, cpus, quad, recorded, threads};
use rampart_model::{CpuRole, DomainKind, PlanFinding};
use rampart_plan::{ProposalRequest, ProposeError, parse, propose, resolve};

#[test]
fn proposals_break_no_rule() {
    for name in RECORDED {
        let (machine, around) = recorded(name);
        let mut proposed = 0;
        for real_time_cpus in [None, Some(1), Some(2), Some(3)] {
            for (tasks, containers, guests) in [
                (0, 0, 0),
                (1, 0, 0),
                (0, 1, 0),
                (0, 0, 1),
                (1, 1, 1),
                (2, 0, 0),
            ] {
                // The board's kernel has no KVM.
                if guests > 0 && name == "board" {
                    continue;
                }
                let request = ProposalRequest {
                    real_time_cpus,
                    tasks,
                    containers,
                    guests,
                };
                let Ok(proposal) = propose(&machine, &request) else {
                    continue;
                };
                proposed += 1;
                let text = proposal.to_toml();
                let read = parse(&text, name).unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(read, proposal.plan, "{text}");
                let resolved = resolve(&machine, &read, &around);
                let refusing: Vec<&PlanFinding> = resolved
                    .findings
                    .iter()
                    .filter(|finding| finding.refuses())
                    .collect();
                assert!(refusing.is_empty(), "{name}: {refusing:#?}\n{text}");
                assert!(
                    resolved.with_role(CpuRole::Unassigned).is_empty(),
                    "{name}: {text}"
                );
                if let Some(wanted) = real_time_cpus {
                    assert_eq!(resolved.real_time.len(), wanted as usize, "{text}");
                }
            }
        }
        assert!(proposed >= 3, "{name}: {proposed}");
    }
}

#[test]
fn real_time_cpus_are_distributed_over_domains() {
    let quad = quad();
    let request = ProposalRequest {
        guests: 1,
        tasks: 1,
        ..ProposalRequest::default()
    };
    let plan = propose(&quad, &request).expect("three cores").plan;
    assert_eq!(plan.machine.housekeeping, Some(cpus("0")));
    let kinds: Vec<DomainKind> = plan.domains.iter().map(|domain| domain.kind).collect();
    assert_eq!(kinds, [DomainKind::Task, DomainKind::Vm]);
    let vcpus = plan.domains[1].vcpus.as_ref().expect("vcpus").request();
    assert_eq!(
        (vcpus.cpus, vcpus.real_time),
        (Some(cpus("2-3")), Some(cpus("1")))
    );
    let tight = ProposalRequest {
        guests: 1,
        tasks: 2,
        ..ProposalRequest::default()
    };
    let plan = propose(&quad, &tight).expect("three cores").plan;
    assert_eq!(
        plan.domains.len(),
        3,
        "the guest gets one CPU where there is no second"
    );
    let names: Vec<&str> = plan
        .domains
        .iter()
        .map(|domain| domain.name.as_str())
        .collect();
    assert_eq!(names, ["task-1", "task-2", "guest"]);
}

#[test]
fn siblings_of_real_time_cpus_stay_idle() {
    let plan = propose(
        &threads(),
        &ProposalRequest {
            real_time_cpus: Some(2),
            ..ProposalRequest::default()
        },
    )
    .expect("plan")
    .plan;
    assert_eq!(plan.machine.housekeeping, Some(cpus("0-3")));
}

#[test]
fn reports_requests_that_the_machine_cannot_meet() {
    let quad = quad();
    let many = ProposalRequest {
        tasks: 4,
        ..ProposalRequest::default()
    };
    let error = propose(&quad, &many).expect_err("three cores");
    assert!(matches!(error, ProposeError::NotEnough { .. }), "{error}");
    assert!(
        error.to_string().contains("4 whole cores in total"),
        "{error}"
    );
    let few = ProposalRequest {
        tasks: 2,
        real_time_cpus: Some(1),
        ..ProposalRequest::default()
    };
    let error = propose(&quad, &few).expect_err("one CPU");
    assert_eq!(
        error,
        ProposeError::FewerThanDomains {
            cpus: 1,
            domains: 2
        }
    );
    let absurd = ProposalRequest {
        real_time_cpus: Some(u32::MAX),
        tasks: u32::MAX,
        ..ProposalRequest::default()
    };
    assert!(propose(&quad, &absurd).is_err());
    let none = example_machines::machine(&[], &[], &[]);
    assert!(propose(&none, &ProposalRequest::default()).is_err());
}
