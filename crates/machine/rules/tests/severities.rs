// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every id belongs to one rule, and every rule has one severity.

use std::collections::BTreeSet;

use rampart_host::{
    MachineRoot, read_environment, read_figure_findings, read_knob_values, read_machine,
};
use rampart_host::{Watch, observe};
use rampart_model::{
    Accelerator, ActiveDomain, ActivePlan, ActivePlanState, CheckState, CpuSet, Finding,
    IsolationMechanism, Machine, Nanos, Observation, ObservedThread, ResolvedPlan,
    SchedulingPolicy, Severity,
};
use rampart_rules::guest::{
    GUEST_PLACEMENT_RULES, GuestMemory, GuestSetup, GuestSubject, HostFacts, VirtualCpu,
    guest_finding, guest_settings,
};
use rampart_rules::{
    FIGURE_RULES, HARM, Isolation, MANAGER_RULES, Readings, STATE_RULES, Subject, all_rules,
    by_harm, change_list, check, findings_of, rule,
};
use rampart_status::{Observer, status};

use crate::RECORDED;

/// Plans that break many rules.
const PLANS: [&str; 2] = [
    "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"0-1\"\npolicy = { fifo = 80 }\n",
    "[[domain]]\nname = \"guest\"\nkind = \"vm\"\nvcpus = \"1-2\"\nmemory = { size = \"1GiB\", hugepage = \"2MiB\" }\n",
];

#[test]
fn ids_are_unique_over_all_books() {
    let mut ids = BTreeSet::new();
    for rule in all_rules() {
        assert!(ids.insert(rule.id), "{} occurs twice", rule.id);
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

#[test]
fn orders_findings_by_severity_and_by_harm() {
    let ranked: BTreeSet<&str> = HARM.iter().map(|(id, _)| *id).collect();
    assert_eq!(ranked, FIGURE_RULES.into_iter().collect());
    let of = |id: &str| rule(id).expect("a rule").finding("here", "deviates");
    let unknown = Finding::new(Severity::Warning, "elsewhere", "of no rule");
    let findings = [
        unknown,
        of("transparent-huge-pages"),
        of("not-a-guest"),
        Finding::new(Severity::Note, "note", "no harm"),
        of("preempt-rt"),
    ];
    let ordered = by_harm(&findings);
    let ids: Vec<_> = ordered.iter().map(|one| one.rule.as_deref()).collect();
    let expected = ["preempt-rt", "not-a-guest", "transparent-huge-pages"];
    assert_eq!(ids[..3], expected.map(Some));
    assert_eq!(ids[3..], [None]);
    let errors = HARM.iter().filter_map(|(id, _)| rule(id));
    let errors = errors.map(|rule| rule.severity == Severity::Error);
    assert!(errors.take(3).all(|is_error| is_error), "errors come first");
}

/// Asserts that a finding has a rule, and the severity of its rule.
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
            let resolved = rampart_plan::resolve(&machine, &plan, &environment);
            let states = states(&root, &machine, &resolved, text);
            let plans = resolved.findings.into_iter().map(|found| found.finding);
            for (shown_by, finding) in plans
                .map(|finding| ("plan", finding))
                .chain(states.into_iter().map(|finding| ("status", finding)))
            {
                assert_severity(shown_by, &finding);
                shown.extend(finding.rule);
            }
        }
    }
    assert!(shown.len() > 80, "{} rules were shown", shown.len());
    let states: Vec<&str> = STATE_RULES
        .iter()
        .map(|state| state.rule.id)
        .filter(|id| shown.contains(*id))
        .collect();
    assert!(states.len() > 15, "{states:?}");
}

/// Returns the findings of `status` on a machine with this plan: as recorded, with foreign threads
/// on real-time CPUs and a broken group, restarted, and applied in part.
fn states(
    root: &MachineRoot,
    machine: &Machine,
    resolved: &ResolvedPlan,
    text: &str,
) -> Vec<Finding> {
    let readings = read_knob_values(root, &resolved.real_time);
    let subject = Subject {
        machine,
        readings: &readings,
    };
    let domains = resolved.domains.iter().map(|domain| ActiveDomain {
        name: domain.name.clone(),
        kind: domain.kind,
        cpus: domain.cpus.clone(),
        isolation: IsolationMechanism::IsolatedPartition,
        partition: Some("isolated".to_owned()),
        group: Some(format!("/sys/fs/cgroup/rampart-{}", domain.name)),
        members: None,
        unified: true,
    });
    let active = ActivePlan {
        schema_version: 1,
        tool_version: "test".to_owned(),
        state: ActivePlanState::Active,
        applied_at: Nanos::ZERO,
        boot: "this boot".to_owned(),
        file: "plan.toml".to_owned(),
        text: text.to_owned(),
        domains: domains.collect(),
        changes: change_list(resolved, subject, &Isolation::of(resolved), "test"),
        resolved: resolved.clone(),
        findings: Vec::new(),
        kept_interrupts: Vec::new(),
    };
    let incomplete = ActivePlan {
        state: ActivePlanState::Begun,
        ..active.clone()
    };
    let steps = active.changes.to_apply().flat_map(|step| &step.locations);
    let watch = Watch {
        cpus: resolved.real_time.clone(),
        locations: steps.map(|location| location.target.clone()).collect(),
        ..Watch::default()
    };
    let mut earlier = observe(root, &watch);
    earlier.boot = Some(active.boot.clone());
    earlier.plan_text = Some("edited".to_owned());
    let mut later = earlier.clone();
    later.at = earlier.at + Nanos::from_secs(1);
    let mut restarted = later.clone();
    restarted.boot = Some("another boot".to_owned());
    let broken = broken(&active, &later);
    [
        (&active, &later),
        (&active, &broken),
        (&active, &restarted),
        (&incomplete, &later),
    ]
    .into_iter()
    .flat_map(|(plan, later)| {
        let observer = Observer {
            tool_version: "test",
            process: None,
        };
        status(Some(plan), &earlier, later, observer).findings
    })
    .map(|found| found.finding)
    .collect()
}

/// Returns the observation with all CPUs busy, foreign activity on the real-time CPUs, and groups
/// that have other CPUs, an invalid partition and a thread that is not as planned.
fn broken(plan: &ActivePlan, observation: &Observation) -> Observation {
    let mut broken = observation.clone();
    for cpu in broken.cpus.values_mut() {
        cpu.busy += Nanos::from_secs(1);
        cpu.total += Nanos::from_secs(1);
    }
    for domain in &plan.domains {
        let Some(cpu) = domain.cpus.first() else {
            continue;
        };
        broken.online = broken.online.difference(&CpuSet::single(cpu));
        let mut add = |kernel, bound, used, name: &str| {
            let thread = 9_000_000 + u32::try_from(broken.threads.len()).expect("a count");
            broken.threads.push(ObservedThread {
                process: thread,
                thread,
                parent: 1,
                start: 1,
                name: name.to_owned(),
                kernel,
                bound,
                state: 'R',
                policy: Some(SchedulingPolicy::Other),
                cpu,
                cpu_time: used,
                affinity: Some(observation.online.clone()),
            });
            thread
        };
        let used = Nanos::from_secs(1);
        add(false, false, used, "stranger");
        add(false, false, Nanos::ZERO, "sleeper");
        add(true, false, used, "kworker/u8:1");
        add(true, true, used, "kworker/1:1");
        add(true, true, Nanos::ZERO, "rcuc/1");
        let member = add(false, false, used, "member");
        let member = broken
            .threads
            .iter_mut()
            .find(|thread| thread.thread == member);
        member.expect("the member").policy = Some(SchedulingPolicy::Fifo(50));
        for interrupt in &mut broken.interrupts {
            *interrupt.counts.entry(cpu).or_default() += 1;
        }
        for softirq in &mut broken.softirqs {
            *softirq.counts.entry(cpu).or_default() += 1;
        }
        let group = broken.groups.entry(domain.group.clone().expect("a group"));
        let group = group.or_default();
        group.exists = true;
        group.cpus = Some(CpuSet::single(cpu));
        group.partition = Some("isolated invalid".to_owned());
        group.threads = broken
            .threads
            .last()
            .iter()
            .map(|thread| thread.thread)
            .collect();
    }
    broken
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
