// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of every plan on every machine.

use crate::example_machines::{self, machine, recorded};
use proptest::prelude::*;
use rampart_model::{
    CpuId, CpuRequest, CpuRole, CpuSelector, CpuSet, DomainKind, Enforcement, Environment,
    GuestMemory, InterruptMatch, KnobAction, KnobChoice, MachineSection, Nanos, Plan,
    PlannedDomain, PlannedPolicy, Reboot, Restart, SchedulingPolicy, SmtPolicy, ThreadRule,
    VirtualCpuRequest, VirtualCpus, Waiver,
};

fn set() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0u32..10, 1..5)
        .prop_map(|cpus| cpus.into_iter().map(CpuId).collect())
}

fn policy() -> impl Strategy<Value = PlannedPolicy> {
    prop_oneof![
        Just(SchedulingPolicy::Other),
        (1u8..=99).prop_map(SchedulingPolicy::Fifo),
        (1u8..=99).prop_map(SchedulingPolicy::RoundRobin),
        (1024u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40).prop_map(|(runtime, more, rest)| {
            SchedulingPolicy::Deadline {
                runtime: Nanos(runtime),
                deadline: Nanos(runtime + more),
                period: Nanos(runtime + more + rest),
            }
        }),
    ]
    .prop_map(PlannedPolicy)
}

fn selector() -> impl Strategy<Value = CpuSelector> {
    let other = prop::option::of(Just("housekeeping".to_owned()));
    (
        1u32..6,
        prop::option::of(0u32..3),
        any::<bool>(),
        other.clone(),
        other,
    )
        .prop_map(
            |(count, node, whole_cores, same_l3_as, not_l3_of)| CpuSelector {
                count,
                node,
                whole_cores,
                same_l3_as,
                not_l3_of,
            },
        )
}

fn task(name: String) -> impl Strategy<Value = PlannedDomain> {
    let cpus = prop_oneof![
        set().prop_map(CpuRequest::List),
        selector().prop_map(CpuRequest::Selector)
    ];
    let threads = prop::collection::vec(
        (
            "[ -~é]{1,8}",
            prop::option::of(set()),
            prop::option::of(policy()),
        )
            .prop_map(|(r#match, cpus, policy)| ThreadRule {
                r#match,
                cpus,
                policy,
            }),
        0..3,
    );
    let words = prop::collection::vec("[a-z]\\PC{0,6}", 0..3);
    (
        cpus,
        prop::option::of(policy()),
        prop::option::of(1u64..),
        words,
        threads,
    )
        .prop_map(
            move |(cpus, policy, deadline, run, threads)| PlannedDomain {
                cpus: Some(cpus),
                policy,
                deadline: deadline.map(Nanos),
                run,
                threads,
                restart: Restart::OnFailure,
                interrupts: vec![InterruptMatch {
                    action: Some("*".to_owned()),
                    ..InterruptMatch::default()
                }],
                ..PlannedDomain::new(name.clone(), DomainKind::Task)
            },
        )
}

fn guest(name: String) -> impl Strategy<Value = PlannedDomain> {
    let vcpus = prop_oneof![
        set().prop_map(VirtualCpus::List),
        (
            1u32..5,
            prop::option::of(set()),
            prop::option::of(policy()),
            prop::option::of(set())
        )
            .prop_map(|(count, cpus, policy, real_time)| VirtualCpus::Table(
                VirtualCpuRequest {
                    count: Some(count),
                    cpus,
                    policy,
                    real_time,
                    ..VirtualCpuRequest::default()
                }
            )),
    ];
    (vcpus, 1u64..1 << 30, prop::option::of(set()), any::<bool>()).prop_map(
        move |(vcpus, size, emulator, cpu_pm)| PlannedDomain {
            vcpus: Some(vcpus),
            memory: Some(GuestMemory {
                size: rampart_model::ByteSize(size),
                hugepage: None,
                node: None,
            }),
            emulator,
            cpu_pm,
            ..PlannedDomain::new(name.clone(), DomainKind::Vm)
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let domains = (0usize..5).prop_flat_map(|count| {
        (0..count)
            .map(|index| prop_oneof![task(format!("t{index}")), guest(format!("g{index}"))])
            .collect::<Vec<_>>()
    });
    let smt = prop::sample::select(vec![
        SmtPolicy::Off,
        SmtPolicy::IdleSibling,
        SmtPolicy::SameOwner,
    ]);
    // Knobs whose value is any text of one line.
    let knob = prop::sample::select(vec!["governor", "platform-profile", "idle-governor"]);
    let host = prop::collection::btree_map(
        knob.prop_map(str::to_owned),
        prop::option::of("\\PC{0,8}x"),
        0..3,
    );
    (
        domains,
        prop::option::of(set()),
        smt,
        any::<bool>(),
        host,
        "\\PC{0,20}x",
    )
        .prop_map(|(domains, housekeeping, smt, warn, host, reason)| Plan {
            machine: MachineSection {
                housekeeping,
                fingerprint: warn.then(|| reason.clone()),
                smt,
                policy: if warn {
                    Enforcement::Warn
                } else {
                    Enforcement::Strict
                },
            },
            domains,
            host: host
                .into_iter()
                .map(|(name, value)| {
                    (
                        name,
                        KnobChoice {
                            action: KnobAction::Expect,
                            value,
                        },
                    )
                })
                .collect(),
            boot: rampart_model::BootSection {
                arguments: vec!["skew_tick=1".to_owned()],
                reboot: if warn { Reboot::Plan } else { Reboot::Never },
            },
            waivers: vec![Waiver {
                rule: "one-owner".to_owned(),
                reason,
                domain: None,
            }],
            ..Plan::default()
        })
}

fn machines() -> impl Strategy<Value = rampart_model::Machine> {
    prop::sample::select(vec![0usize, 1, 2, 3, 4, 5, 6]).prop_map(|index| match index {
        0 => machine(&["0"], &[], &[]),
        1 => machine(
            &["0,4", "1,5", "2,6", "3,7"],
            &["0-1,4-5", "2-3,6-7"],
            &["0-7"],
        ),
        index => recorded(example_machines::RECORDED[index - 2]).0,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_cpu_has_two_owners(plan in plan(), machine in machines()) {
        let resolved = rampart_plan::resolve(&machine, &plan, &Environment::default());
        let mut seen = CpuSet::new();
        for domain in &resolved.domains {
            prop_assert!(domain.cpus.intersection(&seen).is_empty(), "{:?}", resolved.domains);
            prop_assert!(domain.cpus.is_subset(&machine.topology.online));
            seen = seen.union(&domain.cpus);
            let bound: Vec<_> = domain.virtual_cpus.iter().flatten().collect();
            let different: std::collections::BTreeSet<_> = bound.iter().collect();
            prop_assert_eq!(bound.len(), different.len());
        }
        prop_assert_eq!(&seen, &resolved.real_time);
        prop_assert!(resolved.housekeeping.intersection(&seen).is_empty());
        // Every CPU is listed once, and its role fits its owner.
        let listed: CpuSet = resolved.cpus.iter().map(|cpu| cpu.cpu).collect();
        prop_assert_eq!(&listed, &machine.topology.online);
        prop_assert_eq!(resolved.cpus.len(), listed.len());
        for cpu in &resolved.cpus {
            let works = matches!(cpu.role, CpuRole::RealTime | CpuRole::VirtualCpu(_));
            prop_assert_eq!(works, seen.contains(cpu.cpu), "{:?}", cpu);
            prop_assert_eq!(cpu.role == CpuRole::Housekeeping, resolved.housekeeping.contains(cpu.cpu));
        }
        let again = rampart_plan::resolve(&machine, &plan, &Environment::default());
        prop_assert_eq!(&again, &resolved);
        let picture = rampart_present::plan_picture(&resolved);
        let drawn = rampart_present::terminal(&picture, rampart_present::TerminalOptions::default());
        prop_assert!(!drawn.contains('\x1b'));
        let _ = rampart_present::plan_page(&resolved, "x");
        let json = serde_json::to_string(&resolved).expect("json");
        prop_assert_eq!(serde_json::from_str::<rampart_model::ResolvedPlan>(&json).expect("plan"), resolved);
    }

    #[test]
    fn parsing_a_written_plan_returns_the_same_plan(plan in plan()) {
        // Of these plans only lists of CPUs with properties cannot be written.
        let text = rampart_plan::write(&plan);
        match rampart_plan::parse(&text, "written") {
            Ok(read) => prop_assert_eq!(read, plan, "{}", text),
            Err(error) => prop_assert!(false, "{error}\n{text}"),
        }
    }

    #[test]
    fn a_plan_fits_its_schema(plan in plan()) {
        let schema = rampart_plan::schema();
        let validator = jsonschema::validator_for(schema.as_value()).expect("the schema is one");
        let value = serde_json::to_value(&plan).expect("json");
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        prop_assert!(errors.is_empty(), "{errors:?}");
    }
}
