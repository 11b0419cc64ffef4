// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every id belongs to one rule, and every rule has one severity.

use std::collections::{BTreeMap, BTreeSet};

use rampart_host::{
    MachineRoot, read_environment, read_figure_findings, read_knob_values, read_machine,
};
use rampart_host::{Watch, observe};
use rampart_model::{
    Accelerator, ActiveDomain, ActivePlan, ActivePlanState, CheckState, CpuId, CpuSet, Environment,
    Finding, IsolationMechanism, Machine, MemoryNode, Nanos, Observation, ObservedThread,
    ResolvedPlan, ResourceLimits, SchedulingPolicy, Severity,
};
use rampart_rules::cells::{CELL_DRIVER, CELL_RULES, check_description};
use rampart_rules::guest::{
    GUEST_PLACEMENT_RULES, GuestMemoryPages, GuestSetup, GuestSubject, HostFacts, VirtualCpu,
    guest_finding, guest_settings,
};
use rampart_rules::{
    FIGURE_RULES, HARM, Isolation, Location, MANAGER_RULES, ProcessLimits, Readings, STATE_RULES,
    Subject, all, all_rules, by_harm, change_list, check, findings_of, rule,
};
use rampart_status::{StatusObserver, status};

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
            for finding in check(subject, &isolation, "the test", None, "test").findings {
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

/// Device trees without and with an unfit interrupt controller, whose devices share everything.
#[test]
fn findings_about_cells_have_the_severity_of_their_rule() {
    let device = |path: &str| {
        serde_json::json!({
            "path": path, "compatible": [], "enabled": true, "references": [],
            "ranges": [{"start": 0x4000_0000_u64, "bytes": 0x10, "purpose": "registers"}],
            "interrupts": [{"number": 40, "kind": "shared", "edge": false}],
        })
    };
    let near = |mut device: serde_json::Value| {
        device["ranges"][0]["start"] = 0x4000_0100_u64.into();
        device
    };
    let controller = |version: u32, regions: usize| {
        serde_json::json!({
            "version": version, "path": "/intc", "distributor": {"start": 0, "bytes": 1},
            "redistributors": vec![serde_json::json!({"start": 0, "bytes": 1}); regions],
            "translation-services": [{"start": 0, "bytes": 1}],
        })
    };
    let mut shown = BTreeSet::new();
    for (controller, linux) in [
        (serde_json::Value::Null, true),
        (controller(2, 0), true),
        (controller(3, 2), false),
    ] {
        let description = serde_json::json!({
            "schema-version": 1, "compatible": [], "reserved": [], "kept": [], "findings": [],
            "cpus": [{"number": 0, "mpidr": 0, "path": "/cpus/cpu@0", "compatible": []}],
            "memory": [{"start": 0x4000_0000_u64, "bytes": 0x4000_0000_u64}],
            "linux-memory": linux.then(Vec::<()>::new), "interrupt-controller": controller,
            "devices": [device("/a"), device("/b"), near(device("/c"))],
        });
        let description = serde_json::from_value(description).expect("a description");
        for finding in check_description(&description) {
            assert_severity("cell describe", &finding);
            shown.extend(finding.rule);
        }
    }
    let expected = CELL_RULES.iter().map(|rule| rule.id);
    // The driver is no part of the description.
    let expected: BTreeSet<String> = expected
        .filter(|id| *id != CELL_DRIVER.id)
        .map(str::to_owned)
        .collect();
    assert_eq!(shown, expected);
}

/// Rules of a plan, and knobs of another severity that the same property of a machine breaks: what
/// the plan requests fails, while a machine without a plan has a weakness. The rule's reason names
/// the knob.
const DIFFERENT_STATEMENTS: [(&str, &str); 7] = [
    ("group-budget", "real-time-group-scheduling"),
    ("kernel-option", "config-cpusets"),
    ("kernel-option", "config-no-hz-full"),
    ("kernel-option", "config-resctrl"),
    ("one-node", "one-memory-node"),
    ("resource-limits", "locked-memory-limit"),
    ("resource-limits", "real-time-priority-limit"),
];

/// A machine as knobs and as plans see it.
#[derive(Clone)]
struct Seen {
    machine: Machine,
    readings: Readings,
    environment: Environment,
}

impl Seen {
    /// Returns a recorded machine with every kernel option except budgets of groups, the real-time
    /// CPUs on one of two memory nodes, no other managers, and a caller that no limit applies to.
    fn fit(root: &MachineRoot, real_time: &CpuSet) -> Self {
        let mut seen = Self {
            machine: read_machine(root),
            readings: read_knob_values(root, real_time),
            environment: read_environment(root, &[]),
        };
        for option in options() {
            seen.set_option(option, true);
        }
        seen.set_budgets(false);
        seen.readings.programs = Some(BTreeSet::new());
        seen.environment.managers = Some(Vec::new());
        seen.set_limits(true);
        seen.set_nodes(|cpu| u32::from(real_time.contains(cpu)));
        seen
    }

    fn set_option(&mut self, option: &str, on: bool) {
        let options = self.readings.options.get_or_insert_default();
        options.insert(option.to_owned(), if on { "y" } else { "n" }.to_owned());
        let options = &mut self.environment.kernel_options;
        options.insert(option.to_owned(), on);
    }

    fn set_budgets(&mut self, on: bool) {
        self.set_option("CONFIG_RT_GROUP_SCHED", on);
        self.set_option("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED", false);
        self.machine.throttling.group_scheduling = Some(on);
        self.machine.throttling.runtime = Some(Nanos::from_millis(950));
        self.environment.group_budget = on.then_some(Nanos::ZERO);
    }

    fn set_limits(&mut self, privileged: bool) {
        self.readings.limits = Some(ProcessLimits {
            locked_memory: Some(1 << 16),
            real_time_priority: Some(0),
            privileged,
        });
        self.environment.limits = Some(ResourceLimits {
            locked_memory: Some(1 << 16),
            real_time_priority: 0,
            may_schedule: privileged,
            may_lock: privileged,
        });
    }

    /// Puts each CPU on the memory node with this number.
    fn set_nodes(&mut self, of: impl Fn(CpuId) -> u32) {
        let mut nodes: BTreeMap<u32, Vec<CpuId>> = BTreeMap::new();
        for cpu in &mut self.machine.topology.cpus {
            cpu.node = Some(of(cpu.id));
            nodes.entry(of(cpu.id)).or_default().push(cpu.id);
        }
        let nodes = nodes.into_iter().map(|(id, cpus)| MemoryNode {
            id,
            cpus: cpus.into_iter().collect(),
            memory: 1 << 30,
        });
        self.machine.topology.nodes = nodes.collect();
    }

    /// Returns the rules that `check` and a plan find broken.
    fn broken(&self, plan: &rampart_model::Plan) -> BTreeSet<String> {
        let resolved = rampart_plan::resolve(&self.machine, plan, &self.environment);
        let subject = Subject {
            machine: &self.machine,
            readings: &self.readings,
        };
        let of_check = check(subject, &Isolation::of(&resolved), "the test", None, "test").findings;
        let of_check = of_check
            .into_iter()
            .filter(|found| matches!(found.state, CheckState::Error | CheckState::Warning))
            .map(|found| found.rule);
        let of_plan = resolved.findings.into_iter().map(|found| found.finding);
        let of_plan = of_plan.filter(|finding| !finding.undecided);
        of_check
            .chain(of_plan.filter_map(|finding| finding.rule))
            .collect()
    }
}

/// Returns every kernel option of the catalogue.
fn options() -> BTreeSet<&'static str> {
    let option = |location| match location {
        Location::KernelOption(option) => Some(option),
        _ => None,
    };
    all().filter_map(|knob| option(knob.location)).collect()
}

/// Returns machines that differ from the given one by one property that knobs and plans judge.
fn with_one_change(fit: &Seen) -> BTreeMap<String, Seen> {
    let mut changed = BTreeMap::new();
    let mut add = |name: &str, change: &dyn Fn(&mut Seen)| {
        let mut seen = fit.clone();
        change(&mut seen);
        changed.insert(name.to_owned(), seen);
    };
    for option in options() {
        add(option, &|seen| seen.set_option(option, false));
    }
    add("budgets of groups", &|seen| seen.set_budgets(true));
    add("limits", &|seen| seen.set_limits(false));
    add("memory nodes", &|seen| seen.set_nodes(|cpu| cpu.0));
    for knob in all() {
        let Location::Program(names) = knob.location else {
            continue;
        };
        for name in names {
            add(name, &|seen| {
                seen.readings.programs = Some(BTreeSet::from([(*name).to_owned()]));
                seen.environment.managers = Some(vec![(*name).to_owned()]);
            });
        }
    }
    changed
}

#[test]
fn one_property_of_a_machine_has_one_severity_or_the_difference_is_recorded() {
    let mut found = BTreeSet::new();
    for name in RECORDED {
        let root = MachineRoot::at(rampart_recorded::directory(name));
        let online = read_machine(&root).topology.online;
        let cpus: Vec<CpuId> = online.iter().collect();
        let [.., first, second] = cpus[..] else {
            panic!("{name} has {} CPUs", cpus.len());
        };
        let text = format!(
            "[boot]\narguments = [\"nohz_full={first}\"]\n\
             [[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"{first},{second}\"\n\
             policy = {{ fifo = 80 }}\ncache = {{ ways = 1 }}\n"
        );
        let plan = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|e| panic!("{e}"));
        let fit = Seen::fit(&root, &[first, second].into_iter().collect());
        let before = fit.broken(&plan);
        for (change, seen) in with_one_change(&fit) {
            let after = seen.broken(&plan);
            let new: Vec<_> = after
                .difference(&before)
                .filter_map(|id| rule(id))
                .collect();
            for one in &new {
                for other in &new {
                    if one.severity > other.severity {
                        assert!(
                            DIFFERENT_STATEMENTS.contains(&(one.id, other.id)),
                            "{change} on {name}: {} and {} differ in severity",
                            one.id,
                            other.id
                        );
                        assert!(one.reason.contains(other.id), "{}", one.id);
                        found.insert((one.id, other.id));
                    }
                }
            }
        }
    }
    assert_eq!(found, BTreeSet::from(DIFFERENT_STATEMENTS));
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
        let observer = StatusObserver {
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
            memory: GuestMemoryPages {
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
